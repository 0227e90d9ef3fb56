"""Which process group each of gloo's threads serves, where the recording does not say.

A group runs two threads, made with it, so that thread ids ascend in the order of the groups; a
group that never communicated in the recording shows none. Which of a rank's groups are silent is
told by consistency across ranks: members of one group make the same calls, and none of them leaves
one before the last has come. What stays open is left open: calls of different groups must not be
taken for one another.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from advisor.metrics.collectives.call import TOLERANCE_NS, Call

THREADS_PER_GROUP = 2
_MOST_VIOLATIONS = 0.01
_MOST_CHOICES = 200
_SMALL_ID_SPACE = 32_768  # the kernel's default pid_max on small machines: ids start over soon

Members = Mapping[str, tuple[int, ...] | None]


def may_have_wrapped(threads: Sequence[int]) -> bool:
    """Whether thread ids may have started over between these, so that they tell no order."""
    return (
        len(threads) > 1
        and max(threads) <= _SMALL_ID_SPACE
        and max(threads) - min(threads) > _SMALL_ID_SPACE // 2
    )


def threads_by_consistency(
    calls: Mapping[int, Mapping[int, Sequence[Call]]],
    mine: Mapping[int, Sequence[str]],
    members: Members,
) -> dict[int, dict[int, str]]:
    """rank -> {thread: group}, for the threads whose group every consistent choice agrees on.

    ``calls``: rank -> thread -> its collectives in order; ``mine``: each rank's groups in the
    order they were made. Empty where ranks differ in their numbers of threads or groups, and where
    the ids of some rank's threads do not tell which came first.
    """
    if any(may_have_wrapped(list(own)) for own in calls.values()):
        return {}
    threads = {rank: sorted(own) for rank, own in calls.items()}
    counts = {len(own) for own in threads.values()}
    groups = {len(mine[rank]) for rank in calls}
    if len(counts) != 1 or len(groups) != 1 or (total := counts.pop()) % THREADS_PER_GROUP:
        return {}
    lanes, known = total // THREADS_PER_GROUP, groups.pop()
    if not 0 < lanes <= known:
        return {}
    choices = list(combinations(range(known), lanes))
    if len(choices) > _MOST_CHOICES:
        return {}
    by_lane = {
        rank: [
            sorted(
                (
                    call
                    for tid in own[lane * THREADS_PER_GROUP : (lane + 1) * THREADS_PER_GROUP]
                    for call in calls[rank][tid]
                ),
                key=lambda call: (call.asked, call.start),
            )
            for lane in range(lanes)
        ]
        for rank, own in threads.items()
    }
    fitting = [
        choice
        for choice in choices
        if all(
            _consistent({r: by_lane[r][lane] for r in by_lane}, place, mine, members)
            for lane, place in enumerate(choice)
        )
    ]
    result: dict[int, dict[int, str]] = {}
    for lane in range(lanes):
        places = {choice[lane] for choice in fitting}
        if len(places) == 1:
            (place,) = places
            for rank, own in threads.items():
                for tid in own[lane * THREADS_PER_GROUP : (lane + 1) * THREADS_PER_GROUP]:
                    result.setdefault(rank, {})[tid] = mine[rank][place]
    return result


def _consistent(
    lane: Mapping[int, Sequence[Call]],
    place: int,
    mine: Mapping[int, Sequence[str]],
    members: Members,
) -> bool:
    """Whether a lane can be every rank's group at ``place``."""
    by_group: dict[str, list[int]] = {}
    for rank in lane:
        by_group.setdefault(mine[rank][place], []).append(rank)
    for name, ranks in by_group.items():
        listed = members.get(name)
        if listed is not None and not set(ranks) <= set(listed):
            return False
        if len(ranks) > 1 and not _synchronise([lane[rank] for rank in ranks]):
            return False
    return True


def _synchronise(sequences: Sequence[Sequence[Call]]) -> bool:
    """Whether these ranks make the same calls and nobody leaves one before the last has come."""
    signatures = {tuple(call.signature for call in sequence) for sequence in sequences}
    if len(signatures) != 1 or not sequences[0]:
        return False
    start = np.array([[call.start for call in sequence] for sequence in sequences])
    end = np.array([[call.end for call in sequence] for sequence in sequences])
    offset = np.median(end - end[0], axis=1).astype(np.int64)[:, None]  # clocks: ends agree
    early = (end - offset) + TOLERANCE_NS < (start - offset).max(axis=0)
    return bool(early.any(axis=0).mean() <= _MOST_VIOLATIONS)
