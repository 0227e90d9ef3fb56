"""Whether what the ends of two ranks differ by is an offset of their clocks, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.metrics.clocks.ends import SIGNIFICANT, Difference
from advisor.metrics.collectives.call import TOLERANCE_NS, Call

STAGGER_SHARE = 0.6
"""A slow edge sets ranks apart by at most half of the transfer (two ranks), less with more."""
MOST_WRONG = 0.05
"""Share of spans that were paired wrongly: a rank that leaves more of its calls before another came
has another clock."""


def is_zero(away: float, found: Difference, others: Sequence[float]) -> bool:
    """Whether an offset against the median clock is no more than uncertainty or stagger.

    Messages of one size cannot tell an offset from the stagger of a slow edge. Then a single clock
    that stands far from all others is an offset; a spread over several clocks is stagger.
    """
    if found.identified:
        return abs(away) <= max(SIGNIFICANT * found.error, 0.5 * found.spread)
    if len(others) <= 2:
        # In rings of two and three a slow edge too sets one rank apart, by under half the transfer.
        return abs(away) <= max(STAGGER_SHARE * found.transfer, 2 * found.spread)
    return abs(away) <= 4 * max(others) + 2 * found.spread


def impossible(columns: Sequence[Mapping[int, Call]], rank: int, others: set[int]) -> bool:
    """Whether calls ended before the last rank came, if this rank's clock were the others'."""
    early = [
        (column[rank].start > column[other].end + TOLERANCE_NS)
        or (column[other].start > column[rank].end + TOLERANCE_NS)
        for column in columns
        if rank in column
        for other in sorted(others & column.keys())
    ]
    return bool(early) and sum(early) > MOST_WRONG * len(early)
