"""How much sooner a step would end if some transfers were shorter: a small replay per rank.

A rank's transfers share its link, so within a stretch of uninterrupted transferring they are taken
one after the other, each starting when it is ready and the one before is done. The stretch is
replayed with the measured and with the shorter times; what the end moves is saved, as far as the
stretch was not hidden under compute.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.statistics import mean_interval
from advisor.store.columns import MISSING


def saved_per_step(
    calls: Mapping[int, Sequence[Call]],
    exclusive: Mapping[int, Mapping[int, float]],
    shorter: Mapping[tuple[int, int], float],
    occupancy: Mapping[int, Occupancy],
    steps: Mapping[int, Steps],
) -> dict[int, float]:
    """Step -> time saved, ns, in used steps: the median of the ranks that make such calls. The
    others wait for them.

    ``shorter`` gives (rank, event_id) -> time the call takes off its exclusive time.
    """
    by_step: dict[int, list[float]] = {}
    concerned = {rank for rank, _ in shorter}
    for rank, own in sorted(calls.items()):
        if rank not in concerned:
            continue
        numbers = [s.number for s in steps[rank].steps if s.used]
        saved = dict.fromkeys(numbers, 0.0)
        for step, value in _rank(rank, own, exclusive[rank], shorter, occupancy[rank], steps[rank]):
            if step in saved:
                saved[step] += value
        for step, value in saved.items():
            by_step.setdefault(step, []).append(value)
    return {step: float(np.median(values)) for step, values in sorted(by_step.items())}


def interval(per_step: Mapping[int, float]) -> tuple[float, float, float]:
    """Mean over steps with a 95 % interval."""
    values = np.array(list(per_step.values()), dtype=np.float64)
    if not len(values):
        return 0.0, 0.0, 0.0
    low, high = mean_interval(values)
    return float(values.mean()), low, high


def _rank(
    rank: int,
    own: Sequence[Call],
    exclusive: Mapping[int, float],
    shorter: Mapping[tuple[int, int], float],
    occupancy: Occupancy,
    steps: Steps,
) -> list[tuple[int, float]]:
    moving = [c for c in own if c.end > c.start + (c.wait or 0)]
    if not moving:
        return []
    start: Int64s = np.array([c.start + (c.wait or 0) for c in moving], dtype=np.int64)
    end: Int64s = np.array([c.end for c in moving], dtype=np.int64)
    stretches = Intervals.of(start, end)
    stretch = np.searchsorted(stretches.start, start, side="right") - 1
    exposed = occupancy.exposed_comm.covered(stretches.start, stretches.end)
    number = steps.by_window(stretches.end - 1)
    result = []
    order = np.lexsort((start, stretch))
    bounds = np.append(np.flatnonzero(np.diff(stretch[order], prepend=-1)), len(order))
    for low, high in itertools.pairwise(bounds):
        members = order[low:high]
        place = int(stretch[members[0]])
        cuts = [shorter.get((rank, moving[i].event_id), 0.0) for i in members]
        if number[place] == MISSING or not any(cuts):
            continue
        before = after = float("-inf")
        for index, cut in zip(members, cuts, strict=True):
            call = moving[index]
            # A job that waited in the backend's queue was ready when the program asked for it.
            asked = call.asked
            ready = float(min(max(asked, int(stretches.start[place])), start[index]))
            took = exclusive[call.event_id]
            before = max(before, ready) + took
            after = max(after, ready) + max(took - cut, 0.0)
        result.append((int(number[place]), min(max(before - after, 0.0), float(exposed[place]))))
    return result
