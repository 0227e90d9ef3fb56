"""Ranks wait for one another, and for none in particular: no setting of communication ends it."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.findings import FindingsReport
from tests.engine.helpers import store_of

BREAKDOWN = [
    {
        "rank": [0, 1],
        "step": [*range(10)],
        "window_ns": 100_000_000,
        "compute_ns": 80_000_000,
        "exposed_comm_ns": 20_000_000,
        "comm_ns": 20_000_000,
        "exposed_wait_ns": 12_000_000,
    }
]


def report_with(
    costs_ns: tuple[int, int], *, calls: int = 10, p_value: float = 1.0, apart: int = 0
) -> FindingsReport:
    """What is said where each rank keeps the other waiting; steps grow by ``apart`` ns each."""
    lateness: list[dict[str, Any]] = [
        {
            "rank": rank,
            "calls": calls,
            "times_last": calls // 2,
            "p_value": p_value,
            "cost_ns_per_step": cost,
            "cost_low_ns": cost // 3,
            "cost_high_ns": 2 * cost,
            "systematic": False,
        }
        for rank, cost in enumerate(costs_ns)
    ]
    store = store_of(ranks=2, steps=10, tables={"step_breakdown": BREAKDOWN, "lateness": lateness})
    store.con.execute("UPDATE step SET end_ns = end_ns + ? * step", [apart])
    with store:
        report = diagnose(store, select=["jitter"])
    assert [item.rule for item in report.findings] == ["jitter"]
    return report


@pytest.mark.parametrize(
    ("costs_ns", "calls", "apart"),
    [((7_000_000, 5_000_000), 10, 0), ((9_000_000, 3_000_000), 40, 2_500_000)],
    ids=["in too few calls for a test", "in the noise"],
)
def test_waits_that_nobody_causes_are_a_loss_and_no_healthy_run(
    costs_ns: tuple[int, int], calls: int, apart: int
) -> None:
    verdict = report_with(costs_ns, calls=calls, apart=apart).verdict
    # As its finding: it may be that of a few steps.
    assert (verdict.kind, verdict.cause, verdict.severity) == ("lossy", "jitter", "info")
    assert verdict.values["gain_ns"] == 12_000_000


def test_a_third_of_the_step_is_never_of_no_account() -> None:
    report = report_with((20_000_000, 15_000_000))
    assert [item.severity for item in report.findings] == ["warning"]


def test_waits_beyond_the_noise_remain_a_cause() -> None:
    verdict = report_with((7_000_000, 5_000_000), calls=40).verdict
    assert verdict.cause == "jitter"
