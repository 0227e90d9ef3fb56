"""When is a difference real: resolution from A against A, gains from interleaved pairs.

A trial is compared with the baseline trials run just before and after it, so that a machine that
drifts moves both. Ratios below are trial / baseline: 0.95 means 5 % faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Resolution is this many standard deviations of A against A.
RESOLUTION_SIGMAS = 2.0
_RESAMPLES = 4000


@dataclass(frozen=True)
class Gain:
    """Share of the step saved (0.05 = 5 % faster) with its 95 % interval."""

    share: float
    low: float
    high: float
    pairs: int


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
    steps = np.diff(np.log(np.asarray(baseline_medians, dtype=float)))
    if sittings is not None:
        steps = steps[np.diff(np.asarray(sittings)) == 0]
    if len(steps) < 2:
        return None
    # Robust: 1.4826 * MAD around zero estimates the sigma of a difference of two trials.
    sigma = 1.4826 * float(np.median(np.abs(steps)))
    sigma = max(sigma, float(np.std(steps)) / 2)
    # Sigma is of logs: a gain of as much is this share of the step, never all of it.
    return float(-np.expm1(-RESOLUTION_SIGMAS * sigma / np.sqrt(repetitions)))


def ratio_to_neighbours(trial: float, before: float | None, after: float | None) -> float | None:
    """Trial over the mean (in logs) of the baselines around it; None without any."""
    around = [value for value in (before, after) if value is not None]
    if not around:
        return None
    return float(trial / np.exp(np.mean(np.log(around))))


def paired_gain(baselines: Sequence[float], trials: Sequence[float], *, seed: int = 0) -> Gain:
    """Gain from interleaved A B A B pairs of trial medians, with a bootstrap over the pairs."""
    ratios = np.log(np.asarray(trials, dtype=float) / np.asarray(baselines, dtype=float))
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(ratios), size=(_RESAMPLES, len(ratios)))
    means = 1 - np.exp(ratios[picks].mean(axis=1))
    # Few pairs make a bootstrap too sure: widen by Student's t against the normal.
    centre = 1 - float(np.exp(ratios.mean()))
    widen = _T975.get(len(ratios) - 1, 1.96) / 1.96
    low, high = np.quantile(means, [0.025, 0.975])
    return Gain(
        share=centre,
        low=centre - (centre - float(low)) * widen,
        high=centre + (float(high) - centre) * widen,
        pairs=len(ratios),
    )


# Student's t, 97.5 % quantile by degrees of freedom.
_T975 = {
    1: 12.71,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
}
