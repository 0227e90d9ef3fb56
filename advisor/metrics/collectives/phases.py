"""Which part of the step, and which module or bucket, a collective belongs to.

A call belongs to the host's span that its request was made in, on the same thread: to a range of
our own recordings, else to one that torch names. Gradients are what is reduced in a backward pass,
or between one and the optimizer's step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.spans import (
    AUTOGRAD,
    FORWARD,
    MARKED_FORWARD,
    NODE,
    STEP,
    Spans,
    after_closures,
    backward_passes,
)
from advisor.metrics.collectives.summaries import TINY_BYTES
from advisor.metrics.timeline.intervals import Int64s, Intervals

_BUCKET = re.compile(r"^## bucket (\d+) ##$")
_LAYER = re.compile(r"^## layer (\d+) ##$")
_FSDP_MODULE = re.compile(r"^FSDP::\w+ \((.+)\)$")
_FSDP_AHEAD = re.compile(r"^FSDP::(forward|backward)_prefetch for ")
_FSDP_GATHER = re.compile(r"^FSDP::all_gather \(.+\)$")
_OPTIMIZER = re.compile(r"^## optimizer ##$|^Optimizer\.(step|zero_grad)#")
_MATRICES = 0.2  # of a model's parameters: a transformer's block has 4 to 7, with 2 to 12 vectors
# All-reduces of 1 KiB take 20 to 100 us between hosts (tables of nccl-tests), twice that when busy.
_TINY_NS = 200_000
_HANDS_OUT = ("all_gather", "broadcast")
# Explicit ranges first; then names of torch. (pattern, phase, on any thread)
_PHASES: tuple[tuple[re.Pattern[str], str, bool], ...] = (
    (re.compile(r"^## backward ##$"), "backward", True),
    (re.compile(r"^## forward ##$"), "forward", True),
    (_OPTIMIZER, "optimizer", True),
    (re.compile(r"^FSDP::\w*backward"), "backward", False),
    (NODE, "backward", False),
    (FORWARD, "forward", False),
)  # fmt: skip


def set_phases(calls: Sequence[Call], spans: Spans) -> None:
    """Fill ``phase``, ``module`` and ``is_gradient`` of one rank's calls."""
    if not calls:
        return
    asked = np.array([c.asked for c in calls], dtype=np.int64)
    thread = np.array([-1 if c.thread is None else c.thread for c in calls], dtype=np.int64)
    open_ = np.ones(len(calls), dtype=bool)
    for pattern, phase, any_thread in _PHASES:
        chosen = spans.select(pattern)
        if pattern is _OPTIMIZER:
            chosen = after_closures(chosen, spans.select(NODE))
        if not len(chosen.start):
            continue
        inside = _inside(chosen, asked, thread, any_thread)
        for index in map(int, np.flatnonzero(inside & open_)):
            calls[index].phase = phase
        open_ &= ~inside
    between_nodes = _between_nodes(spans, asked, thread) & open_
    for index in map(int, np.flatnonzero(between_nodes)):
        calls[index].phase = "backward"
    open_ &= ~between_nodes
    if not open_.all():
        for index in map(int, np.flatnonzero(open_)):
            calls[index].phase = "other"
    _set_modules(calls, spans, asked, thread)
    after, before = _around_backward(spans, asked)
    summed = {
        call.group
        for call, early in zip(calls, before, strict=True)
        if early and call.op == "reduce_scatter" and call.phase != "backward" and _requested(call)
    }
    if not len(spans.select(MARKED_FORWARD).start):
        for index in map(int, np.flatnonzero(before)):
            if calls[index].phase == "other":
                calls[index].phase = "forward"
    leaves = spans.select(re.compile(rf"^{AUTOGRAD}.*AccumulateGrad"))
    accumulating = _inside(leaves, asked, thread, False)
    small_ones = _small(calls)
    each = _one_of_each(calls, after, small_ones, len(leaves.start))
    between = _between(small_ones, after, [call.op == "all_reduce" for call in calls])
    for call, in_hook, late, tiny, amid in zip(
        calls, accumulating, after, small_ones, between, strict=True
    ):
        small = tiny and not each and not amid
        by_hand = bool(late) and call.phase in (None, "other") and not small
        bucket = (call.module or "").startswith("bucket")
        if call.op == "all_reduce":
            call.is_gradient = bool(in_hook) or bucket or by_hand
        elif call.op == "reduce_scatter":
            unit = call.phase in (None, "backward")
            call.is_gradient = (unit or by_hand) and call.group not in summed
    reducing = {call.group for call in calls if call.is_gradient}
    for call, behind, tiny in zip(calls, _behind_update(spans, asked), small_ones, strict=True):
        handed_out = call.op in _HANDS_OUT and call.group in reducing
        if behind and not tiny and call.phase == "other" and handed_out:
            call.phase = "optimizer"


def _behind_update(spans: Spans, times: Int64s) -> Any:
    """Whether each time is between an optimizer's step and a marked forward pass: what a group that
    reduces gradients gathers there is the parameters that its ranks updated."""
    if not len(spans.select(MARKED_FORWARD).start):
        return np.zeros(len(times), dtype=bool)
    marks = (spans.select(STEP), spans.select(NODE), spans.select(MARKED_FORWARD))
    last = [np.append(np.iinfo(np.int64).min, one.start)[np.searchsorted(one.start, times)]
            for one in marks]  # fmt: skip
    return (last[0] > last[1]) & (last[0] > last[2])


def _requested(call: Call) -> bool:
    """Whether it is recorded when the host asked: a kernel that was launched before the recording
    began tells nothing about the phase that it is of."""
    return call.stream is None or call.enqueue is not None


