"""The communication roofline against figures worked out by hand."""

from __future__ import annotations

import math

import pytest

from advisor.model.roofline import critical_batch, regime, ridge_flops_per_byte, roofline

PEAK, NVLINK, NETWORK = 989e12, 450.0, 50.0


def test_gpt3_at_batch_1_has_the_published_ratio() -> None:
    # 6 N s FLOPs over 2 N 2 bytes (fp16 gradients there and back), s = 2048: 3,072 FLOP/byte.
    parameters = 175e9
    found = roofline(6 * parameters * 2048, 2 * parameters * 2, PEAK, NETWORK)
    assert found.ccr_flops_per_byte == pytest.approx(3072)
    assert found.ridge_flops_per_byte == pytest.approx(19_780)
    assert found.regime == "communication-bound"
    assert roofline(6 * parameters * 2048, 4 * parameters, PEAK, NVLINK).regime == "compute-bound"


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.1, "communication-bound"),
        (0.2, "mostly-communication"),
        (0.79, "mostly-communication"),
        (0.8, "balanced"),
        (1.2, "balanced"),
        (1.21, "compute-bound"),
        (math.inf, "compute-bound"),
    ],
)
def test_regimes_change_at_the_published_shares(ratio: float, expected: str) -> None:
    assert regime(ratio) == expected


def test_critical_batch_reaches_the_ridge_and_one_less_does_not() -> None:
    per_sample, traffic = 6 * 1e9 * 2048, 4e9
    batch = critical_batch(per_sample, traffic, PEAK, NETWORK)
    assert roofline(batch * per_sample, traffic, PEAK, NETWORK).ratio >= 1
    assert roofline((batch - 1) * per_sample, traffic, PEAK, NETWORK).ratio < 1


def test_no_traffic_is_compute_bound_and_nonsense_is_refused() -> None:
    assert roofline(1e12, 0, PEAK, NETWORK).regime == "compute-bound"
    with pytest.raises(ValueError, match="positive"):
        ridge_flops_per_byte(PEAK, 0)
    with pytest.raises(ValueError, match="negative"):
        roofline(-1, 1, PEAK, NETWORK)
