"""Whether the steps of two runs differ: an exact rank test that heeds how alike neighbours are.

Mann-Whitney's U orders all steps of both runs; under no difference every order is equally likely,
whatever the distribution of step times. So few steps have few orders: three against three have 20,
and the most extreme two of them are 10 % of all, so that no result of such runs is one in twenty.
The interval holds the ratios that the same test would not reject (Hodges and Lehmann 1963).

Successive steps are alike (drift, caches, clocks of the device), so n steps say less than n
independent ones: the test's distance is divided by the square root of (1 + r) / (1 - r), r being
the lag-1 autocorrelation (Bartlett 1935). It cannot be estimated from fewer than 8 steps. What
differs from one run of the same job to the next shows in no run's steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_LEVEL = 0.05  # two-sided: an interval of 95 %
_EXACT = 50  # steps of both runs up to which orders are counted, and not taken as normal
_NORMAL_975 = 1.959964
_LEAST_FOR_AUTOCORRELATION = 8
_MOST_AUTOCORRELATION = 0.95
_FEWEST = 4  # 2 orders of 70; of three against three, 2 of 20
_MOST_STEPS = 100_000

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """``share``: step of this run / step of the base - 1, with its 95 % interval.

    Without an interval the steps are too few to tell; ``steps_needed`` is how many each run needs
    at least (0 with an interval). ``steps`` are those of base and run.
    """

    share: float
    low: float | None
    high: float | None
    steps: tuple[int, int]
    steps_needed: int = 0
    autocorrelation: float | None = None

    @property
    def significant(self) -> bool | None:
        """Whether the interval leaves out no difference; None where there is no interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0


def difference(
    base: Sequence[float], other: Sequence[float], *, share: float | None = None
) -> Difference:
    """``share``, or the ratio of medians minus one, with the rank test's interval, which holds it.

    All steps must be positive.
    """
    left, right = np.asarray(base, dtype=float), np.asarray(other, dtype=float)
    if share is None:
        share = float(np.median(right) / np.median(left) - 1)
    repeats = autocorrelation(left, right)
    counts = (len(left), len(right))
    place = _place(*counts, repeats or 0.0)
    if not place:
        needed = steps_needed(repeats or 0.0, have=counts)
        return Difference(share, None, None, counts, needed, repeats)
    ratios = np.sort((right[None, :] / left[:, None]).ravel()) - 1
    # The ratio of the medians is not the middle of all ratios: the interval holds it in any case.
    low, high = min(float(ratios[place - 1]), share), max(float(ratios[-place]), share)
    return Difference(share, low, high, counts, 0, repeats)


def is_larger(base: Sequence[float], other: Sequence[float]) -> bool | None:
    """Whether ``other`` is larger beyond noise, by the same test; None with too few to tell.

    Unlike :func:`difference` it takes values of zero.
    """
    left, right = np.asarray(base, dtype=float), np.asarray(other, dtype=float)
    place = _place(len(left), len(right), autocorrelation(left, right) or 0.0)
    if not place:
        return None
    return bool(np.sort((right[None, :] - left[:, None]).ravel())[place - 1] > 0)


def steps_needed(repeats: float = 0.0, *, have: tuple[int, int] = (0, 0)) -> int:
    """The fewest steps in each of two runs with which any difference can be told from noise.

    A run that has more steps already (``have``) keeps them.
    """
    count = _FEWEST
    while not _place(max(have[0], count), max(have[1], count), repeats) and count < _MOST_STEPS:
        count += 1
    return count


def autocorrelation(*runs: _Floats) -> float | None:
    """Lag-1 autocorrelation of steps, by their ranks, over several runs; None with too few steps.

    Not below 0, and corrected for the estimate's own bias, -(1 + 4 r) / n (Kendall 1954).
    """
    found, weights = [], []
    for values in runs:
        count = len(values)
        if count < _LEAST_FOR_AUTOCORRELATION:
            continue
        ranks = _ranks(values)
        centred = ranks - ranks.mean()
        total = float(centred @ centred)
        if total:
            raw = float(centred[:-1] @ centred[1:]) / total
            found.append(raw + (1 + 4 * raw) / count)
            weights.append(count)
    if not found:
        return None
    return min(max(float(np.average(found, weights=weights)), 0.0), _MOST_AUTOCORRELATION)


def _place(left: int, right: int, repeats: float) -> int:
    """Which of the ordered pairwise ratios, from either end, bounds the interval; 0 for none."""
    if min(left, right) < _FEWEST:
        return 0
    pairs = left * right
    if left + right <= _EXACT:
        orders = _orders(left, right)
        below = np.cumsum(orders)
        largest = int(np.searchsorted(below, _LEVEL / 2 * below[-1], side="right")) - 1
    else:
        deviation = (pairs * (left + right + 1) / 12) ** 0.5
        largest = int(pairs / 2 - _NORMAL_975 * deviation - 0.5)
    distance = (pairs / 2 - largest) * ((1 + repeats) / (1 - repeats)) ** 0.5
    return max(0, int(np.floor(pairs / 2 - distance)) + 1) if largest >= 0 else 0


@cache
def _orders(left: int, right: int) -> _Floats:
    """In how many orders of both runs' steps U is 0, 1, ... left * right.

    The coefficients of the Gaussian binomial: the product of (1 - x^(right+i)) / (1 - x^i).
    """
    size = left * right + 1
    ways = [1] + [0] * (size - 1)
    for number in range(1, left + 1):
        for power in range(size - 1, right + number - 1, -1):
            ways[power] -= ways[power - right - number]
        for power in range(number, size):
            ways[power] += ways[power - number]
    return np.asarray(ways, dtype=float)


def _ranks(values: _Floats) -> _Floats:
    """Ranks from 0; ties share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middles: _Floats = ends - (counts + 1) / 2
    return middles[inverse]
