"""What the host does for calls: to ask for them, and FSDP2's hooks and copies around them.

On a CPU timeline the host's work is part of the step. A call that vanishes takes its part along:
the ``c10d::`` operator that asks for it, what passes between it and the call before where nothing
else is recorded (Python, waking up), and FSDP2's ``FSDP::all_gather`` (copy-in, enqueue),
``FSDP::all_gather_copy_out`` and ``FSDP::post_backward_reduce``; the hooks around those, and those
of FSDP1, belong to the unit. Of a device only the gaps between two calls show what its host does
for the second.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Intervals
from advisor.whatif.program import Owner, Share
from advisor.whatif.queries import (
    COPIES,
    COPY_IN,
    COPY_OUT,
    FSDP1_UNITS,
    REQUESTS,
    SHORTEST_GAP_NS,
    UNITS,
    WAKE_NS,
    CallRow,
    Recorded,
    Window,
)

Span = tuple[int, int, Owner]

# FSDP2's annotations: what they are for, and the unit's name in brackets or after "for".
_NAMED = re.compile(r"FSDP::(\w+)(?: for (\S+)| \((.*)\))?$")
_GATHER, _COPY_OUT, _REDUCE = "all_gather", "all_gather_copy_out", "post_backward_reduce"
_FSDP1_HOOKS = tuple(
    FSDP1_UNITS + hook for hook in ("pre_forward", "pre_backward_hook", "post_backward_hook")
)
# A call is handed to the backend's thread within its operator, or just after.
_HAND_OVER_NS = 20_000


class _Annotation(NamedTuple):
    start: int
    end: int
    kind: str
    unit: str


def host_work(
    recorded: Recorded, window: Window, calls: Sequence[CallRow]
) -> tuple[list[Span], list[tuple[int, int]]]:
    """The spans of work with an owner, in order and apart; and (time, call) of each copy-out.

    By the time a unit is copied out its gather has been waited for; empty without FSDP2.
    """
    annotations = _annotations(recorded, window)
    gathers = _calls_inside(annotations, _GATHER, "all_gather", calls)
    reductions = _calls_inside(annotations, _REDUCE, "reduce_scatter", calls)
    owned: list[Span] = []
    needed: list[tuple[int, int]] = []
    share: Share
    for item in annotations:
        if item.kind == _REDUCE:
            call, share = reductions.get(item), "call"
        else:
            # The unit's gather that was begun last, or is begun inside this hook.
            begun = [g for g in gathers if g.unit == item.unit and g.start < item.end]
            call = gathers[begun[-1]] if begun else None
            share = "call" if item.kind in (_GATHER, _COPY_OUT) else "unit"
        if call is None:
            continue
        owned.append((item.start, item.end, Owner(call, share)))
        if item.kind == _COPY_OUT:
            needed.append((item.start, call))
    owned += _fsdp1_hooks(recorded, window, calls)
    owned += list(_copies(recorded, window, owned))
    owned += _requests(recorded, window, calls)
    return _flatten(owned), needed


def _requests(recorded: Recorded, window: Window, calls: Sequence[CallRow]) -> list[Span]:
    """The operators that ask for calls, and what lies between two of them with nothing else.

    That is a little Python and a thread that wakes up; a longer stretch is work of somebody's.
    """
    requests = recorded.events(window, REQUESTS)
    following = [start for _, start, _ in requests[1:]]
    ordered = sorted(calls, key=lambda call: call.arrival)
    arrivals = [call.arrival for call in ordered]
    spans: list[Span] = []
    before: tuple[int, CallRow] | None = None  # the end of the request just before, and its call
    for (_, start, end), upto in zip_longest(requests, following):
        first, last = bisect_left(arrivals, start), bisect_right(arrivals, end + _HAND_OVER_NS)
        if last <= first:
            before = None
            continue
        call = ordered[first]
        since = start
        if before is not None and start - max(before[0], before[1].end) < WAKE_NS:
            since = before[0]
        spans.append((since, end, Owner(call.call_id, "call")))
        alone = upto is None or recorded.nothing_begins(end, upto)
        before = (end, call) if alone else None
    return spans


def launches_between(busy: Intervals, calls: Sequence[CallRow]) -> list[Span]:
    """On a device: from one call's start to the next one's, where nothing else ran, with an owner.

    A call that does not begin where the one before ends was asked for later: the host asks for one
    after the other, and its own time between them goes with the call.
    """
    spans: list[Span] = []
    since = until = 0
    for call in sorted(calls, key=lambda call: call.start):
        if SHORTEST_GAP_NS < call.start - until < WAKE_NS:
            first = int(np.searchsorted(busy.end, since, side="right"))
            if first == len(busy) or busy.start[first] >= call.start:
                spans.append((since, call.start, Owner(call.call_id, "call")))
        since, until = call.start, max(until, call.end)
    return spans


def device_work(
    recorded: Recorded, step: int, window: Window, busy: Intervals, calls: Sequence[CallRow]
) -> list[Span]:
    """On a device: what passes between two calls, and FSDP2's copies for them.

    Gradients are copied into the buffer of the reduce-scatter that is asked for next; parameters
    are copied out in the order in which they were gathered.
    """
    spans = launches_between(busy, calls)
    scatters = recorded.asked(step, "reduce_scatter")
    for asked, start, end in recorded.copied(window, COPY_IN):
        place = bisect_left(scatters, (asked, -1))
        if place < len(scatters):
            spans.append((start, end, Owner(scatters[place][1], "bytes")))
    gathers, out = recorded.asked(step, "all_gather"), recorded.copied(window, COPY_OUT)
    if len(gathers) == len(out):
        spans += [
            (start, end, Owner(call, "bytes"))
            for (_, call), (_, start, end) in zip(gathers, out, strict=True)
        ]
    return _flatten(spans)


def _annotations(recorded: Recorded, window: Window) -> list[_Annotation]:
    found = []
    for name, start, end in recorded.events(window, UNITS):
        match = _NAMED.match(name)
        if match is not None:
            unit = match[2] or match[3] or ""
            found.append(_Annotation(start, end, match[1], unit))
    return found


def _fsdp1_hooks(recorded: Recorded, window: Window, calls: Sequence[CallRow]) -> Iterator[Span]:
    """FSDP1's hooks that ask for one unit's parameters or reduce its gradients, as its own work."""
    ordered = sorted(calls, key=lambda call: call.arrival)
    arrivals = [call.arrival for call in ordered]
    for _, start, end in recorded.events(window, *_FSDP1_HOOKS):
        first, last = bisect_left(arrivals, start), bisect_right(arrivals, end)
        if last - first == 1 and ordered[first].op in (_GATHER, "reduce_scatter"):
            yield start, end, Owner(ordered[first].call_id, "unit")


def _calls_inside(
    annotations: Sequence[_Annotation], kind: str, op: str, calls: Sequence[CallRow]
) -> dict[_Annotation, int]:
    """The one call of ``op`` that was handed over inside each annotation of ``kind``."""
    found = {}
    for item in annotations:
        if item.kind == kind:
            inside = [c for c in calls if c.op == op and item.start <= c.arrival <= item.end]
            if len(inside) == 1:
                found[item] = inside[0].call_id
    return found


def _copies(recorded: Recorded, window: Window, owned: Sequence[Span]) -> Iterator[Span]:
    # The hooks of FSDP2 hold annotations of their own, those of FSDP1 the copies themselves.
    fsdp1 = any(name.startswith(FSDP1_UNITS) for name, _, _ in recorded.events(window, FSDP1_UNITS))
    of_calls = [span for span in owned if fsdp1 or span[2].share == "call"]
    for name, start, end in recorded.events(window, *COPIES):
        if name not in COPIES:
            continue
        for first, last, owner in of_calls:
            if first <= start and end <= last:
                yield start, end, Owner(owner.call, "bytes")


def _flatten(spans: Sequence[Span]) -> list[Span]:
    """Nested spans as stretches that follow one another: the innermost owns."""
    result: list[Span] = []
    open_: list[Span] = []
    cursor = 0

    def upto(limit: int) -> None:
        nonlocal cursor
        while open_ and open_[-1][1] <= limit:
            _, end, owner = open_.pop()
            if end > cursor:
                result.append((cursor, end, owner))
                cursor = end
        if open_ and limit > cursor:
            result.append((cursor, limit, open_[-1][2]))
        cursor = max(cursor, limit)

    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        upto(span[0])
        open_.append(span)
    if open_:
        upto(max(span[1] for span in open_))
    return result