def _between_nodes(spans: Spans, asked: Int64s, thread: Int64s) -> Any:
    """Whether a request comes from a backward pass though from no node of it: autograd runs the
    nodes of a device on a thread of its own, and a hook may run between two of them."""
    passes = backward_passes(spans)
    if passes is None:
        return np.zeros(len(asked), dtype=bool)
    own = np.setdiff1d(spans.select(NODE).tid, spans.select(STEP).tid)
    return np.isin(thread, own) & passes.contains(asked)


def _small(calls: Sequence[Call]) -> list[bool]:
    """Whether a call moves a few numbers only. Where sizes were not recorded, all of an operation's
    calls are small unless most of them take longer than that."""
    sizes = [call.bytes or call.count_bytes() for call in calls]
    unsized: dict[tuple[str, str | None], list[int]] = {}
    for call, size in zip(calls, sizes, strict=True):
        if not size:
            unsized.setdefault((call.op, call.group), []).append(call.end - call.start)
    short = {kind: bool(np.median(took) <= _TINY_NS) for kind, took in unsized.items()}
    return [
        size <= TINY_BYTES if size else short[call.op, call.group]
        for call, size in zip(calls, sizes, strict=True)
    ]


def _one_of_each(calls: Sequence[Call], after: Any, small: Sequence[bool], parameters: int) -> bool:
    """Whether as many calls as there are parameters lie between backward passes and the optimizer,
    many of them large, as matrices are: then small ones are gradients too.

    Fewer small ones, or nothing but small ones, are norms, losses or counters.
    """
    own = [
        tiny
        for call, late, tiny in zip(calls, after, small, strict=True)
        if late and call.op == "all_reduce"
    ]
    return 0 < parameters <= len(own) and own.count(False) >= _MATRICES * len(own)


def _between(small: Sequence[bool], after: Any, reduces: Sequence[bool]) -> list[bool]:
    """Whether larger reductions of the same run behind a backward pass are on both sides of a call.

    A norm or a loss is summed before or after the gradients, a bias's gradient amid them.
    """
    found = [False] * len(small)
    last = None
    for index, (tiny, late) in enumerate(zip(small, after, strict=True)):
        if not late:
            last = None
        elif reduces[index] and not tiny:
            if last is not None:
                found[last:index] = [True] * (index - last)
            last = index
    return found


def _around_backward(spans: Spans, times: Int64s) -> tuple[Any, Any]:
    """Whether a backward pass ran last before each time and the optimizer's step runs next; and
    whether a backward pass runs next.

    What a script reduces by hand in the former is its gradients. Outside of a backward pass the
    latter is a forward pass, and a group that reduces there sums activations.
    """
    step = spans.select(STEP).start
    node = spans.select(re.compile(rf"^{AUTOGRAD}|^## backward ##$")).start
    forward = spans.select(FORWARD).start
    after, before = [], []
    for starts in (step, node, forward):
        place = np.searchsorted(starts, times, side="right")
        after.append(np.append(starts, np.iinfo(np.int64).max)[place])
        before.append(np.append(np.iinfo(np.int64).min, starts)[place])
    next_is_step = (after[0] < after[1]) & (after[0] < after[2])
    return next_is_step & (before[1] > before[0]) & (before[1] > before[2]), after[1] < after[0]


def _inside(spans: Spans, times: Int64s, threads: Int64s, any_thread: bool) -> Any:
    if any_thread:
        return spans.intervals().contains(times)
    inside = np.zeros(len(times), dtype=bool)
    for tid in np.unique(spans.tid):
        own = spans.tid == tid
        within = Intervals.of(spans.start[own], spans.end[own]).contains(times)
        inside |= within & ((threads == tid) | (threads == -1))
    return inside


def _innermost(spans: Spans, asked: Int64s, thread: Int64s) -> Int64s:
    """The place of the innermost span around each time on its thread; -1 without any."""
    found = np.full(len(asked), -1, dtype=np.int64)
    for tid in np.unique(spans.tid):
        own = np.flatnonzero(spans.tid == tid)
        starts, ends = spans.start[own], spans.end[own]
        for index in map(int, np.flatnonzero(thread == tid)):
            place = int(np.searchsorted(starts, asked[index], side="right")) - 1
            # Spans nest a few deep: the latest begun that is still open is the innermost.
            for candidate in range(place, max(place - 8, -1), -1):
                if asked[index] <= ends[candidate]:
                    found[index] = own[candidate]
                    break
    return found


def _set_modules(calls: Sequence[Call], spans: Spans, asked: Int64s, thread: Int64s) -> None:
    for pattern, label in ((_LAYER, "layer {}"), (_FSDP_MODULE, "{}")):
        named = spans.select(pattern)
        for index, row in enumerate(_innermost(named, asked, thread)):
            match = pattern.match(named.name(int(row))) if row >= 0 else None
            if match:
                calls[index].module = label.format(match.group(1))
    ahead, gathers = spans.select(_FSDP_AHEAD), spans.select(_FSDP_GATHER)
    early, gather = _innermost(ahead, asked, thread), _innermost(gathers, asked, thread)
    for call, before, around in zip(calls, early, gather, strict=True):
        if call.op == "all_gather" and around >= 0:
            # What its own operator waits for hides under nothing, whenever it is asked for.
            call.ahead = before >= 0 and bool(gathers.end[around] < call.end)
    marks = spans.select(_BUCKET)
    for tid in np.unique(marks.tid):
        own = np.flatnonzero(marks.tid == tid)
        requests = np.array(
            sorted(np.flatnonzero(thread == tid), key=lambda i: asked[i]), dtype=int
        )
        for mark in map(int, own):
            following = int(np.searchsorted(asked[requests], marks.start[mark]))
            match = _BUCKET.match(marks.name(mark))
            if match and following < len(requests):
                calls[int(requests[following])].module = f"bucket {match.group(1)}"
