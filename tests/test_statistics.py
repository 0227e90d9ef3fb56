"""The median and quantiles that are asked for by rank are numpy's, to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.statistics import median, quantile, t_tail

NANOSECONDS = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30)
FLOATS = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30)


@given(NANOSECONDS | FLOATS)
def test_median_is_numpys(values: list[float]) -> None:
    assert median(values) == float(np.median(values))


@given(NANOSECONDS | FLOATS, st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], share: float) -> None:
    assert quantile(values, share) == float(np.quantile(values, share))


def test_nan_is_not_left_out() -> None:
    assert math.isnan(median([1.0, math.nan, 3.0]))
    assert math.isnan(quantile([1.0, math.nan, 3.0], 0.1))


def test_no_values_have_no_median() -> None:
    with pytest.raises(IndexError):
        median([])


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=12).filter(lambda own: np.ptp(own) > 1))
def test_the_t_tail_is_scipys(values: list[float]) -> None:
    from scipy.stats import ttest_1samp  # late: it takes seconds, and each worker imports modules

    expected = float(ttest_1samp(values, 0, alternative="greater").pvalue)
    assert t_tail(values) == pytest.approx(expected if np.mean(values) > 0 else 1.0, abs=1e-9)


def test_alike_values_leave_no_chance_and_one_leaves_all() -> None:
    assert t_tail([5.0, 5.0, 5.0]) == pytest.approx(0, abs=1e-15)
    assert (t_tail([5.0]), t_tail([])) == (1.0, 1.0)
