"""What few steps can tell of a late rank, and how often they tell it of none."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.lateness.chance import SIGNIFICANCE, late_by_chance

# What one rank waited for the other, which wrote a checkpoint in each of five recorded steps, ms.
SAVED = np.array([50.9, 40.6, 32.1, 41.0, 74.0])
NOBODY = np.zeros(5)


def test_five_calls_tell_by_their_sizes_what_their_signs_cannot() -> None:
    assert SIGNIFICANCE < 2 * 0.5**5, "the last of two in five calls of five may be so by chance"
    assert late_by_chance(SAVED, NOBODY, 5, 5, 0.5, 2) < 0.01


def test_of_two_that_wait_for_each_other_neither_is_late() -> None:
    swapped = SAVED * [1, 0, 1, 0, 1]
    assert late_by_chance(swapped, SAVED - swapped, 3, 5, 0.5, 2) == 1.0


def test_no_test_that_can_tell_tells_nothing() -> None:
    assert late_by_chance(SAVED[:1], NOBODY[:1], 1, 1, 0.5, 2) == 1.0
    assert late_by_chance(SAVED, None, 0, 0, 0.0, 1) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize("steps", [3, 5, 6, 12])
@pytest.mark.parametrize("ranks", [2, 4])
def test_of_equal_ranks_one_is_called_late_in_one_run_of_twenty(
    ranks: int, steps: int, calls: int
) -> None:
    rng = np.random.default_rng(ranks * 100 + steps * 10 + calls)
    runs, alarms = 600, 0
    for _ in range(runs):
        # What each rank takes beyond the fastest of a call, with the tail that pauses have.
        taken = rng.lognormal(0.0, 0.7, (steps, calls, ranks))
        last = taken.argmax(axis=2)
        waits = np.sort(taken, axis=2)[:, :, -1] - np.median(taken, axis=2)
        costs = np.stack([(waits * (last == rank)).sum(axis=1) for rank in range(ranks)])
        alarms += any(
            late_by_chance(
                costs[rank],
                np.delete(costs, rank, axis=0).max(axis=0),
                int((last == rank).sum()),
                steps * calls,
                1 / ranks,
                ranks,
            )
            < SIGNIFICANCE
            for rank in range(ranks)
        )
    assert alarms / runs < SIGNIFICANCE + 3 * (SIGNIFICANCE / runs) ** 0.5
