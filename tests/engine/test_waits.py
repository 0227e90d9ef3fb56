"""Ranks wait for one another, and for none in particular: no setting of communication ends it."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.engine.sandbox import Sandbox
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


def test_waits_that_both_ranks_cause_are_no_gain_in_communication() -> None:
    verdict = report_with((7_000_000, 5_000_000)).verdict
    assert verdict.cause == "healthy"
    assert verdict.title == (
        "Nothing to gain in communication settings: 20 % of the step is exposed; ranks wait 12 ms "
        "of every 100 ms step for one another, no rank behind more than 58 % of it, as on a busy "
        "machine."
    )
    assert "compute 80 %" in verdict.why
    assert verdict.next_steps[0].startswith("if the machine had no other job: Garbage collection")


def test_waits_that_one_rank_causes_in_too_few_calls_stay_a_suspicion() -> None:
    verdict = report_with((1_000_000, 11_000_000)).verdict
    assert verdict.cause == "unknown"
    assert verdict.title.startswith("Suspected, not sure: ranks wait 12 ms of every 100 ms step")
    assert "in too few calls to say who causes it" in verdict.title


def test_waits_in_the_noise_with_enough_calls_have_no_rank_to_blame() -> None:
    verdict = report_with((9_000_000, 3_000_000), calls=40, apart=2_500_000).verdict
    assert verdict.cause == "healthy"
    assert "for one another, with no rank to blame, as on a busy machine" in verdict.title


def test_waits_beyond_the_noise_remain_a_cause() -> None:
    verdict = report_with((7_000_000, 5_000_000), calls=40).verdict
    assert verdict.cause == "jitter"


@pytest.mark.parametrize(("exposed_ns", "queries"), [(1_000_000, 0), (20_000_000, 1)])
def test_whose_recording_is_cut_is_asked_only_where_it_matters(
    monkeypatch: pytest.MonkeyPatch, exposed_ns: int, queries: int
) -> None:
    asked: list[str] = []
    records = Sandbox.records

    def listen(self: Sandbox, sql: str, *rest: Any) -> list[dict[str, Any]]:
        asked.append(sql)
        return records(self, sql, *rest)

    monkeypatch.setattr(Sandbox, "records", listen)
    rows = [{**BREAKDOWN[0], "exposed_comm_ns": exposed_ns}]
    with store_of(ranks=2, steps=10, tables={"step_breakdown": rows}) as store:
        diagnose(store, select=["jitter"])
    assert sum(sql == "SELECT rank FROM whole_rank" for sql in asked) == queries
