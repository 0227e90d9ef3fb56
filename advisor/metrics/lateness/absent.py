"""Calls that nobody waited for in who was not read: those whose time their bytes alone explain.

Waiting for a late rank takes as long as that rank works longer, whatever the call moves. Where the
calls that most compute lies before move their bytes as fast as those that none does, nobody who was
not read came late to them: what they took is transfer, as if all ranks had been read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from advisor.metrics.collectives.call import REACHED, Call
from advisor.metrics.collectives.groups import Group
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.statistics import Floats
from advisor.vocabulary.operations import ROOTED

_ALIKE = 0.2
"""Rates differ by this share: twice what nccl-tests' tables are off what sizes and rates say
(benchmarks/calibration.py: 0.11)."""
_MOST = 0.9
"""Of the bytes: the rate that so many move at or below is the links' own. Of the calls' time: what
is left may be the edges of a recording, not somebody's lateness."""
_APART = 2.0
"""Behind that much more compute a byte a slow rank makes calls wait that much longer a byte."""
_HALF = 0.5
FEWEST_CALLS = 8


def settle_absent(
    columns: Sequence[Mapping[int, Call]],
    groups: Mapping[str, Group],
    occupancy: Mapping[int, Occupancy],
) -> None:
    """Set ``t_is`` of devices' calls of which the fewer ranks were not read, and nobody waited for
    these: the upper bound of their time is the time."""
    by_group: dict[str, list[Mapping[int, Call]]] = defaultdict(list)
    for column in columns:
        call = next(iter(column.values()))
        group = groups.get(call.group) if call.group is not None else None
        ranks = group.ranks if group is not None and group.ranks else ()
        lacks_some = len(column) < len(ranks) < 2 * len(column)
        if lacks_some and call.bytes and call.factor and not call.is_message:
            by_group[call.group or ""].append(column)
    for own in by_group.values():
        for column in _settled(own, occupancy):
            for call in column.values():
                call.t_is = REACHED


def _settled(
    columns: Sequence[Mapping[int, Call]], occupancy: Mapping[int, Occupancy]
) -> list[Mapping[int, Call]]:
    """Of one group's calls those that took what their bytes explain; none where others hold more
    than a tenth of the time or most of the compute lies before them."""
    told = [column for column in columns if next(iter(column.values())).op not in ROOTED]
    if len(told) < FEWEST_CALLS:
        return []
    moved: Floats = np.array([_bus_bytes(column) for column in told])
    took: Floats = np.array([max(_shortest(column), 1) for column in told], dtype=np.float64)
    rate = moved / took
    order = np.argsort(rate)
    reached = np.cumsum(moved[order])
    own = rate[order][np.searchsorted(reached, _MOST * reached[-1])]
    alike = np.abs(np.log(rate / own)) <= _ALIKE
    before = _computed(told, occupancy)
    least, most = np.nanquantile((before / moved)[alike], (1 - _MOST, _MOST))
    if (
        not most > _APART * least
        or np.nansum(before[alike]) <= _HALF * np.nansum(before)
        or took[alike].sum() < _MOST * took.sum()
    ):
        return []
    return [column for column, is_alike in zip(told, alike, strict=True) if is_alike]


def _bus_bytes(column: Mapping[int, Call]) -> float:
    call = next(iter(column.values()))
    return (call.bytes or 0) * (call.factor or 0.0)


def _shortest(column: Mapping[int, Call]) -> int:
    """What the call takes the rank that comes last of those read, ns."""
    return min(call.end - call.start for call in column.values())


def _computed(columns: Sequence[Mapping[int, Call]], occupancy: Mapping[int, Occupancy]) -> Floats:
    """What the ranks compute from the start of the group's call before to the call's own, ns: mean
    over ranks. Of a rank's first call it is not known: NaN."""
    sums: Floats = np.zeros(len(columns))
    for rank in {rank for column in columns for rank in column}:
        mine = [(column[rank].start, n) for n, column in enumerate(columns) if rank in column]
        mine.sort()
        begins = np.array([one[0] for one, _ in pairwise(mine)], dtype=np.int64)
        ends = np.array([other[0] for _, other in pairwise(mine)], dtype=np.int64)
        sums[mine[0][1]] = np.nan
        sums[[n for _, n in mine[1:]]] += occupancy[rank].compute.covered(begins, ends)
    mean: Floats = sums / np.array([len(column) for column in columns])
    return mean
