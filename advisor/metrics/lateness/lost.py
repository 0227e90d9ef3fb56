"""Calls that some ranks recorded and another lost: its time in them passes for its own doing.

A rank's own time is what is left of a stretch without its communication. Where the record of a
collective is missing, the time in it is left as well, and the rank seems to have been busy.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.match import widest
from advisor.metrics.timeline.intervals import Intervals
from advisor.vocabulary.operations import POINT_TO_POINT


def lost_time(
    columns: Sequence[Mapping[int, Call]], clocks: Mapping[int, Clock]
) -> dict[int, Intervals]:
    """rank -> when its peers were in calls that it has no record of, ns on the aligned clock.

    The peers of a group are those that share most of its calls; who was not read has lost nothing.
    """
    by_group: dict[str | None, list[Mapping[int, Call]]] = defaultdict(list)
    for column in columns:
        call = next(iter(column.values()))
        if call.op not in POINT_TO_POINT:
            by_group[call.group].append(column)
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for group in by_group.values():
        members = widest(group)
        for column in group:
            there = [(rank, column[rank]) for rank in members if rank in column]
            if not there or len(there) == len(members):
                continue
            begin = min(aligned(call.start, rank, clocks) for rank, call in there)
            end = max(aligned(call.end, rank, clocks) for rank, call in there)
            for rank in members:
                if rank not in column:
                    spans[rank].append((begin, end))
    return {
        rank: Intervals.of([s for s, _ in own], [e for _, e in own]) for rank, own in spans.items()
    }
