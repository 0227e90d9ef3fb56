"""What few steps can tell of a late rank, and how often they tell it of none."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.lateness.chance import SIGNIFICANCE, count_as_one, late_by_chance

# What one rank waited for the other, which wrote a checkpoint in each of five recorded steps, ms.
SAVED = np.array([50.9, 40.6, 32.1, 41.0, 74.0])
NOBODY = np.zeros(5)
ONCE = np.ones(5)


def test_five_calls_tell_by_their_sizes_what_their_signs_cannot() -> None:
    assert SIGNIFICANCE < 2 * 0.5**5, "the last of two in five calls of five may be so by chance"
    assert late_by_chance(SAVED, NOBODY, ONCE, ONCE, 0.5, 2) < 0.01


def test_of_two_that_wait_for_each_other_neither_is_late() -> None:
    swapped = SAVED * [1, 0, 1, 0, 1]
    assert late_by_chance(swapped, SAVED - swapped, ONCE * [1, 0, 1, 0, 1], ONCE, 0.5, 2) == 1.0


def test_no_test_that_can_tell_tells_nothing() -> None:
    assert late_by_chance(SAVED[:1], NOBODY[:1], ONCE[:1], ONCE[:1], 0.5, 2) == 1.0
    assert late_by_chance(SAVED, None, NOBODY[:0], NOBODY[:0], 0.0, 1) == 1.0


def test_who_is_late_in_some_steps_throughout_is_late_as_often_as_those_steps() -> None:
    stretches = np.full(9, 12.0)
    in_some = stretches * [1, 0, 1, 1, 0, 1, 1, 0, 1]  # 72 of 108, as who lacks a core is
    in_each = np.array([8.0, 7, 9, 8, 8, 7, 9, 8, 8])  # 72 as well
    waits = np.arange(9.0) % 2
    assert late_by_chance(waits, 1 - waits, in_some, stretches, 0.5, 2) > SIGNIFICANCE
    assert late_by_chance(waits, 1 - waits, in_each, stretches, 0.5, 2) < 0.01
    assert count_as_one(in_some, stretches) == 12.0
    assert count_as_one(in_each, stretches) == count_as_one(stretches, stretches) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize(
    ("steps", "together"),  # of five steps chance alone gives one of two ranks all in one run of 16
    [(3, 0.0), (5, 0.0), (6, 0.0), (12, 0.0), (9, 2.0), (12, 2.0)],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_of_equal_ranks_one_is_called_late_in_one_run_of_twenty(
    ranks: int, steps: int, calls: int, together: float
) -> None:
    rng = np.random.default_rng(ranks * 100 + steps * 10 + calls)
    runs, alarms = 600, 0
    stretches = np.full(steps, float(calls))
    for _ in range(runs):
        # What each rank takes beyond the fastest of a call, with the tail that pauses have.
        taken = rng.lognormal(0.0, 0.7, (steps, calls, ranks))
        taken += together * rng.lognormal(0.0, 0.7, (steps, 1, ranks))
        last = taken.argmax(axis=2)
        waits = np.sort(taken, axis=2)[:, :, -1] - np.median(taken, axis=2)
        costs = np.stack([(waits * (last == rank)).sum(axis=1) for rank in range(ranks)])
        alarms += any(
            late_by_chance(
                costs[rank],
                np.delete(costs, rank, axis=0).max(axis=0),
                (last == rank).sum(axis=1).astype(float),
                stretches,
                1 / ranks,
                ranks,
            )
            < SIGNIFICANCE
            for rank in range(ranks)
        )
    assert alarms / runs < SIGNIFICANCE + 3 * (SIGNIFICANCE / runs) ** 0.5
