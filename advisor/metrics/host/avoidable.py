"""Compute that a setting or another kernel spares: told from what operators launch, in which order.

Six kinds. ``recomputed``: kernels of the forward pass that run again inside autograd's nodes, as
activation checkpointing makes them. ``scores``: what reads and writes the scores of attention
between its two batched products, which a fused kernel keeps on the chip. ``updates``: one operator
after another on one parameter after another, each a small kernel, where one kernel takes many.
``layouts``: what cuDNN copies between NCHW and NHWC around convolutions on tensor cores.
``passes``: an optimizer that goes through all parameters once for each operation, where one kernel
does all. ``pointwise``: elementwise kernels in a row on a busy device, which a compiler makes one.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.metrics.collectives.spans import NODE, Spans
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.intervals import Bools, Int64s, Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline
from advisor.store.columns import MISSING
from advisor.store.events import Events

# So many kernels in a row as in the forward pass are no accident of its backward formulas.
_IN_A_ROW = 4
# Between the products of eager attention: scale, bias, mask, softmax, a cast, dropout.
_BETWEEN = 8
# A loop over parameters: no layer has so many kernels without a matrix product, and an optimizer
# written in single operators takes up to 16 for each parameter (torch.optim's Adam about 10).
_FEWEST_UPDATES, _LONGEST_PERIOD = 100, 16
# What a kernel takes however little it does: start and end of its blocks (an empty kernel takes 2
# to 3 us in Kineto's traces), and at most the launch of the next one (5 to 10 us, with Python 20).
_EMPTY_NS, _LAUNCH_NS = 2_500, 20_000

# The range that torch.optim records around a step: a loop inside it is the optimizer's own doing.
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
# Passes of torch.optim over lists of tensors take what they read and write. Of the one named, which
# reads and writes three (two) of a parameter's size, a fused kernel takes this many: Adam reads
# parameter, gradient and two moments and writes three of them; SGD has one buffer of momentum.
_FUSED = {
    "Adam": ("aten::_foreach_addcmul_", 7 / 3),
    "AdamW": ("aten::_foreach_addcmul_", 7 / 3),
    "SGD": ("aten::_foreach_mul_", 5 / 2),
}
_SQL = """
    WITH op AS MATERIALIZED (
      SELECT rank, external_id, any_value(name) AS op, any_value(input_dims) AS dims
      FROM event LEFT JOIN comm_event USING (run, rank, event_id)
      WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'cpu_op' AND external_id > 0
        AND NOT starts_with(name, 'fsdp::') -- copies of what was gathered, whatever computes
      GROUP BY ALL),
    name AS MATERIALIZED (SELECT DISTINCT op FROM op),
    known AS MATERIALIZED (
      SELECT op, op IN ('aten::bmm', 'aten::baddbmm') AS batched,
        regexp_matches(op, '^aten::(\\w*[a-z0-9]_|(linalg_vector_)?norm)$')
          AND NOT contains(op, '_foreach_') AS of_parameter,
        regexp_matches(op, '(mm|linear|convolution)\\w*$') AS product,
        regexp_matches(op, '(?i)softmax') AND NOT contains(op, '_log_softmax') AS softmax,
        EXISTS (FROM name b WHERE b.op <> n.op AND (starts_with(b.op, n.op || '_backward')
          OR b.op = n.op || 'Backward'
          OR contains(n.op, 'forward') AND b.op = replace(n.op, 'forward', 'backward'))) AS forward
      FROM name n)
    SELECT k.rank, event_id, (hash(k.name, op, dims) // 2)::BIGINT AS kernel,
      (hash(op) // 2)::BIGINT AS operator, batched::INT AS batched, product::INT AS product,
      of_parameter::INT AS of_parameter, softmax::INT AS softmax, forward::INT AS forward, op,
      (contains(k.name, 'elementwise_kernel') AND NOT contains(k.name, 'Fill'))::INT AS pointwise
    FROM event k JOIN op USING (rank, external_id) JOIN known USING (op)
    WHERE run = $1 AND k.rank BETWEEN $2 AND $3 AND k.class = 'compute' AND device IS NOT NULL
    ORDER BY k.rank, event_id
"""
# cudnn::ops::nchwToNhwcKernel and back, in Kineto traces of PyTorch: told by their names alone.
_LAYOUTS = """
    SELECT rank, event_id FROM event
    WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'compute' AND device IS NOT NULL
      AND (contains(name, 'nchwToNhwc') OR contains(name, 'nhwcToNchw')) ORDER BY ALL
"""
# The class of an optimizer stands in the range that torch.optim records around its step.
_PASSES = """
    SELECT o.rank, o.name, coalesce(o.tid, -1) AS tid, o.start_ns, o.start_ns + o.dur_ns AS end_ns,
      split_part(replace(s.name, '.', '#'), '#', 3) AS optimizer
    FROM event o ASOF JOIN (
        FROM event WHERE starts_with(name, 'Optimizer.step#') AND device IS NULL) s
      ON s.run = o.run AND s.rank = o.rank AND s.tid = o.tid AND s.start_ns <= o.start_ns
    WHERE o.run = $1 AND o.rank BETWEEN $2 AND $3 AND o.class = 'cpu_op'
      AND starts_with(o.name, 'aten::_foreach_') AND s.start_ns + s.dur_ns > o.start_ns
    ORDER BY o.rank, o.start_ns
"""


def avoidable_rows(
    events: Events, line: Timeline, spans: Spans, steps: Steps, step_of: Int64s
) -> list[dict[str, Any]]:
    """Rows of ``avoidable_compute`` of one GPU: means over the steps that count."""
    used = [step.number for step in steps.steps if step.used]
    at = np.flatnonzero((line.launch != MISSING) & np.isin(step_of, used))
    if not line.on_device or not len(at):
        return []
    at = at[np.argsort(line.launch[at], kind="stable")]
    start, end = line.start[at], line.end[at]
    sends = line.kind == COMM
    beside = Intervals.of(line.start[sends], line.end[sends])

    def row(kind: str, chosen: Bools, ns: int, rest_ns: int | None, operators: Any) -> None:
        names, calls = np.unique(operators, return_counts=True)
        busy = Intervals.of(start[chosen], end[chosen])
        rows.append(
            {
                "run": events.run,
                "rank": line.rank,
                "kind": kind,
                "kernels": round(int(chosen.sum()) / len(used)),
                "ns": round(ns / len(used)),
                "rest_ns": None if rest_ns is None else round(rest_ns / len(used)),
                "bare_share": 1 - (busy & beside).length / max(busy.length, 1),
                "operator": str(names[np.argmax(calls)]) if len(names) else None,
                "checkpoint": any("CheckpointFunction" in name for name in spans.names),
            }
        )

    rows: list[dict[str, Any]] = []
    layouts = np.isin(line.event_id[at], events.read(line.rank, _LAYOUTS)["event_id"])
    if layouts.any():
        row("layouts", layouts, Intervals.of(start[layouts], end[layouts]).length, None, [])
    for optimizer, chosen, fused in _passes(events, line, at):
        spared = max(0, int((end - start)[chosen].sum()) - fused)
        row("passes", chosen, spared, fused, [optimizer])
    found = events.read(line.rank, _SQL)
    place = np.searchsorted(found["event_id"], line.event_id[at])
    place = np.minimum(place, max(len(found["event_id"]) - 1, 0))
    if not len(found["event_id"]):
        return rows
    told = (found["event_id"][place] == line.event_id[at]) & (line.kind[at] == COMPUTE)
    inside = _inside(spans.select(NODE), line.thread[at], line.launch[at])

    def flag(name: str) -> Bools:
        chosen: Bools = told & (found[name][place] == 1)
        return chosen

    def launched(kind: str, chosen: Bools, ns: int, rest_ns: int | None) -> None:
        row(kind, chosen, ns, rest_ns, found["op"][place[chosen]].astype(str))

    kernel, operator = found["kernel"][place], np.where(told, found["operator"][place], 0)
    again = _again(kernel, told & ~inside, told & inside, flag("forward"))
    if again.any():
        launched("recomputed", again, Intervals.of(start[again], end[again]).length, None)
    between, products = _scores(told, flag("softmax"), flag("batched"))
    if between.any():
        spared = Intervals.of(start[between], end[between]).length
        kept = Intervals.of(start[products], end[products]).length
        launched("scores", between, spared, kept)
    loop = _updates(operator, told & ~inside & ~flag("product"), flag("of_parameter"))
    if loop.any():
        took = (end - start)[loop]
        spared = int(np.minimum(took, _EMPTY_NS).sum()) + _pauses(start[loop], end[loop])
        step = spans.select(_OPTIMIZER)
        of_step = _inside(step, line.thread[at], line.launch[at])[loop]
        own = step.name(0) if of_step.any() else ""
        names = np.where(of_step, own, found["op"][place[loop]].astype(str))
        row("updates", loop, spared, int(np.maximum(took - _EMPTY_NS, 0).sum()), names)
    chain, least = _chained(line, at, flag("pointwise") & ~flag("of_parameter"))
    if least.any():
        took_ns = Intervals.of(start[chain], end[chain]).length
        launched("pointwise", chain, int(least.sum()), took_ns)
    return rows


def _passes(events: Events, line: Timeline, at: Int64s) -> Iterator[tuple[str, Bools, int]]:
    """Passes of each optimizer over lists, and what one fused kernel takes; by launches inside the
    operators, as slow paths launch from operators of single tensors."""
    lists = events.read(line.rank, _PASSES)
    if not len(lists["tid"]):
        return
    place = np.searchsorted(lists["start_ns"], line.launch[at], side="right") - 1
    inside = (line.launch[at] <= lists["end_ns"][place]) & (line.thread[at] == lists["tid"][place])
    inside &= place >= 0
    for optimizer, (yardstick, passes) in _FUSED.items():
        chosen = inside & (lists["optimizer"][place] == optimizer)
        known = at[chosen & (lists["name"][place] == yardstick)]
        if len(known):
            yield optimizer, chosen, round(passes * int((line.end - line.start)[known].sum()))


def _inside(nodes: Spans, thread: Int64s, launch: Int64s) -> Bools:
    """Which launches are of autograd's nodes, on the threads of these."""
    result = np.zeros(len(launch), dtype=bool)
    for tid in np.unique(nodes.tid):
        own, on_it = thread == tid, nodes.tid == tid
        result[own] = Intervals.of(nodes.start[on_it], nodes.end[on_it]).contains(launch[own])
    return result


def _again(kernel: Int64s, forward: Bools, backward: Bools, has_backward: Bools) -> Bools:
    """Kernels of the backward pass in a row that the forward pass has too, where one is of an
    operator with a backward of its own: that one is no formula of a gradient."""
    result = np.zeros(len(kernel), dtype=bool)
    before, later = np.flatnonzero(forward), np.flatnonzero(backward)
    if min(len(before), len(later)) < _IN_A_ROW:
        return result
    alike = np.isin(_rows_of(kernel[later]), _rows_of(kernel[before]))
    marked = np.convolve(alike, np.ones(_IN_A_ROW)) > 0
    for first, last in _runs(marked):
        if has_backward[later[first:last]].any():
            result[later[first:last]] = True
    return result


def _rows_of(kernel: Int64s) -> Any:
    """A number for each ``_IN_A_ROW`` kernels that follow each other."""
    count = len(kernel) - _IN_A_ROW + 1
    numbers = np.zeros(count, dtype=np.uint64)
    for place in range(_IN_A_ROW):
        numbers = numbers * np.uint64(1_000_003) + kernel[place : place + count].astype(np.uint64)
    return numbers


def _runs(marked: Bools) -> list[tuple[int, int]]:
    """First and end of each stretch that is marked."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _scores(told: Bools, softmax: Bools, batched: Bools) -> tuple[Bools, Bools]:
    """Kernels between the two batched products around a softmax, and the products beside them."""
    computes = np.flatnonzero(told)
    is_product = batched[computes]
    products, soft = np.flatnonzero(is_product), np.flatnonzero(softmax[computes])
    between, beside = np.zeros((2, len(computes)), dtype=bool)
    following = np.searchsorted(products, soft)
    for at in following[(following > 0) & (following < len(products))].tolist():
        low, high = products[at - 1], products[at]
        if high - low - 1 <= _BETWEEN:
            between[low + 1 : high] = True
            beside[max(low - 1, 0) : high + 2] = True
    result = np.zeros((2, len(told)), dtype=bool)
    result[0, computes], result[1, computes] = between, beside & is_product
    return result[0], result[1]


def _updates(operator: Int64s, chosen: Bools, of_parameter: Bools) -> Bools:
    """Kernels of loops over parameters: operators that come again and again in the same order, half
    of them in place or a norm, with no matrix product, copy or collective between."""
    result = np.zeros(len(operator), dtype=bool)
    for period in range(1, _LONGEST_PERIOD + 1):
        if len(operator) <= period:
            break
        alike = (operator[period:] == operator[:-period]) & chosen[period:] & chosen[:-period]
        for first, last in _runs(alike):
            own = slice(first, last + period)
            if last - first + period >= _FEWEST_UPDATES and chosen[own].all():
                result[own] |= 2 * of_parameter[own].sum() >= last - first + period
    return result


def _chained(line: Timeline, at: Int64s, pointwise: Bools) -> tuple[Bools, Int64s]:
    """Pointwise kernels right before another one on their stream, and what each takes at least with
    the pause behind it: nothing where the next was launched later and the host sets the pace."""
    chained, least = np.zeros(len(at), dtype=bool), np.zeros(len(at), dtype=np.int64)
    work = np.flatnonzero(line.kind[at] == COMPUTE)
    before, after = work[:-1], work[1:]
    alike = line.stream[at[after]] == line.stream[at[before]]
    chained[before] = pointwise[before] & pointwise[after] & alike
    took, pause = line.end - line.start, line.start[at[after]] - line.end[at[before]]
    queued = chained[before] & (line.launch[at[after]] < line.end[at[before]])
    least[before] = queued * (
        np.minimum(took[at[before]], _EMPTY_NS) + np.clip(pause, 0, _LAUNCH_NS)
    )
    return chained, least


def _pauses(start: Int64s, end: Int64s) -> int:
    """What the device idles between neighbouring kernels, each time no longer than a launch."""
    return int(np.clip(start[1:] - end[:-1], 0, _LAUNCH_NS).sum())
