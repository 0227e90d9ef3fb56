"""The calls of one group, or between two ranks, side by side in the order of each rank.

Where all ranks have the same calls in the same order they pair one by one. Where one lacks some,
the longest common sequence pairs, and of several the one whose times agree best.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.collectives.align import IMPOSSIBLE, MAX_PENALTY, Penalty, align_many
from advisor.metrics.collectives.call import Call
from advisor.vocabulary.operations import SYNCHRONISING

# A disagreement of this many ns in time is as bad as any, when equal signatures compete.
_TIME_SCALE_NS = 1 << 34
APART_NS = 1_000_000
"""A call that ends on one rank this long before it begins on another is two calls: clocks that are
known, and spans that close late, are off by less."""


def aligned_calls(
    part: Mapping[int, list[Call]], offsets: Mapping[int, int], *, strict: bool = False
) -> list[dict[int, Call]]:
    """Rank -> its call, for each call of ``part`` (rank -> its calls in order).

    ``offsets`` (rank -> ns to add) align clocks; ``strict``: calls that cannot be one by their
    times are not.
    """
    calling = {rank: part[rank] for rank in sorted(part) if part[rank]}
    if not calling:
        return []
    if _agree(calling) and not (strict and offsets and _any_apart(calling, offsets)):
        return [
            dict(zip(calling, same, strict=True)) for same in zip(*calling.values(), strict=True)
        ]
    ranks = sorted(part)
    numbering: dict[object, int] = {}
    sequences = [
        np.array(
            [numbering.setdefault(c.signature, len(numbering)) for c in part[r]], dtype=np.int64
        )
        for r in ranks
    ]

    times = [
        np.array(
            [(c.start + offsets.get(r, 0), c.end + offsets.get(r, 0)) for c in part[r]],
            dtype=np.int64,
        ).reshape(-1, 2)
        for r in ranks
    ]
    together = [np.array([c.op in SYNCHRONISING for c in part[r]], dtype=bool) for r in ranks]

    def penalty(places: Sequence[tuple[int, int]], other: int) -> Penalty:
        starts, ends = times[other].T

        def cost(i: int, low: int, high: int) -> NDArray[np.int64]:
            start, end = times[places[i][0]][places[i][1]]
            apart = np.minimum(np.abs(ends[low:high] - end), _TIME_SCALE_NS - 1)
            scaled: NDArray[np.int64] = apart * MAX_PENALTY // _TIME_SCALE_NS
            if strict:
                before = np.maximum(starts[low:high] - end, start - ends[low:high]) > APART_NS
                scaled[before & together[other][low:high]] = IMPOSSIBLE
            return scaled

        return cost

    usable = penalty if offsets else None
    return [
        {ranks[number]: part[ranks[number]][index] for number, index in column.items()}
        for column in align_many(sequences, usable, strict=strict)
    ]


def _agree(calling: Mapping[int, Sequence[Call]]) -> bool:
    """Whether all ranks have the same signatures in the same order: their calls pair one by one.

    No other alignment has as many pairs, so that times decide nothing, unless a pair is
    impossible.
    """
    orders = [[call.signature for call in own] for own in calling.values()]
    return all(order == orders[0] for order in orders)


def _any_apart(calling: Mapping[int, Sequence[Call]], offsets: Mapping[int, int]) -> bool:
    """Whether the k-th call of some rank cannot be the k-th of the first, by their times."""
    (base, first), *others = calling.items()
    for rank, own in others:
        shift = offsets.get(rank, 0) - offsets.get(base, 0)
        for one, other in zip(first, own, strict=True):
            gap = max(other.start + shift - one.end, one.start - other.end - shift)
            if gap > APART_NS and other.op in SYNCHRONISING:
                return True
    return False
