"""Waiting for the last rank against transferring data, and the bandwidth that follows.

For a matched call, on the aligned clock: wait = from a rank's own start to the last rank's start;
transfer = from there to its own end (METRICS sections 3 and 4). Where some of a call's ranks were
not read (a file is missing or cut), the last of those that were stands in: the wait is then at
least that, the transfer at most, and the call's own time is the shortest duration seen, an upper
bound.
"""

import math
from collections.abc import Mapping, Sequence

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group
from advisor.vocabulary.operations import ROOTED

# Clocks of hosts are known to about this, and so is who of two came last.
_TOGETHER_NS = 500_000


def split_waiting(
    columns: Sequence[Mapping[int, Call]],
    groups: Mapping[str, Group],
    clocks: Mapping[int, Clock],
) -> None:
    """Fill wait, transfer, t_is, last_rank, algbw and busbw of matched calls."""
    for column in columns:
        some = next(iter(column.values()))
        # Where no file tells groups apart, calls of several may stand in one column.
        whole = len(column) > 1 and len(column) >= (_expected(some, groups) or math.inf)
        if whole or (len(column) > 1 and not some.is_message):
            _compare(column, clocks)
        if not whole:
            shortest = min(call.end - call.start for call in column.values())
            for call in column.values():
                call.t_is = "upper bound"
                if call.wait is None:
                    call.transfer = shortest
            slowest = shortest
        else:
            slowest = max(call.transfer or 0 for call in column.values())
        for call in column.values():
            if call.bytes and slowest > 0:
                call.algbw = call.bytes / slowest
                factor = call.factor
                call.busbw = None if factor is None else call.algbw * factor


def _expected(call: Call, groups: Mapping[str, Group]) -> int | None:
    if call.is_message:
        return 2
    group = groups.get(call.group) if call.group is not None else None
    if group is not None and group.ranks is not None:
        return len(group.ranks)
    return call.group_size


def _compare(column: Mapping[int, Call], clocks: Mapping[int, Clock]) -> None:
    starts = {rank: aligned(call.start, rank, clocks) for rank, call in column.items()}
    came = max(starts.values())
    # Of those that came together the one whose own span is the shortest: that needs no clock.
    last_rank = min(
        (rank for rank in starts if came - starts[rank] <= _TOGETHER_NS),
        key=lambda rank: (column[rank].end - column[rank].start, rank),
    )
    for rank, call in column.items():
        duration = call.end - call.start
        call.wait = min(came - starts[rank], duration)
        if call.op in ROOTED and call.wait == duration:
            call.wait = 0  # it was done before the last one came: a broadcast's root need not wait
        call.transfer = duration - call.wait
        call.t_is = "matched"
        call.last_rank = last_rank
