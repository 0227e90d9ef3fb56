"""How much of a rank's lateness at a collective is its own doing.

Ranks leave a collective together and go to the next one. What a rank does in between apart from
waiting for communication is its own: compute and idle time on its own clock, so that no clock needs
aligning (compute alone where gaps may hold what was not recorded). Its excess over the ranks'
median is what it is to blame for. The rest of its lateness it inherited: from a slow transfer
before, from another rank that kept it waiting.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.match import widest
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.vocabulary.operations import ROOTED

_LOOK_BACK = 2048


class Arrivals(NamedTuple):
    """Matched calls of one group at which ranks wait, in order; arrays are [call, rank], times ns.

    ``lateness`` = arrival (of a CPU's call: when it was asked for) less the ranks' median, of two
    the earlier, on the aligned clock: it serves to find reasons and is shown nowhere. ``excess`` =
    own time since the last common release, over the ranks' median; ``begin`` is where that time
    starts (own clock). ``segment`` numbers the stretches between releases.
    """

    group: str | None
    ranks: tuple[int, ...]
    columns: tuple[Mapping[int, Call], ...]
    arrival: Int64s
    begin: Int64s
    lateness: Int64s
    excess: Int64s
    segment: Int64s


def arrivals(
    group: str | None,
    columns: Sequence[Mapping[int, Call]],
    occupancy: Mapping[int, Occupancy],
    lines: Mapping[int, Timeline],
    clocks: Mapping[int, Clock],
    lost: Mapping[int, Intervals] | None = None,
) -> Arrivals | None:
    """Arrivals at the calls of one group, of the ranks that can be compared; None without any.

    ``lost`` is when a rank was in calls that it has no record of (aligned clock): what it did in
    such a stretch is not known, and no excess of its own.
    """
    if not columns:
        return None
    ranks = widest(columns)
    own = [{rank: c[rank] for rank in ranks} for c in columns if c.keys() >= set(ranks)]
    shape = (len(own), len(ranks))
    arrival: Int64s = np.empty(shape, dtype=np.int64)
    end: Int64s = np.empty(shape, dtype=np.int64)
    offset: Int64s = np.empty(shape, dtype=np.int64)
    for row, column in enumerate(own):
        for place, rank in enumerate(ranks):
            call = column[rank]
            # A kernel arrives when it starts; a CPU's collective when the program asks for it.
            came = call.start if lines[rank].on_device or call.enqueue is None else call.enqueue
            arrival[row, place], end[row, place] = came, call.end
            offset[row, place] = aligned(came, rank, clocks) - came
    order = np.argsort((arrival + offset).min(axis=1), kind="stable")
    arrival, end, offset = arrival[order], end[order], offset[order]
    own = [own[index] for index in order]
    blocked = np.empty(shape, dtype=bool)
    for place, rank in enumerate(ranks):
        blocked[:, place] = ~occupancy[rank].compute.contains(end[:, place] - 1)
    rooted = [next(iter(column.values())).op in ROOTED for column in own]
    blocked[rooted] = False  # some leave early
    release = _releases(arrival, end, blocked)
    begin = np.where(release[:, None] >= 0, end[np.maximum(release, 0)], arrival)
    spent = np.empty(shape, dtype=np.int64)
    for place, rank in enumerate(ranks):
        window = arrival[:, place] - begin[:, place]
        own_time = occupancy[rank]
        if lines[rank].gaps_are_idle:
            waiting = own_time.exposed_comm.covered(begin[:, place], arrival[:, place])
            spent[:, place] = window - waiting
        else:
            spent[:, place] = own_time.compute.covered(begin[:, place], arrival[:, place])
    late: Int64s = arrival + offset
    lateness: Int64s = late - _median(late)
    # Before the first release there is nothing to compare with but the clocks, and what each rank
    # is late with no doing of its own in the other calls (as the first stage of a pipeline is).
    known = release >= 0
    excess = spent - _median(spent)
    if known.any():
        lateness_by_order = np.median((lateness - excess)[known], axis=0).astype(np.int64)
        excess[~known] = lateness[~known] - np.maximum(lateness_by_order, 0)
    else:
        excess = lateness
    segment = np.cumsum(np.diff(release, prepend=-2) != 0) - 1
    for place, rank in enumerate(ranks):
        if lost and rank in lost:
            # All of the stretch: of calls that are alike, another one may pass for the lost one.
            first = np.flatnonzero(np.diff(segment, prepend=-1))
            low = np.minimum.reduceat(begin[:, place] + offset[:, place], first)
            high = np.maximum.reduceat(end[:, place] + offset[:, place], first)
            unknown = (lost[rank].covered(low, high) > 0)[segment]
            excess[unknown, place] = np.minimum(excess[unknown, place], 0)
    return Arrivals(group, ranks, tuple(own), arrival, begin, lateness, excess, segment)


def _median(values: Int64s) -> Int64s:
    """Median over ranks, as a column; of two the earlier, so that only one of them is late."""
    ordered = np.sort(values, axis=1)
    middle: Int64s = ordered[:, (values.shape[1] - 1) // 2][:, None]
    return middle


def _releases(arrival: Int64s, end: Int64s, blocked: NDArray[np.bool_]) -> Int64s:
    """For each call the latest one that all ranks had left and most had waited for; or -1."""
    release = np.full(len(arrival), -1, dtype=np.int64)
    mostly = blocked.mean(axis=1) >= 0.5
    known = -1
    for row in range(len(arrival)):
        low = max(known + 1, row - _LOOK_BACK, 0)
        if low < row:
            done = mostly[low:row] & (end[low:row] <= arrival[row]).all(axis=1)
            found = np.flatnonzero(done)
            if len(found):
                known = low + int(found[-1])
        release[row] = known
    return release
