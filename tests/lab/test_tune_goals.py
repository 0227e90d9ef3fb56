"""The noise of the lab's grids: the same share whichever round came first, as in a real sweep."""

from __future__ import annotations

import json

import pytest

from advisor.tune.statistics import RESOLUTION_SIGMAS
from benchmarks.lab.tune_goals import RESULTS, _resolution

SIGMA_OF_MAD = 1.4826


def test_the_order_of_the_rounds_does_not_change_the_resolution() -> None:
    rounds = [[100, 130], [100, 150], [100, 110]]
    swapped = [[second, first] for first, second in rounds]
    assert _resolution(rounds) == pytest.approx(_resolution(swapped))
    # A gain of two sigma of logs; the middle difference is a factor of 1.3.
    expected = 1 - 1.3 ** (-RESOLUTION_SIGMAS * SIGMA_OF_MAD)
    assert _resolution(rounds) == pytest.approx(expected)


def test_however_noisy_a_resolution_is_a_share_of_the_step() -> None:
    assert 0 < _resolution([[1, 1000], [1, 5000]]) < 1
    assert _resolution([[7, 7], [8, 8]]) == 0


def test_the_results_kept_beside_the_code_are_what_it_computes() -> None:
    grids = json.loads(RESULTS.read_text())["grids"]
    assert len(grids) == 12
    for grid in grids:
        found = _resolution(list(grid["steps_ns"].values()))
        assert round(found, 4) == grid["resolution"], grid["grid"]
