"""The rank test against SciPy's exact one, counted orders, and how often noise counts as signal."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from advisor.metrics.compare.significance import (
    autocorrelation,
    difference,
    is_larger,
    steps_needed,
)


def drawn(rng: np.random.Generator, count: int, *, alike: float = 0.0) -> list[float]:
    """Steps of about 1 ms whose neighbours have that correlation (AR(1), settled in)."""
    noise = rng.standard_normal(count + 50)
    for position in range(1, len(noise)):
        noise[position] += alike * noise[position - 1]
    return list(1e6 * np.exp(0.02 * noise[50:]))


def called_different(count: int, *, alike: float, rounds: int = 300) -> float:
    rng = np.random.default_rng(7)
    pairs = [[drawn(rng, count, alike=alike) for _ in "ab"] for _ in range(rounds)]
    return sum(difference(*pair).significant is True for pair in pairs) / rounds


def test_three_steps_against_three_never_tell() -> None:
    # 20 orders: the two most extreme are 10 %, so 95 % is out of reach however far they are apart.
    found = difference([1.0, 1.1, 1.2], [9.0, 9.1, 9.2])
    assert (found.low, found.high, found.significant, found.steps_needed) == (None, None, None, 4)
    assert found.share == pytest.approx(9.1 / 1.1 - 1)


@pytest.mark.parametrize("counts", [(1, 1), (1, 40), (3, 10)])
def test_one_step_has_no_interval(counts: tuple[int, int]) -> None:
    found = difference([100.0] * counts[0], [102.1] * counts[1])
    assert (found.low, found.significant, found.steps_needed) == (None, None, 4)
    enough = difference([100.0] * max(4, counts[0]), [102.1] * max(4, counts[1]))
    assert enough.low is not None, "the number said does give an interval"


def test_four_against_four_tell_only_when_all_are_apart() -> None:
    # 70 orders, of which the two most extreme are 2.9 %, and the next two make it 5.7 %.
    base = [1.00, 1.01, 1.02, 1.03]
    told = [
        ranks
        for ranks in combinations(range(8), 4)
        if difference(
            [1 + 0.01 * r for r in ranks], [1 + 0.01 * r for r in range(8) if r not in ranks]
        ).significant
    ]
    assert told == [(0, 1, 2, 3), (4, 5, 6, 7)]
    found = difference(base, [2.00, 2.01, 2.02, 2.03])
    assert found.low == pytest.approx(2.00 / 1.03 - 1)
    assert found.high == pytest.approx(2.03 / 1.00 - 1)


def test_it_is_the_exact_test() -> None:
    stats: Any = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    verdicts = []
    for _ in range(200):
        left, right = rng.integers(4, 8, 2)  # below 8 neighbours are taken as independent
        base, other = rng.lognormal(0.0, 0.1, left), rng.lognormal(0.12, 0.1, right)
        exact = stats.mannwhitneyu(base, other, method="exact").pvalue <= 0.05
        ratios = np.sort((other[None, :] / base[:, None]).ravel()) - 1
        found = difference(base, other)
        assert found.low is not None
        # What the extension to the ratio of medians adds is never called significant.
        assert exact or not found.significant
        verdicts.append((exact, found.significant))
        assert ratios[0] <= found.low <= found.share
    assert sum(exact == ours for exact, ours in verdicts) >= 198
    assert 20 < sum(exact for exact, _ in verdicts) < 180


@pytest.mark.parametrize("count", [4, 5, 8, 20, 60])
def test_independent_noise_is_called_a_difference_one_time_in_twenty(count: int) -> None:
    # 300 rounds at 5 %: 15 expected, 28 and more in one of 1,000.
    assert called_different(count, alike=0.0) <= 28 / 300


@pytest.mark.parametrize("alike", [0.3, 0.6])
def test_steps_that_repeat_each_other_count_for_less(alike: float) -> None:
    # Taken as independent, 20 steps with 0.6 would be called different in a third of all cases.
    assert called_different(20, alike=alike) <= 0.12
    assert called_different(60, alike=alike) <= 0.10


def test_a_real_difference_is_found_and_inside_the_interval() -> None:
    rng = np.random.default_rng(1)
    base = drawn(rng, 20)
    found = difference(base, [1.1 * step for step in drawn(rng, 20)])
    assert found.significant
    assert found.low is not None and found.high is not None
    assert found.low <= 0.1 <= found.high


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        found = difference(drawn(rng, 25), [1.05 * step for step in drawn(rng, 25)])
        assert found.low is not None and found.high is not None
        held += found.low <= 0.05 <= found.high
    assert held >= 273, "95 % of 300 is 285; below 273 in one of 1,000"


def test_the_same_steps_do_not_differ() -> None:
    steps = [5.0, 6.0, 7.0, 8.0]
    assert difference(steps, steps).significant is False
    assert difference([5.0] * 30, [5.0] * 30).significant is False


def test_drift_is_alike_and_alternation_is_not() -> None:
    assert autocorrelation(np.arange(20.0)) == pytest.approx(0.95)
    assert autocorrelation(np.tile([1.0, 2.0], 10)) == 0.0
    assert autocorrelation(np.arange(7.0)) is None


def test_alike_steps_need_more() -> None:
    assert (steps_needed(), steps_needed(have=(7, 1))) == (4, 4)
    assert steps_needed(0.5) > 8
    drifting = [1.0 + 0.01 * step for step in range(8)]
    found = difference(drifting, [2 * step for step in drifting])
    assert found.significant is None
    assert found.steps_needed > 8


def test_values_of_zero_are_compared_as_well() -> None:
    assert is_larger([0.0] * 4, [5.0, 6.0, 7.0, 8.0]) is True
    assert is_larger([5.0, 6.0, 7.0, 8.0], [0.0] * 4) is False
    assert is_larger([0.0] * 4, [0.0] * 4) is False
    assert is_larger([0.0] * 3, [5.0] * 3) is None
