"""When is a difference real: resolution from A against A, gains from interleaved pairs.

A trial is compared with the baseline trials run just before and after it, so that a machine that
drifts moves both. Ratios below are trial / baseline: 0.95 means 5 % faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Resolution is this many standard deviations of A against A.
RESOLUTION_SIGMAS = 2.0
# Of Student's t, for noise with outliers (Lange, Little and Taylor, JASA 84, 1989). A against A
# counts half as much as the pairs, which a setting may make noisier. Of four pairs beside ten
# differences 95 % of the intervals hold the truth, 88 % where the setting doubles the noise.
_DEGREES = 2.0
_BESIDE = 0.5
_ROUNDS = 50
_LEAST = 1e-12

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Gain:
    """Share of the step saved (0.05 = 5 % faster), its 95 % interval, how many pairs ``won``."""

    share: float
    low: float
    high: float
    pairs: int
    won: int


def median_and_mad(values: Sequence[float]) -> tuple[float, float]:
    """Median and median absolute deviation."""
    array = np.asarray(values, dtype=float)
    middle = float(np.median(array))
    return middle, float(np.median(np.abs(array - middle)))


def resolution(
    baseline_medians: Sequence[float],
    *,
    repetitions: int = 1,
    sittings: Sequence[int] | None = None,
) -> float | None:
    """Smallest share of the step that can be told from noise: two sigma of A against A.

    Of a single trial against another, or of the mean over ``repetitions`` pairs. From successive
    differences, so that slow drift does not count, and of one sitting each (``sittings``, one per
    median). None with fewer than two of them.
    """
    steps = successive(baseline_medians, sittings)
    if len(steps) < 2:
        return None
    # Robust: 1.4826 * MAD around zero estimates the sigma of a difference of two trials.
    sigma = 1.4826 * float(np.median(np.abs(steps)))
    sigma = max(sigma, float(np.std(steps)) / 2)
    # Sigma is of logs: a gain of as much is this share of the step, never all of it.
    return float(-np.expm1(-RESOLUTION_SIGMAS * sigma / np.sqrt(repetitions)))


def successive(medians: Sequence[float], sittings: Sequence[int] | None = None) -> Values:
    """Each log ratio of a baseline to the one before it in its sitting: A against A."""
    steps: Values = np.diff(np.log(np.asarray(medians, dtype=float)))
    return steps if sittings is None else steps[np.diff(np.asarray(sittings)) == 0]


def ratio_to_neighbours(trial: float, before: float | None, after: float | None) -> float | None:
    """Trial over the mean (in logs) of the baselines around it; None without any."""
    around = [value for value in (before, after) if value is not None]
    if not around:
        return None
    return float(trial / np.exp(np.mean(np.log(around))))


def paired_gain(
    baselines: Sequence[float], trials: Sequence[float], noise: Values | None = None
) -> Gain:
    """Gain from interleaved A B A B pairs of trial medians; ``noise`` is A against A.

    Each log ratio is the gain and noise of Student's t: a trial that something else held up moves
    it little, where it would be all of a mean of four.
    """
    ratios = np.log(np.asarray(trials, dtype=float) / np.asarray(baselines, dtype=float))
    centre, sigma, degrees = _student(ratios, np.empty(0) if noise is None else noise)
    half = _t975(degrees) * sigma / np.sqrt(len(ratios))
    low, share, high = (float(-np.expm1(centre + off)) for off in (half, 0.0, -half))
    return Gain(share, low, high, pairs=len(ratios), won=int((ratios < 0).sum()))


def _student(values: Values, noise: Values) -> tuple[float, float, float]:
    """Most likely location of ``values``, the standard deviation of one where they and ``noise``
    (around zero) have one scale, and its degrees of freedom: by expectation maximisation."""
    beside = min(1.0, _BESIDE * len(values) / max(len(noise), 1))
    counted = np.concatenate([np.ones(len(values)), np.full(len(noise), beside)])
    degrees = max(float(counted.sum()) - 1, 1.0)
    centre = float(np.median(values))
    square = max(median_and_mad([*(values - centre), *noise])[1] ** 2, _LEAST)
    for _ in range(_ROUNDS):
        off = np.concatenate([values - centre, noise])
        weights = counted * (_DEGREES + 1) / (_DEGREES + off**2 / square)
        centre = float(np.average(values, weights=weights[: len(values)]))
        square = max(float((weights * off**2).sum()) / degrees, _LEAST)
    # By the Fisher information of the location.
    return centre, float(np.sqrt(square * (_DEGREES + 3) / (_DEGREES + 1))), degrees


def _t975(degrees: float) -> float:
    """97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5; within 1 % from 3 degrees)."""
    z = 1.96
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
             (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)  # fmt: skip
    return sum(term / degrees**power for power, term in enumerate(terms))
