"""Which part of the step a collective belongs to.

A call belongs to the host's span that its request was made in, on the same thread: to a range of
our own recordings, else to one that torch names. Gradients are what is reduced in a backward pass,
or between one and the optimizer's step.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gradients import drop_repeated
from advisor.metrics.collectives.modules import set_modules
from advisor.metrics.collectives.redundant import TINY_BYTES
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
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.statistics import median
from advisor.vocabulary.dtypes import element

_OPTIMIZER = re.compile(r"^## optimizer ##$|^Optimizer\.(step|zero_grad)#")
_BACKWARD = re.compile(rf"^{AUTOGRAD}|^## backward ##$")
# A unit, and with hybrid sharding its shard over the replicas (foreach_reduce of torch 2.6).
_FSDP2_REDUCES = re.compile(r"^FSDP::post_backward_reduce")
_MATRICES = 0.2  # of a model's parameters: a transformer's block has 4 to 7, with 2 to 12 vectors
# All-reduces of 1 KiB take 20 to 100 us between hosts (tables of nccl-tests), twice that when busy.
_TINY_NS = 200_000
_AS_MANY = 0.1  # of the gradients' elements: DeepSpeed pads what it gathers to whole shards
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
    if not len(spans.start):  # no host was recorded: nothing tells a part of the step
        for call in calls:
            call.phase = "other"
    if not calls or not len(spans.start):
        return
    asked = np.array([c.asked for c in calls], dtype=np.int64)
    thread = np.array([-1 if c.thread is None else c.thread for c in calls], dtype=np.int64)
    small = _small(calls)
    around = _Around.of(spans, asked)
    _set_own_phases(calls, spans, around, asked, thread)
    set_modules(calls, spans, asked, thread)
    leaves = spans.select(re.compile(rf"^{AUTOGRAD}.*AccumulateGrad"))
    in_hook = _inside(leaves, asked, thread, False) | _inside(
        spans.select(_FSDP2_REDUCES), asked, thread, False
    )
    _set_gradients(calls, around, small, in_hook, len(leaves.start))
    passes, updates = backward_passes(spans), len(spans.select(STEP).start)
    if passes is not None:
        drop_repeated(calls, passes)
    chosen = [
        (at, bool(early))
        for at, (call, behind, early, tiny) in enumerate(
            zip(calls, around.behind_update(), around.early, small, strict=True)
        )
        if behind and not tiny and call.phase == "other" and call.op in _HANDS_OUT
    ]
    per_update = max(1, round(len(passes) / updates)) if passes is not None and updates else 1
    turns = around.last["step"]
    _set_handed_out(calls, turns, chosen, per_update, marked=around.forward_is_marked)
    reducing = {call.group for call in calls if call.is_gradient}
    for call, early, ahead, tiny in zip(
        calls, around.before_backward(), around.before_forward(), small, strict=True
    ):
        # A unit's parameters are gathered for it, whatever else is marked. What a group that
        # reduces gradients is handed right before its forward pass are buffers.
        buffer = ahead and call.op == "broadcast" and call.group in reducing and not tiny
        if (
            early
            and call.phase == "other"
            and (buffer or call.module is not None or not around.forward_is_marked)
        ):
            call.phase = "forward"


def _set_handed_out(
    calls: Sequence[Call],
    turns: Int64s,
    behind: Sequence[tuple[int, bool]],
    passes: int,
    *,
    marked: bool,
) -> None:
    """Gathers behind an update that hand out what was updated: about as many elements as a group
    reduced in one of ``passes`` backward passes, or in all. Fewer are activations or metrics, more
    are buffers. ``turns``: which update each call is behind; ``behind``: places of calls, and
    whether each is early.

    Unless the forward pass is ``marked``, they may lie in it: then as many, but for what pads them,
    and early in it. Gathers all along the forward pass are of its layers.
    """
    reduced, handed = (defaultdict[str | None, Counter[int]](Counter) for _ in range(2))
    spread = Counter[str | None]()
    for call, turn in zip(calls, turns.tolist(), strict=True):
        if call.is_gradient:
            reduced[call.group][turn] += _elements(call)
    for at, early in behind:
        handed[calls[at].group][int(turns[at])] += _elements(calls[at])
        spread[calls[at].group] += 0 if early else _elements(calls[at])
    for call in (calls[at] for at, _ in behind):
        sent, back = handed[call.group], reduced[call.group]
        if not back or spread[call.group] > _AS_MANY * sent.total():
            continue
        share = sent.total() / max(back.total(), 1)
        as_many = any(abs(passes_in * share - 1) <= _AS_MANY for passes_in in (1, passes))
        more = median([*sent.values()]) > (1 + _AS_MANY) * median([*back.values()])
        if passes * share >= 0.5 and (not more if marked else as_many):
            call.phase = "optimizer"


def _elements(call: Call) -> int:
    return (call.bytes or call.count_bytes() or 0) // (element(call.dtype)[1] or 1)


def _set_own_phases(
    calls: Sequence[Call], spans: Spans, around: "_Around", asked: Int64s, thread: Int64s
) -> None:
    """Phases by the spans that requests were made in. 'other' is outside of all of them, None where
    no backward pass was seen that a call could have been in."""
    found: list[str | None] = [None] * len(calls)

    def put(phase: str, chosen: Any) -> None:
        for index in map(int, np.flatnonzero(chosen)):
            found[index] = phase

    put("backward", _beside_nodes(spans, around, asked, thread))
    for pattern, phase, any_thread in reversed(_PHASES):
        chosen = spans.select(pattern)
        if pattern is _OPTIMIZER:
            chosen = after_closures(chosen, spans.select(NODE))
        put(phase, _inside(chosen, asked, thread, any_thread))
    other = "other" if any(found) or len(spans.select(NODE).start) else None
    for call, own in zip(calls, found, strict=True):
        call.phase = own or other


def _set_gradients(
    calls: Sequence[Call], around: "_Around", small: Sequence[bool], in_hook: Any, parameters: int
) -> None:
    """Which calls sum gradients: in hooks of a backward pass, or by hand behind one."""
    after, before = around.behind_backward(), around.before_backward()
    summed = {
        call.group
        for call, early in zip(calls, before, strict=True)
        if early and call.op == "reduce_scatter" and call.phase != "backward" and _requested(call)
    }
    each = _one_of_each(calls, after, small, parameters)
    between = _between(small, after, [call.op == "all_reduce" for call in calls])
    for call, hooked, late, tiny, amid in zip(calls, in_hook, after, small, between, strict=True):
        scalar = tiny and not each and not amid
        by_hand = bool(late) and call.phase in (None, "other") and not scalar
        if call.op == "all_reduce":
            bucket = (call.module or "").startswith("bucket")
            call.is_gradient = bool(hooked) or bucket or by_hand
        elif call.op == "reduce_scatter":
            unit = call.phase in (None, "backward")
            call.is_gradient = (unit or by_hand) and call.group not in summed


class _Around(NamedTuple):
    """The marks around each of some times: when each kind began last before it, and begins next."""

    last: dict[str, Int64s]
    next: dict[str, Int64s]
    forward_is_marked: bool
    early: Any
    """Whether most operators of the forward pass come after it; true where none were recorded."""

    @classmethod
    def of(cls, spans: Spans, times: Int64s) -> "_Around":
        marks = {
            "step": spans.select(STEP),
            "node": spans.select(NODE),
            "backward": spans.select(_BACKWARD),
            "forward": spans.select(FORWARD),
            "marked forward": spans.select(MARKED_FORWARD),
        }
        never = np.iinfo(np.int64)
        last, following = {}, {}
        for kind, found in marks.items():
            place = np.searchsorted(found.start, times, side="right")
            last[kind] = np.append(never.min, found.start)[place]
            following[kind] = np.append(found.start, never.max)[place]
        ran, updated, ends = (
            np.searchsorted(spans.operators, at) for at in (times, last["step"], following["node"])
        )
        ends_here = following["node"] == never.max
        early = ends_here | (2 * (ran - updated) <= ends - updated)
        return cls(last, following, bool(len(marks["marked forward"].start)), early)

    def behind_backward(self) -> Any:
        """Whether a backward pass ran last and the optimizer's step runs next: what a script
        reduces by hand there is its gradients."""
        last, following = self.last, self.next
        next_is_step = following["step"] < np.minimum(following["backward"], following["forward"])
        return next_is_step & (last["backward"] > np.maximum(last["step"], last["forward"]))

    def behind_nodes(self) -> Any:
        """Whether a node of autograd began last, and neither an update nor a marked forward pass
        has begun since."""
        last = self.last
        return last["node"] > np.maximum(last["step"], last["marked forward"])

    def before_backward(self) -> Any:
        """Whether a backward pass runs next, before a step. Outside of one that is a forward pass,
        and a group that reduces there sums activations."""
        return self.next["backward"] < self.next["step"]

    def before_forward(self) -> Any:
        """Whether a marked forward pass begins next."""
        return self.next["marked forward"] < self.next["backward"]

    def behind_update(self) -> Any:
        """Whether it is between an optimizer's step and a marked forward pass, or the next backward
        pass: there a group that reduces gradients gathers the parameters that it updated. Without
        a mark a recording, too, begins behind an update."""
        last = self.last
        if not self.forward_is_marked:
            return last["step"] >= last["node"]
        return last["step"] > np.maximum(last["node"], last["marked forward"])


def _requested(call: Call) -> bool:
    """Whether it is recorded when the host asked: a kernel that was launched before the recording
    began tells nothing about the phase that it is of."""
    return call.stream is None or call.enqueue is not None


def _beside_nodes(spans: Spans, around: _Around, asked: Int64s, thread: Int64s) -> Any:
    """Whether a request comes from a backward pass though from no node of it: autograd runs the
    nodes of a device on a thread of its own, and a hook may run between two of them or, where it
    was queued for the end of the pass, on that thread behind the last."""
    passes = backward_passes(spans)
    if passes is None:
        return np.zeros(len(asked), dtype=bool)
    own = np.setdiff1d(spans.select(NODE).tid, spans.select(STEP).tid)
    return np.isin(thread, own) & (passes.contains(asked) | around.behind_nodes())


def _small(calls: Sequence[Call]) -> list[bool]:
    """Whether a call moves a few numbers only. Where sizes were not recorded, all of an operation's
    calls are small unless most of them take longer than that."""
    sizes = [call.bytes or call.count_bytes() for call in calls]
    unsized: dict[tuple[str, str | None], list[int]] = {}
    for call, size in zip(calls, sizes, strict=True):
        if not size:
            unsized.setdefault((call.op, call.group), []).append(call.end - call.start)
    short = {kind: median(took) <= _TINY_NS for kind, took in unsized.items()}
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


def _inside(spans: Spans, times: Int64s, threads: Int64s, any_thread: bool) -> Any:
    if any_thread:
        return spans.intervals().contains(times)
    inside = np.zeros(len(times), dtype=bool)
    for tid in np.unique(spans.tid):
        own = spans.tid == tid
        within = Intervals.of(spans.start[own], spans.end[own]).contains(times)
        inside |= within & ((threads == tid) | (threads == -1))
    return inside
