"""What all ranks but one have: each rank is held against its others without a look at all again."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from advisor.metrics.lateness.blame import Arrivals
from advisor.statistics import Floats


class Others:
    """Of values [rank, step], those of all ranks but one, for one rank after the other."""

    def __init__(self, values: Floats) -> None:
        self._sorted: Floats = np.sort(values, axis=0)

    def greatest(self, own: Floats) -> Floats | None:
        """By step the greatest of the ranks other than the one that has ``own``; None: no other."""
        return self._place(own, -1) if len(self._sorted) > 1 else None

    def median(self, own: Floats) -> Floats | None:
        """By step the median of the ranks other than the one that has ``own``; None: no other."""
        count = len(self._sorted) - 1
        if not count:
            return None
        middle: Floats = (self._place(own, (count - 1) // 2) + self._place(own, count // 2)) / 2
        return middle

    def _place(self, own: Floats, place: int) -> Floats:
        """The value at a place of the sorted ones without ``own``: it moves up what is behind."""
        at = place % (len(self._sorted) - 1)
        before = self._sorted[at]
        found: Floats = np.where(before < own, before, self._sorted[at + 1])
        return found


def others_per_peer(items: Sequence[Arrivals], members: int) -> dict[int, float]:
    """Of each rank all others over those that meet it in a call: 1 where everybody does."""
    groups = list({item.ranks for item in items})
    own: dict[int, list[int]] = defaultdict(list)
    for number, ranks in enumerate(groups):
        for rank in ranks:
            own[rank].append(number)
    joined = {rank: tuple(numbers) for rank, numbers in own.items()}
    met = {them: len({rank for one in them for rank in groups[one]}) for them in joined.values()}
    return {rank: round((members - 1) / max(met[them] - 1, 1), 4) for rank, them in joined.items()}
