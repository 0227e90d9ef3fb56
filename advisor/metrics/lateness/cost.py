"""What the others wait for a late rank, step by step: its own excess of each call's waiting."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.statistics import mean_interval

ByStep = dict[int, dict[int, float]]
_SURE = 0.05


def cost_of(
    values: NDArray[np.float64],
    usual: NDArray[np.float64] | None,
    own_excess: float,
    *,
    significant: bool,
) -> tuple[int, float, float]:
    """What a rank's lateness costs per step, with its 95 % interval, ns.

    ``values`` are of this rank and step by step, ``usual`` the median of the other ranks.
    """
    if significant and usual is not None:
        # Everybody is last at times; only what exceeds that is this rank's.
        values = values - usual
    mean = float(values.mean()) if len(values) else 0.0
    low, high = mean_interval(values)
    if len(values) < 2:
        low, high = 0.5 * mean, 1.5 * mean  # one step shows no spread
    if significant:
        # Noise of the others hides part of the waiting; its whole excess bounds what can be won.
        high = max(high, own_excess)
    return round(max(mean, 0.0)), low, high


def is_sure(cost: int, low: float) -> bool:
    """Whether the low end of a cost is a part of it: below that a few steps hold all, whatever a
    rank that is behind once is last in. Such a pause is no habit."""
    return low > _SURE * cost


def costs_by_step(
    items: Sequence[Arrivals],
    steps_of: Mapping[int, Steps],
    occupancy: Mapping[int, Occupancy],
    members: Sequence[int],
    moving: Mapping[int, Intervals],
) -> tuple[ByStep, ByStep]:
    """late rank -> {step: exposed waiting that its own excess causes, mean over the others, ns}.

    Of a call's waiting, the last rank's own excess is what it is to blame for, at most. All of it
    is what a step may gain (METRICS' cost, the sum of all waits, is in view ``late_rank``); the
    second mapping leaves out what a peer transfers in other calls meanwhile, which is transfer in
    every breakdown (METRICS section 3): what the peer waits.
    """
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for item in items:
        excess = {rank: item.excess[:, place] for place, rank in enumerate(item.ranks)}
        for row, column in enumerate(item.columns):
            last = column[item.ranks[0]].last_rank
            if last not in excess:
                continue  # a rank that was left out, because its file is cut
            guilt = int(excess[last][row])
            for rank, call in column.items():
                if rank == last or not call.wait or guilt <= 0:
                    continue
                arrived = call.start + call.wait
                spans[last, rank].append((arrived - min(call.wait, guilt), arrived))
    steps = {rank: [s for s in steps_of[rank].steps if s.used] for rank in members}
    numbers = sorted({s.number for own in steps.values() for s in own})
    costs: ByStep = {rank: dict.fromkeys(numbers, 0.0) for rank in members}
    waits: ByStep = {rank: dict.fromkeys(numbers, 0.0) for rank in members}
    shared = dict.fromkeys(numbers, 0)
    for rank in members:
        for step in steps[rank]:
            shared[step.number] += 1
    for (last, rank), found in spans.items():
        own = Intervals.of([s for s, _ in found], [e for _, e in found])
        exposed = own - occupancy[rank].compute
        windows = steps[rank]
        low, high = [s.start for s in windows], [s.end for s in windows]
        for found_by, part in ((costs, exposed), (waits, exposed - moving[rank])):
            for step, value in zip(windows, part.covered(low, high), strict=True):
                others = max(shared[step.number] - 1, 1)
                found_by[last][step.number] += float(value) / others
    return costs, waits
