"""Process groups that a recording does not name (torch before 2.4), as far as its calls tell them.

A batched send or receive names its peer by the place in the group: who sends to 1 first is stage 0
of a pipeline, who receives from 0 first is stage 1. Ranks keep their order from stage to stage, as
in every mesh. All other calls stay open where one group of all ranks contradicts their times.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import NOT_TOLD, Group
from advisor.vocabulary.operations import POINT_TO_POINT, SYNCHRONISING

_FEWEST_CALLS = 5
_LEAST_NS, _DRIFT = 1_000_000, 1e-3  # what clocks drift by, and spans close late
_TRIMMED = 0.05  # of the calls may be paired wrongly


def pipeline_groups(calls: Mapping[int, Sequence[Call]]) -> dict[str, Group]:
    """Give calls with recorded ends their peers and a group; the groups by name.

    Empty where stages do not have as many ranks each.
    """
    stages: dict[int, list[int]] = defaultdict(list)
    for rank, own in sorted(calls.items()):
        place = _place([end for call in sorted(own, key=lambda c: c.asked) for end in call.ends])
        if place is not None:
            stages[place].append(rank)
    if len(stages) < 2 or sorted(stages) != list(range(len(stages))):
        return {}
    if len({len(ranks) for ranks in stages.values()}) > 1:
        return {}
    found = {}
    for members in zip(*(stages[place] for place in sorted(stages)), strict=True):
        group = Group(f"pipeline of {members[0]}", None, members, len(members))
        found[group.name] = group
        for rank in members:
            for call in calls[rank]:
                if call.ends:
                    call.group = group.name
                    (_, index), *_ = call.ends
                    if call.op in POINT_TO_POINT and index < len(members):
                        call.peer = members[index]
    return found


def _place(ends: Sequence[tuple[str, int]]) -> int | None:
    """A rank's stage by whom it sends to and receives from."""
    peers = sorted({index for _, index in ends})
    if len(peers) == 2 and peers[1] - peers[0] == 2:
        return peers[0] + 1
    if len(peers) != 1:
        return None
    return peers[0] - 1 if ends[0][0] == "send" else peers[0] + 1


def contradicted(
    calls: Mapping[int, Sequence[Call]], columns: Sequence[Mapping[int, Call]]
) -> bool:
    """Whether of calls without a group, matched as one group's, some end on one rank before they
    begin on another, whatever the clocks.

    Ranks whose calls all use one stream have one group: nothing then explains the contradiction.
    """
    return bool(_several(calls)) and _contradicted(columns)


def leave_open(calls: Mapping[int, Sequence[Call]]) -> None:
    """Take calls without a group apart by rank, of ranks that have several groups."""
    for rank in _several(calls):
        for call in calls[rank]:
            if _is_open(call):
                call.group, call.group_size = f"{NOT_TOLD} (rank {rank})", None


def _several(calls: Mapping[int, Sequence[Call]]) -> set[int]:
    return {
        rank
        for rank, own in calls.items()
        if len({call.stream for call in own if call.stream is not None}) > 1
    }


def _is_open(call: Call) -> bool:
    return call.group is None and call.op not in POINT_TO_POINT


def _contradicted(columns: Sequence[Mapping[int, Call]]) -> bool:
    bounds: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    spans: dict[int, list[int]] = defaultdict(list)
    for column in columns:
        first = min(column)
        call = column[first]
        if len(column) < 2 or call.op not in SYNCHRONISING or call.group is not None:
            continue
        if call.group_size is not None and len(column) > call.group_size:
            return True
        for rank, other in column.items():
            spans[rank] += (other.start, other.end)
            if rank != first:
                bounds[first, rank].append((other.start - call.end, other.end - call.start))
    for (_, rank), own in bounds.items():
        if len(own) >= _FEWEST_CALLS:
            low, high = np.array(own, dtype=np.int64).T
            apart = np.quantile(low, 1 - _TRIMMED) - np.quantile(high, _TRIMMED)
            if apart > max(_LEAST_NS, _DRIFT * (max(spans[rank]) - min(spans[rank]))):
                return True
    return False
