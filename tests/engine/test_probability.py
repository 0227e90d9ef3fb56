"""The probability of a finding: what it rests on, and the counts that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import load_catalogue
from advisor.engine.calibration import Calibration
from advisor.engine.verdict.probability import judged, shown_share
from advisor.findings import Basis
from benchmarks.reliability import shown, weight_of

RULES = {rule.id: rule for rule in load_catalogue()[0]}
FLOOR_NS = 1_000_000


@pytest.mark.parametrize(
    ("rule", "row", "basis"),
    [
        ("straggler-rank", {"savings_ns": 9e6, "savings_low_ns": 8e6}, Basis.RULE),
        ("memory-headroom", {"savings_ns": 9e6, "savings_low_ns": 8e6}, Basis.UNTRIED),
        ("straggler-rank", {"savings_ns": 9e6, "savings_low_ns": 0}, Basis.OPTION),
        ("straggler-rank", {"savings_ns": 9e6, "savings_low_ns": 0, "is_counted": True},
         Basis.RULE),
        ("network-bound", {"savings_ns": 9e6, "savings_low_ns": 8e6, "is_option": True},
         Basis.OPTION),
        ("slow-ring-link", {"savings_ns": 9e6, "probability": 0.31}, Basis.EVIDENCE),
        ("nccl-error", {}, Basis.RECORDED),
        ("exposed-communication", {"savings_ns": 9e6, "savings_low_ns": 8e6}, Basis.LOSS),
        ("exposed-communication", {"savings_ns": None}, Basis.RECORDED),
    ],
)  # fmt: skip
def test_what_a_probability_rests_on(rule: str, row: dict[str, Any], basis: Basis) -> None:
    found, probability = judged(RULES[rule], row, FLOOR_NS)
    assert found is basis
    assert (probability is None) == (basis in (Basis.RECORDED, Basis.OPTION, Basis.LOSS))
    if basis is Basis.EVIDENCE:
        assert probability == 0.31


def test_a_rule_s_rate_is_drawn_towards_that_of_untried_ones() -> None:
    known = Calibration(5, (39, 33), {"often": (95, 95), "once": (1, 1)})
    untried = 33.5 / 40
    assert known.rate("any") == pytest.approx(untried)
    assert known.rate("often") == pytest.approx((95 + 5 * untried) / 100)
    assert known.rate("once") == pytest.approx((1 + 5 * untried) / 6)


def test_a_gain_that_reaches_into_the_noise_is_less_sure() -> None:
    assert shown_share(9.0, 2.0, 1.0) == 1.0
    assert shown_share(9.0, None, 1.0) == 1.0
    # The low end of a 95 % interval on the floor: 2.5 % lie below.
    assert shown_share(9.0, 1.0, 1.0) == pytest.approx(0.975)
    assert shown_share(1.0, 0.0, 1.0) == pytest.approx(0.5)
    row = {"savings_ns": 2e6, "savings_low_ns": 5e5}
    _, noisy = judged(RULES["straggler-rank"], row, FLOOR_NS)
    _, sure = judged(RULES["straggler-rank"], row, 400_000)
    assert noisy is not None and sure is not None
    assert noisy < sure
    _, by_its_own = judged(RULES["straggler-rank"], row | {"floor_ns": 2e6}, 400_000)
    assert by_its_own == pytest.approx(sure / 2)


def test_the_weight_is_large_where_rules_are_alike_and_small_where_they_differ() -> None:
    alike = weight_of([(100, 90)] * 20)
    apart = weight_of([(100, 100)] * 18 + [(100, 0)] * 2)
    assert alike == 50
    assert apart <= 2


def test_gains_that_may_lie_in_the_noise_are_as_often_above_it_as_is_said() -> None:
    """Predictions of the lab against measured steps."""
    gains = shown()
    said = sum(probability for probability, _ in gains) / len(gains)
    above = sum(real for _, real in gains) / len(gains)
    assert len(gains) > 10
    assert abs(said - above) < 0.15


def test_one_pass_without_marks_makes_no_host_sure() -> None:
    """Nothing tells whether other passes do the same: of one that did, three in four would."""
    row = {"savings_ns": 10_000_000, "savings_low_ns": 5_000_000}
    for rule, share in (("launch-bound", 0.75), ("straggler-rank", 1.0)):
        (_, marked), (_, unmarked) = (
            judged(RULES[rule], row, FLOOR_NS, unmarked=one) for one in (False, True)
        )
        assert marked is not None
        assert unmarked == pytest.approx(share * marked)
