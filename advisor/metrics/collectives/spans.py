"""Host spans that tell what a rank is about: passes over the model, and the optimizer's steps.

They are ranges of our own recordings (``## forward ##`` ...) or torch's own names: autograd's
nodes, ``Optimizer.step#``, ``DistributedDataParallel.forward``, ``FSDP::*``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.store.events import Events

AUTOGRAD = "autograd::engine::evaluate_function"
TELLS_PHASE = " OR ".join(
    (
        *(f"starts_with(name, '{start}')" for start in ("## ", "Optimizer.", AUTOGRAD, "FSDP::")),
        "ends_with(name, 'DataParallel.forward')",
    )
)
"""SQL that is true for names of host events which tell a phase or a module."""
FORWARD = re.compile(r"^FSDP::\w*forward|(DataParallel|FullyShardedDataParallel)\.forward$")
MARKED_FORWARD = re.compile(rf"^## forward ##$|{FORWARD.pattern}")
STEP = re.compile(r"^## optimizer ##$|^Optimizer\.step#")
NODE = re.compile(rf"^{AUTOGRAD}")
HOOKING = re.compile(rf"^{AUTOGRAD}: (?!CompiledFunctionBackward)")
"""Nodes in which Python runs as in a hook: that of what torch.compile made is a whole backward pass
(torch/_functorch/_aot_autograd/runtime_wrappers.py)."""


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

    def select(self, pattern: re.Pattern[str]) -> "Spans":
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
    nodes = spans.select(NODE)
    if not len(nodes.start) or len(spans.select(MARKED_FORWARD).start):
        return spans
    ran = events.read(
        rank,
        """
        SELECT rank, coalesce(tid, -1) AS tid, start_ns FROM event
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'cpu_op' AND device IS NULL
          AND starts_with(name, 'aten::') AND start_ns IS NOT NULL ORDER BY rank, start_ns
        """,
    )
    own = np.isin(ran["tid"], spans.select(STEP).tid)
    starts: Int64s = ran["start_ns"][own & ~nodes.intervals().contains(ran["start_ns"])]
    return replace(spans, operators=starts)


def calling(events: Events, rank: int) -> Intervals:
    """When a host is in c10d: until it has launched a call, or told a stream to wait for one."""
    found = events.read(
        rank,
        """
        SELECT rank, start_ns, start_ns + dur_ns AS end_ns FROM event
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'cpu_op' AND device IS NULL
          AND (name = 'record_param_comms' OR starts_with(name, 'c10d::'))
          AND start_ns IS NOT NULL AND dur_ns > 0 ORDER BY rank
        """,
    )
    return Intervals.of(found["start_ns"], found["end_ns"])


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
    nodes = spans.select(NODE)
    if not len(nodes.start):
        return None
    busy = nodes.intervals()
    forward = spans.select(FORWARD).start
    forward = np.unique(forward[~busy.contains(forward)]) if len(forward) else spans.operators
    passes = np.searchsorted(forward, nodes.start, side="right")
    first = np.flatnonzero(np.diff(passes, prepend=-1))
    return Intervals.of(nodes.start[first], np.maximum.reduceat(nodes.end, first))


def update_spans(spans: Spans) -> Spans:
    """When optimizers update; empty where the trace names none."""
    return after_closures(spans.select(STEP), spans.select(NODE))


def update_starts(spans: Spans) -> Int64s:
    """When optimizers begin to update, ns, sorted."""
    return np.sort(update_spans(spans).start)


def after_closures(steps: Spans, nodes: Spans) -> Spans:
    """The optimizer's steps from where the backward pass in them ends.

    A step that is given a closure (Lightning does) runs the forward and backward pass itself.
    """
    ends = np.sort(nodes.end)
    last = np.searchsorted(ends, steps.end, side="right") - 1
    inner = ends[np.maximum(last, 0)] if len(ends) else steps.start
    begin = np.where(last >= 0, np.maximum(steps.start, inner), steps.start)
    return replace(steps, start=begin)
