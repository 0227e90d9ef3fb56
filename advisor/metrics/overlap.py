"""The price of overlap: the same kernels beside communication and without (METRICS section 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.metrics.breakdown import Occupancy
from advisor.metrics.robust import bootstrap
from advisor.metrics.steps import Steps
from advisor.metrics.tables import read
from advisor.metrics.timeline import COMPUTE, Timeline

# Seen this often each way, a kernel's medians can be compared.
_FEWEST = 3
# Kernels shorter than this are dominated by their launch.
_SHORTEST_NS = 5_000
# Under communication: nine tenths of it; alone: none.
_COVERED = 0.9


def overlap_row(
    con: Any, run: str, line: Timeline, occupancy: Occupancy, steps: Steps
) -> dict[str, Any] | None:
    """The row of ``overlap_slowdown`` of one GPU; None without kernels seen both ways."""
    if not line.on_device or not len(occupancy.comm):
        return None
    names = read(
        con,
        "SELECT event_id, dense_rank() OVER (ORDER BY name) AS kernel FROM event "
        "WHERE run = ? AND rank = ? AND class = 'compute' AND device IS NOT NULL "
        "ORDER BY event_id",
        [run, line.rank],
    )
    chosen = np.flatnonzero((line.kind == COMPUTE) & (line.end - line.start >= _SHORTEST_NS))
    if not len(chosen):
        return None
    start, end = line.start[chosen], line.end[chosen]
    kernel = names["kernel"][np.searchsorted(names["event_id"], line.event_id[chosen])]
    duration = end - start
    covered = occupancy.comm.covered(start, end)
    under, alone = covered >= _COVERED * duration, covered == 0
    ratios, weights, calls = [], [], 0
    order = np.argsort(kernel, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(kernel[order])) + 1):
        with_comm, without = duration[own[under[own]]], duration[own[alone[own]]]
        if len(with_comm) < _FEWEST or len(without) < _FEWEST:
            continue
        typical = float(np.median(without))
        ratios.append(float(np.median(with_comm)) / typical)
        # Weighted by the time these calls would have taken alone.
        weights.append(len(with_comm) * typical)
        calls += len(with_comm)
    if not ratios:
        return None
    pairs = np.stack([ratios, weights], axis=1)
    slowdown = float(np.average(pairs[:, 0], weights=pairs[:, 1]))
    low, high = bootstrap(pairs, lambda p: float(np.average(p[:, 0], weights=p[:, 1])))
    count = max(sum(s.complete for s in steps.steps), 1)
    return {
        "run": run,
        "rank": line.rank,
        "kernels": len(ratios),
        "calls_under": calls,
        "slowdown": slowdown,
        "slowdown_low": low,
        "slowdown_high": high,
        "cost_ns_per_step": round((slowdown - 1) * float(pairs[:, 1].sum()) / count),
    }
