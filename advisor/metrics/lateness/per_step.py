"""What a rank has in a used step, and by how much that is more than its peers have."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import COMPUTE, Timeline
from advisor.store.columns import MISSING

MORE_OPERATORS = 1.02
"""A rank that runs this many times the others' operators has more of them to do, if they explain
what it computes longer: one more on a slow rank does not. What differs by no more is as much."""


def more_per_step(
    rank: int, items: Sequence[Arrivals], of_rank: Callable[[int], float]
) -> tuple[float, float]:
    """By how much a rank's figure exceeds the median of a group's others, and by what share."""
    groups = {item.ranks for item in items if rank in item.ranks and len(item.ranks) > 1}
    own = {r: of_rank(r) for r in set().union(*groups)}
    usual = [float(np.median([own[r] for r in group if r != rank])) for group in groups]
    return max(
        ((own[rank] - median, own[rank] / median - 1 if median else 0.0) for median in usual),
        default=(0.0, 0.0),
    )


def covered_per_step(spent: Intervals, steps: Steps) -> float:
    """How much of a used step some times of a rank cover, ns."""
    start, end = steps.used_windows
    return float(spent.covered(start, end).mean()) if start else 0.0


def idle_per_step(occupancy: Occupancy, steps: Steps) -> float:
    """How long a rank's device runs nothing in a used step, ns."""
    start, end = steps.used_windows
    runs = occupancy.busy.covered(start, end)
    return float((np.subtract(end, start) - runs).mean()) if start else 0.0


def unasked(line: Timeline, occupancy: Occupancy) -> Intervals:
    """When a rank computed nothing and its host had not launched what comes next: its device idles,
    or transfers with nothing beside."""
    low, high = occupancy.compute.end[:-1], occupancy.compute.start[1:]
    computes = np.flatnonzero(line.kind == COMPUTE)
    at = computes[np.minimum(np.searchsorted(line.start[computes], high), len(computes) - 1)]
    launch = np.where(line.launch[at] == MISSING, low, line.launch[at]) if len(low) else low
    late = launch > low
    return Intervals.of(low[late], np.minimum(launch, high)[late])


def operators_begun(line: Timeline, begin: ArrayLike, end: ArrayLike) -> Int64s:
    """How many operators a rank begins between each of some times, ns."""
    begun, until = (np.asarray(at, dtype=np.int64) for at in (begin, end))
    at = line.compute_starts
    counts: Int64s = np.searchsorted(at, until) - np.searchsorted(at, begun)
    return counts


def operators_per_step(line: Timeline, steps: Steps) -> float:
    """How many operators a rank begins in a used step."""
    start, end = steps.used_windows
    return float(operators_begun(line, start, end).mean()) if start else 0.0
