"""The fit against calls made from known alpha and beta, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.alpha_beta import fit, terms

SIZES = np.repeat([4_096, 65_536, 1 << 20, 1 << 24], 12)


def times(alpha_ns: float, beta: float, k: float, m: float, noise: float) -> np.ndarray:
    generator = np.random.default_rng(7)
    exact = k * alpha_ns + m * SIZES * beta
    return exact * (1 + noise * generator.standard_normal(len(SIZES)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.floats(500, 50_000), st.floats(0.005, 8.0), st.sampled_from([2, 4, 8, 64]))
def test_known_cost_is_found_within_its_interval(alpha: float, beta: float, ranks: int) -> None:
    k, m = terms("all_reduce", ranks) or (0, 0)
    assert (k, m) == (2 * (ranks - 1), 2 * (ranks - 1) / ranks)
    found = fit("all_reduce", ranks, SIZES, times(alpha, beta, k, m, 0.02))
    assert found is not None
    # Whichever term rules, the time of every size is right.
    for size in np.unique(SIZES):
        assert found.time_ns(size) == pytest.approx(k * alpha + m * size * beta, rel=0.04)


def test_outliers_do_not_move_it() -> None:
    k, m = terms("all_gather", 8) or (0, 0)
    measured = times(10_000, 0.1, k, m, 0.01)
    measured[::6] *= 8
    found = fit("all_gather", 8, SIZES, measured)
    assert found is not None and found.alpha_ns is not None
    assert found.alpha_ns == pytest.approx(10_000, rel=0.1)
    assert found.beta_ns_per_byte == pytest.approx(0.1, rel=0.1)


@pytest.mark.slow
def test_agrees_with_scikit_learn_on_clean_data() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    k, m = terms("all_reduce", 4) or (0, 0)
    measured = times(20_000, 0.3, k, m, 0.01)
    design = np.stack([np.full(len(SIZES), k), m * SIZES], axis=1)
    other = linear_model.LinearRegression(fit_intercept=False, positive=True)
    other.fit(design / measured[:, None], np.ones(len(SIZES)))
    found = fit("all_reduce", 4, SIZES, measured)
    assert found is not None and found.alpha_ns is not None
    assert found.alpha_ns == pytest.approx(other.coef_[0], rel=0.02)
    assert found.beta_ns_per_byte == pytest.approx(other.coef_[1], rel=0.02)


def test_one_size_tells_no_latency() -> None:
    found = fit("all_reduce", 2, [1 << 20] * 10, [1e6] * 10)
    assert found is not None
    assert found.alpha_ns is None and found.n_star_bytes is None
    assert found.time_ns(1 << 20) == pytest.approx(1e6)
    assert found.latency_share(1 << 20) is None


def test_never_negative() -> None:
    # Times that fall with the size would want a negative beta.
    found = fit("broadcast", 4, [1_000, 1_000_000], [2e6, 1e6])
    assert found is not None and found.alpha_ns is not None
    assert found.alpha_ns >= 0 and found.beta_ns_per_byte >= 0


@pytest.mark.parametrize(("op", "ranks"), [("barrier", 4), ("all_reduce", 1), ("unknown", 8)])
def test_operations_without_a_cost(op: str, ranks: int) -> None:
    assert fit(op, ranks, [1024], [1000.0]) is None
