"""What the host does for calls: to ask for them, and FSDP2's hooks and copies around them.

On a CPU timeline the host's work is part of the step. A call that vanishes takes its part along:
the ``c10d::`` operator that asks for it, what passes between it and the call before where nothing
else is recorded (Python, waking up), and FSDP2's ``FSDP::all_gather`` (copy-in, enqueue),
``FSDP::all_gather_copy_out`` and ``FSDP::post_backward_reduce``; the hooks around those belong to
the unit.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.whatif.program import Owner, Share
from advisor.whatif.queries import WAKE_NS, CallRow

Span = tuple[int, int, Owner]

# FSDP2's annotations: what they are for, and the unit's name in brackets or after "for".
_NAMED = re.compile(r"FSDP::(\w+)(?: for (\S+)| \((.*)\))?$")
_GATHER, _COPY_OUT, _REDUCE = "all_gather", "all_gather_copy_out", "post_backward_reduce"
# A call is handed to the backend's thread within its operator, or just after.
_HAND_OVER_NS = 20_000
# Operators whose time grows with the bytes, as far as they run inside those annotations.
_COPIES = (
    "fsdp::all_gather_copy_in", "fsdp::split_with_sizes_copy", "fsdp::chunk_cat", "aten::copy_",
    "aten::clone", "aten::cat", "aten::div_",
)  # fmt: skip


@dataclass(frozen=True)
class _Annotation:
    start: int
    end: int
    kind: str
    unit: str


def host_work(
    con: Any, run: str, rank: int, window: tuple[int, int], calls: Sequence[CallRow]
) -> tuple[list[Span], list[tuple[int, int]]]:
    """The spans of work with an owner, in order and apart; and (time, call) of each copy-out.

    By the time a unit is copied out its gather has been waited for; empty without FSDP2.
    """
    annotations = _annotations(con, run, rank, window)
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
    owned += list(_copies(con, run, rank, window, owned))
    owned += _requests(con, run, rank, window, calls)
    return _flatten(owned), needed


def _requests(
    con: Any, run: str, rank: int, window: tuple[int, int], calls: Sequence[CallRow]
) -> list[Span]:
    """The operators that ask for calls, and what lies between two of them with nothing else.

    That is a little Python and a thread that wakes up; a longer stretch is work of somebody's.
    """
    rows = con.execute(
        "WITH request AS (SELECT start_ns, start_ns + dur_ns AS end_ns, "
        "lead(start_ns) OVER (ORDER BY start_ns) AS next_ns FROM event WHERE run = $1 "
        "AND rank = $2 AND start_ns >= $3 AND start_ns < $4 AND name LIKE 'c10d::%') "
        "SELECT start_ns, end_ns, NOT EXISTS (FROM activity a WHERE a.run = $1 AND a.rank = $2 "
        "AND a.kind <> 'comm' AND a.start_ns > r.end_ns AND a.start_ns < r.next_ns) "
        "FROM request r ORDER BY start_ns",
        [run, rank, *window],
    ).fetchall()
    ordered = sorted(calls, key=lambda call: call.arrival)
    arrivals = [call.arrival for call in ordered]
    spans: list[Span] = []
    before: tuple[int, CallRow] | None = None  # the end of the request just before, and its call
    for start, end, alone in rows:
        first, last = bisect_left(arrivals, start), bisect_right(arrivals, end + _HAND_OVER_NS)
        if last <= first:
            before = None
            continue
        call = ordered[first]
        since = start
        if before is not None and start - max(before[0], before[1].end) < WAKE_NS:
            since = before[0]
        spans.append((int(since), int(end), Owner(call.call_id, "call")))
        before = (int(end), call) if alone else None
    return spans


def _annotations(con: Any, run: str, rank: int, window: tuple[int, int]) -> list[_Annotation]:
    rows = con.execute(
        "SELECT name, start_ns, start_ns + dur_ns FROM event WHERE run = ? AND rank = ? "
        "AND start_ns >= ? AND start_ns < ? AND name LIKE 'FSDP::%' ORDER BY start_ns",
        [run, rank, *window],
    ).fetchall()
    found = []
    for name, start, end in rows:
        match = _NAMED.match(name)
        if match is not None:
            unit = match[2] or match[3] or ""
            found.append(_Annotation(int(start), int(end), match[1], unit))
    return found


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


def _copies(
    con: Any, run: str, rank: int, window: tuple[int, int], owned: Sequence[Span]
) -> Iterator[Span]:
    names = ", ".join("?" for _ in _COPIES)
    rows = con.execute(
        "SELECT start_ns, start_ns + dur_ns FROM event WHERE run = ? AND rank = ? "
        f"AND start_ns >= ? AND start_ns < ? AND name IN ({names}) ORDER BY start_ns",
        [run, rank, *window, *_COPIES],
    ).fetchall()
    of_calls = [span for span in owned if span[2].share == "call"]
    for start, end in rows:
        for first, last, owner in of_calls:
            if first <= start and end <= last:
                yield int(start), int(end), Owner(owner.call, "bytes")


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
