"""Which part of the step, and which module or bucket, a collective belongs to.

Phases come from the ranges of our own recordings (``## forward ##`` ...), else from torch's own
names: autograd's nodes, ``Optimizer.step#``, ``DistributedDataParallel.forward``, ``FSDP::*``. A
call belongs to the span that its request was made in, on the same thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.summaries import TINY_BYTES
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.store.events import Events

_AUTOGRAD = "autograd::engine::evaluate_function"
TELLS_PHASE = " OR ".join(
    (
        *(f"starts_with(name, '{start}')" for start in ("## ", "Optimizer.", _AUTOGRAD, "FSDP::")),
        "ends_with(name, 'DataParallel.forward')",
    )
)
"""SQL that is true for names of host events which tell a phase or a module."""
_BUCKET = re.compile(r"^## bucket (\d+) ##$")
_LAYER = re.compile(r"^## layer (\d+) ##$")
_FSDP_MODULE = re.compile(r"^FSDP::\w+ \((.+)\)$")
_FSDP_AHEAD = re.compile(r"^FSDP::(forward|backward)_prefetch for ")
_FSDP_GATHER = re.compile(r"^FSDP::all_gather \(.+\)$")
_FORWARD = re.compile(r"^FSDP::\w*forward|(DataParallel|FullyShardedDataParallel)\.forward$")
_MARKED_FORWARD = re.compile(rf"^## forward ##$|{_FORWARD.pattern}")
_OPTIMIZER = re.compile(r"^## optimizer ##$|^Optimizer\.(step|zero_grad)#")
_STEP = re.compile(r"^## optimizer ##$|^Optimizer\.step#")
_NODE = re.compile(rf"^{_AUTOGRAD}")
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
    (_NODE, "backward", False),
    (_FORWARD, "forward", False),
)  # fmt: skip


@dataclass(frozen=True)
class Spans:
    """Named host spans of one rank, sorted by start; ``code`` is each name's place in ``names``."""

    names: Sequence[str]
    code: Int64s
    tid: Int64s
    start: Int64s
    end: Int64s
    operators: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Where no wrapper marks a forward pass: when operators outside of autograd's nodes start, on
    the threads that run the optimizer."""

    def select(self, pattern: re.Pattern[str]) -> Spans:
        """Those whose name fits."""
        chosen = np.array([bool(pattern.search(name)) for name in self.names], dtype=bool)[
            self.code
        ]
        return Spans(
            self.names, self.code[chosen], self.tid[chosen], self.start[chosen], self.end[chosen]
        )

    def name(self, row: int) -> str:
        """The name of one span."""
        return self.names[int(self.code[row])]

    def intervals(self) -> Intervals:
        """Their union."""
        return Intervals.of(self.start, self.end)


def host_spans(events: Events, rank: int) -> Spans:
    """The spans that phases and modules are told from."""
    found = events.read(
        rank,
        f"""
        SELECT rank, name, coalesce(tid, -1) AS tid, start_ns, start_ns + dur_ns AS end_ns
        FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3
          AND class IN ('annotation', 'cpu_op') AND device IS NULL AND category IS DISTINCT FROM
          'gpu_user_annotation' AND start_ns IS NOT NULL AND ({TELLS_PHASE})
        ORDER BY rank, start_ns, end_ns DESC, event_id
        """,
    )
    codes: dict[str, int] = {}
    code = [codes.setdefault(name, len(codes)) for name in found["name"]]
    spans = Spans(
        names=list(codes),
        code=np.array(code, dtype=np.int64),
        tid=found["tid"],
        start=found["start_ns"],
        end=found["end_ns"],
    )
    nodes = spans.select(_NODE)
    if not len(nodes.start) or len(spans.select(_MARKED_FORWARD).start):
        return spans
    ran = events.read(
        rank,
        """
        SELECT rank, coalesce(tid, -1) AS tid, start_ns FROM event
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'cpu_op' AND device IS NULL
          AND starts_with(name, 'aten::') AND start_ns IS NOT NULL ORDER BY rank, start_ns
        """,
    )
    own = np.isin(ran["tid"], spans.select(_STEP).tid)
    starts: Int64s = ran["start_ns"][own & ~nodes.intervals().contains(ran["start_ns"])]
    return replace(spans, operators=starts)


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
            chosen = _after_closures(chosen, spans.select(_NODE))
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
    if not len(spans.select(_MARKED_FORWARD).start):
        for index in map(int, np.flatnonzero(before)):
            if calls[index].phase == "other":
                calls[index].phase = "forward"
    leaves = spans.select(re.compile(rf"^{_AUTOGRAD}.*AccumulateGrad"))
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
        if behind and not tiny and call.phase == "other" and call.group in reducing:
            call.phase = "optimizer" if call.op in _HANDS_OUT else call.phase


def _behind_update(spans: Spans, times: Int64s) -> Any:
    """Whether each time is between an optimizer's step and a marked forward pass: what a group that
    reduces gradients gathers there is the parameters that its ranks updated."""
    if not len(spans.select(_MARKED_FORWARD).start):
        return np.zeros(len(times), dtype=bool)
    marks = (spans.select(_STEP), spans.select(_NODE), spans.select(_MARKED_FORWARD))
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
    own = np.setdiff1d(spans.select(_NODE).tid, spans.select(_STEP).tid)
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
    step = spans.select(_STEP).start
    node = spans.select(re.compile(rf"^{_AUTOGRAD}|^## backward ##$")).start
    forward = spans.select(_FORWARD).start
    after, before = [], []
    for starts in (step, node, forward):
        place = np.searchsorted(starts, times, side="right")
        after.append(np.append(starts, np.iinfo(np.int64).max)[place])
        before.append(np.append(np.iinfo(np.int64).min, starts)[place])
    next_is_step = (after[0] < after[1]) & (after[0] < after[2])
    return next_is_step & (before[1] > before[0]) & (before[1] > before[2]), after[1] < after[0]


def update_starts(spans: Spans) -> Int64s:
    """When optimizers begin to update, ns, sorted; empty where the trace names none."""
    return np.sort(_after_closures(spans.select(_STEP), spans.select(_NODE)).start)


def _after_closures(steps: Spans, nodes: Spans) -> Spans:
    """The optimizer's steps from where the backward pass in them ends.

    A step that is given a closure (Lightning does) runs the forward and backward pass itself.
    """
    ends = np.sort(nodes.end)
    last = np.searchsorted(ends, steps.end, side="right") - 1
    inner = ends[np.maximum(last, 0)] if len(ends) else steps.start
    begin = np.where(last >= 0, np.maximum(steps.start, inner), steps.start)
    return replace(steps, start=begin)


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


def backward_passes(spans: Spans) -> Intervals | None:
    """The backward passes as separate intervals; None when the trace shows none.

    Marked in our own recordings. Elsewhere autograd's nodes tell them: between the last node of a
    pass and the first of the next one runs a forward pass, which DDP and FSDP mark; without them
    any operator outside of the nodes is of it. One inside a node is the recomputation of a
    checkpointed part, not the next pass.
    """
    marked = spans.select(re.compile(r"^## backward ##$"))
    if len(marked.start):
        return marked.intervals()
    nodes = spans.select(_NODE)
    if not len(nodes.start):
        return None
    busy = nodes.intervals()
    forward = spans.select(_FORWARD).start
    forward = np.unique(forward[~busy.contains(forward)]) if len(forward) else spans.operators
    passes = np.searchsorted(forward, nodes.start, side="right")
    first = np.flatnonzero(np.diff(passes, prepend=-1))
    return Intervals.of(nodes.start[first], np.maximum.reduceat(nodes.end, first))
