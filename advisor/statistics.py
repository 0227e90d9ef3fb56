"""Small robust estimators: regression that outliers do not move, intervals by resampling."""

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

_HUBER = 1.345  # 95 % efficiency on normal errors (Huber 1981)
_ROUNDS = 30
_SEED = 20_26
_NORMAL_95 = 1.96
_AT_ONCE = 1 << 20  # values drawn at once when resampling
_FEW = 64  # values of which the draws are kept: 200 KB
_ALL_SIGNS = 12  # values whose every choice of signs is looked at


class Fit(NamedTuple):
    """Coefficients of a linear model with their standard errors and the residuals' spread."""

    coefficients: Floats
    errors: Floats
    spread: float


def median(values: ArrayLike) -> float:
    """numpy's, to the last bit, in a sixth of its time for a few values: it is asked for by rank.

    Of no values it is an IndexError.
    """
    array = np.sort(np.asarray(values))
    if array[-1] != array[-1]:  # NaN, which sorts last
        return math.nan
    half = len(array) // 2
    high = float(array[half])
    return high if len(array) % 2 else (float(array[half - 1]) + high) / 2


def quantile(values: ArrayLike, share: float) -> float:
    """numpy's, between its neighbours by a line (Hyndman and Fan's type 7), as fast as `median`."""
    array = np.sort(np.asarray(values))
    if array[-1] != array[-1]:
        return math.nan
    place = share * (len(array) - 1)
    below = min(int(place), len(array) - 1)
    low, high = array[below].item(), array[min(below + 1, len(array) - 1)].item()
    part = place - below
    apart = high - low
    return float(low + apart * part if part < 0.5 else high - apart * (1 - part))


def spread(values: ArrayLike) -> float:
    """Median absolute deviation, scaled to a normal's standard deviation."""
    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        return 0.0
    return 1.4826 * median(np.abs(array - median(array)))


def huber(design: Floats, target: Floats) -> Fit:
    """Linear regression by iteratively re-weighted least squares with Huber's weights."""
    weights: Floats = np.ones(len(target))
    coefficients: Floats = np.zeros(design.shape[1])
    scale = 0.0
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        new: Floats = np.asarray(
            np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0], dtype=np.float64
        )
        residuals = target - design @ new
        scale = spread(residuals - np.median(residuals)) + 1e-12
        weights = np.minimum(1.0, _HUBER * scale / np.maximum(np.abs(residuals), 1e-12))
        if np.allclose(new, coefficients, rtol=1e-9, atol=1e-9):
            coefficients = new
            break
        coefficients = new
    residuals = target - design @ coefficients
    scale = spread(residuals)
    gram = design.T @ (design * weights[:, None])
    variance = np.diag(np.linalg.pinv(gram)) * scale**2
    return Fit(coefficients, np.sqrt(np.maximum(variance, 0.0)), scale)


