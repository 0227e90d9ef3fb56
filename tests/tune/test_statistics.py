"""Resolution and gains against generated noise whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.tune.statistics import (
    median_and_mad,
    paired_gain,
    ratio_to_neighbours,
    resolution,
    successive,
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


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """GIVEN four pairs, alone and beside ten differences of baselines with the same noise."""
    rng = np.random.default_rng(2)
    held, gains = [0, 0], [0, 0]
    for _ in range(400):
        a = 100 * np.exp(0.02 * rng.standard_normal(4))
        b = 95 * np.exp(0.02 * rng.standard_normal(4))
        beside = 0.02 * np.sqrt(2) * rng.standard_normal(10)
        for index, noise in enumerate((None, beside)):
            gain = paired_gain(list(a), list(b), noise)
            held[index] += gain.low <= 0.05 <= gain.high
            same = paired_gain(list(a), list(b / 0.95), noise)
            gains[index] += same.low > 0
    # THEN 95 % hold it, and 2.5 % of no difference are gains: within two errors of 400 draws
    assert min(held) >= 0.92 * 400
    assert max(gains) <= 0.045 * 400


def test_one_pair_that_something_else_held_up_moves_the_gain_little() -> None:
    """GIVEN a measured confirmation: 30, 22 and 18 % faster, and one trial of five times as long;
    baselines that differ by 8 %."""
    baselines, trials = [466, 443, 417, 442], [325, 2266, 326, 364]
    noise = successive([368, 415, 440, 465, 457, 527, 447, 444, 391, 466, 443, 417, 442])
    gain = paired_gain(baselines, trials, noise)
    assert (gain.pairs, gain.won) == (4, 3)
    assert 0 < gain.low < 0.18 < gain.share < 0.3
    # THEN two of four that are slower are no gain
    assert paired_gain(baselines, [325, 2266, 326, 1800], noise).low < 0


def test_the_resolution_is_a_share_of_the_step_and_shrinks_with_repetitions() -> None:
    # GIVEN baselines that alternate by a factor of ten: two sigma is more than all of the step
    noisy = resolution([1.0, 10.0] * 6)
    assert noisy is not None and 0.9 < noisy < 1
    # THEN by hand: steps of +-ln 1.1 have a MAD of ln 1.1
    trials = [1.0, 1.1] * 6
    sigma = 1.4826 * np.log(1.1)
    assert resolution(trials) == pytest.approx(1 - np.exp(-2 * sigma))
    assert resolution(trials, repetitions=4) == pytest.approx(1 - np.exp(-sigma))
