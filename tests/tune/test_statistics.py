"""Resolution and gains against generated noise whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.tune.statistics import (
    median_and_mad,
    paired_gain,
    ratio_to_neighbours,
    resolution,
)


def test_median_and_mad_by_hand() -> None:
    assert median_and_mad([1, 2, 3, 4, 100]) == (3, 1)


def test_resolution_recovers_two_sigma_and_ignores_drift() -> None:
    # GIVEN trials with 1 % noise each, so that a difference of two has sigma 1.41 %
    rng = np.random.default_rng(1)
    drift = np.linspace(1.0, 1.2, 400)
    trials = 100 * drift * np.exp(0.01 * rng.standard_normal(400))
    # THEN two sigma of a difference is 2.83 %, and the 20 % drift does not count
    found = resolution(list(trials))
    assert found is not None
    assert found == pytest.approx(0.0283, rel=0.15)


def test_two_baselines_say_nothing() -> None:
    assert resolution([1.0, 1.1]) is None


def test_ratio_uses_both_neighbours() -> None:
    assert ratio_to_neighbours(90, 100, 100) == pytest.approx(0.9)
    assert ratio_to_neighbours(90, 80, 125) == pytest.approx(0.9)
    assert ratio_to_neighbours(90, None, 100) == pytest.approx(0.9)
    assert ratio_to_neighbours(90, None, None) is None


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for seed in range(200):
        a = 100 * np.exp(0.02 * rng.standard_normal(4))
        b = 95 * np.exp(0.02 * rng.standard_normal(4))
        gain = paired_gain(list(a), list(b), seed=seed)
        held += gain.low <= 0.05 <= gain.high
    assert held >= 170


def test_no_difference_is_rarely_called_a_gain() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for seed in range(200):
        a = 100 * np.exp(0.02 * rng.standard_normal(4))
        b = 100 * np.exp(0.02 * rng.standard_normal(4))
        wrong += paired_gain(list(a), list(b), seed=seed).low > 0
    assert wrong <= 16


def test_the_resolution_is_a_share_of_the_step_and_shrinks_with_repetitions() -> None:
    # GIVEN baselines that alternate by a factor of ten: two sigma is more than all of the step
    noisy = resolution([1.0, 10.0] * 6)
    assert noisy is not None and 0.9 < noisy < 1
    # THEN by hand: steps of +-ln 1.1 have a MAD of ln 1.1
    trials = [1.0, 1.1] * 6
    sigma = 1.4826 * np.log(1.1)
    assert resolution(trials) == pytest.approx(1 - np.exp(-2 * sigma))
    assert resolution(trials, repetitions=4) == pytest.approx(1 - np.exp(-sigma))
