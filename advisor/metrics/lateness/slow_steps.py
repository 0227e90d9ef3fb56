"""Devices that are slow in some steps: as many kernels take longer there than in the others."""

from collections.abc import Mapping

import numpy as np

from advisor.metrics.lateness.per_step import MORE_OPERATORS, operators_begun
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.timeline import Timeline

# Once may be anything; a clock that is held down stays so for longer than a step.
_FEWEST = 2


def slow_steps(
    lines: Mapping[int, Timeline], occupancy: Mapping[int, Occupancy], steps: Mapping[int, Steps]
) -> dict[int, dict[int, float]]:
    """rank -> {step: how many times as long it computes there as it usually does}.

    What all ranks compute longer in a step is left out. The controls are all other steps of the
    rank and every step of every other: its slow ones lie farther above the longest of these than
    these lie apart, and are less than half of its steps. So where lengths vary, which they do on
    all ranks, nobody is slow; who runs more kernels there has more work.
    """
    numbers = {rank: tuple(s.number for s in own.steps if s.used) for rank, own in steps.items()}
    shared = max(numbers.values(), key=len, default=())
    ranks = [rank for rank, line in lines.items() if line.on_device and numbers[rank] == shared]
    if len(ranks) < 2 or len(shared) <= 2 * _FEWEST:
        return {}
    computes, begun = [], []
    for rank in ranks:
        start, end = steps[rank].used_windows
        computes.append(occupancy[rank].compute.covered(start, end))
        begun.append(operators_begun(lines[rank], start, end))
    times, kernels = np.array(computes, dtype=np.float64), np.array(begun, dtype=np.float64)
    usual, usual_kernels = (np.median(of, axis=1, keepdims=True) for of in (times, kernels))
    if not (usual > 0).all():
        return {}
    times /= usual
    times /= np.median(times, axis=0)
    as_many = kernels <= MORE_OPERATORS * usual_kernels
    found = {}
    for place, rank in enumerate(ranks):
        others = np.delete(times, place, axis=0)
        slow = (times[place] > others.max()) & as_many[place]
        if not _FEWEST <= slow.sum() < len(shared) / 2:
            continue
        controls = np.append(others, times[place, ~slow])
        if times[place, slow].min() - controls.max() > controls.max() - controls.min():
            found[rank] = {
                shared[at]: round(float(times[place, at]), 2) for at in np.flatnonzero(slow)
            }
    return found