def mean_interval(
    values: ArrayLike, weights: ArrayLike | None = None, *, rounds: int = 400
) -> tuple[float, float]:
    """95 % interval of a (weighted) mean by resampling ``values``; fixed seed, so repeatable."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        only = float(array[0]) if len(array) else 0.0
        return only, only
    means: list[float] = []
    for picks in _picks(len(array), rounds):
        of_each = None if weights is None else np.asarray(weights, dtype=np.float64)[picks]
        means += np.average(array[picks], axis=1, weights=of_each).tolist()
    return quantile(means, 0.025), quantile(means, 0.975)


def _picks(count: int, rounds: int) -> Iterable[Int64s]:
    """Places of ``count`` values, drawn ``rounds`` times: of as many values always the same."""
    return _few_picks(count, rounds) if count <= _FEW else _drawn(count, rounds)


@lru_cache(maxsize=16)
def _few_picks(count: int, rounds: int) -> tuple[Int64s, ...]:
    return tuple(_drawn(count, rounds))


def _drawn(count: int, rounds: int) -> Iterator[Int64s]:
    generator = np.random.default_rng(_SEED)
    at_once = max(1, _AT_ONCE // count)
    for first in range(0, rounds, at_once):
        yield generator.integers(0, count, size=(min(at_once, rounds - first), count))


def sum_interval(sizes: ArrayLike) -> tuple[float, float]:
    """95 % interval of the sum of rare independent events' ``sizes`` (above 0), as if the same
    time were watched again: the gamma interval of Fay and Feuer (1997), which for sizes that are
    alike is the exact one of a Poisson count. Without events 0 and 0: their size is not known."""
    array = np.asarray(sizes, dtype=np.float64)
    if not len(array):
        return 0.0, 0.0
    total, squares, most = float(array.sum()), float((array**2).sum()), float(array.max())
    above, squares_above = total + most, squares + most**2
    return (
        squares / (2 * total) * _chi_squared(-_NORMAL_95, 2 * total**2 / squares),
        squares_above / (2 * above) * _chi_squared(_NORMAL_95, 2 * above**2 / squares_above),
    )


def _chi_squared(normal: float, degrees: float) -> float:
    """The quantile of chi squared at a normal's (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * degrees)
    return degrees * max(1 - part + normal * math.sqrt(part), 0.0) ** 3


def binomial_tail(successes: int, trials: int, chance: float) -> float:
    """P(X >= successes) for X ~ Binomial(trials, chance), exact by logarithms."""
    if successes <= 0:
        return 1.0
    if not 0.0 < chance < 1.0:
        return 1.0 if chance >= 1.0 else 0.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(count + 1)
        - math.lgamma(trials - count + 1)
        + count * math.log(chance)
        + (trials - count) * math.log1p(-chance)
        for count in range(successes, trials + 1)
    ]
    top = max(logs, default=-math.inf)
    if top == -math.inf:
        return 0.0
    return min(1.0, math.exp(top) * sum(math.exp(value - top) for value in logs))


def t_tail(values: ArrayLike) -> float:
    """P(t >= this one) of Student's distribution if the mean of ``values`` were 0; 1 for less than
    two of them. By its finite series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    array = np.asarray(values, dtype=np.float64)
    free = len(array) - 1
    mean = float(array.mean()) if free > 0 else 0.0
    if mean <= 0:
        return 1.0
    angle = math.atan2(mean * math.sqrt(len(array)), float(array.std(ddof=1)) * math.sqrt(free))
    square, odd = math.cos(angle) ** 2, free % 2
    term, series = (math.cos(angle) if odd else 1.0), 0.0
    for step in range(1 + odd, free, 2):
        series += term
        term *= square * step / (step + 1)
    within = math.sin(angle) * series
    if odd:
        within = 2 / math.pi * (angle + within)
    return max(0.0, 0.5 * (1.0 - within))


def sign_flip_tail(values: ArrayLike) -> float:
    """P(sum >= this one) if each of ``values`` were as likely to have the other sign (Fisher's
    randomisation test of pairs): exact for few values, else by the normal limit."""
    array = np.asarray(values, dtype=np.float64)
    total, size = float(array.sum()), float(np.linalg.norm(array))
    if total <= 0:
        return 1.0
    if len(array) > _ALL_SIGNS:
        return 0.5 * math.erfc(total / size / math.sqrt(2))
    choices = np.arange(1 << len(array))[:, None] >> np.arange(len(array)) & 1
    sums = (1 - 2 * choices) @ array
    return float((sums >= total - 1e-9 * size).mean())


def floor_tail(values: ArrayLike) -> float:
    """P(smallest / mean >= this one) of waits without memory: of n exponential waits (1 - ratio) to
    the power n - 1, exactly (their shares of the sum are uniform). 1 where the smallest is none.

    Meetings with other work come and go; what a program does itself in every step has a floor.
    """
    array = np.asarray(values, dtype=np.float64)
    least = float(array.min(initial=math.inf))
    return float((1 - least / array.mean()) ** (len(array) - 1)) if 0 < least < math.inf else 1.0
