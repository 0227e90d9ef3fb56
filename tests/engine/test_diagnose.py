"""The whole way: a store in, a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.errors import AdvisorError
from advisor.findings import FindingsReport, OutcomeKind, Severity
from advisor.metrics.models.bench_curves import curve_rows
from advisor.store import Store
from advisor.store.columns import insert_rows
from tests.engine.helpers import RUN, store_of, write_rule

EXPOSED = {
    "step_breakdown": [
        {
            "rank": [0, 1, 2, 3],
            "step": [0, 1, 2, 3, 4, 5, 6, 7],
            "window_ns": 100_000_000,
            "compute_ns": 70_000_000,
            "exposed_comm_ns": 24_000_000,
            "comm_ns": 24_000_000,
        }
    ]
}
LATE = [
    {
        "rank": 2,
        "calls": 80,
        "times_last": 78,
        "p_value": 1e-40,
        "median_lateness_ns": 20_000_000,
        "cost_ns_per_step": 20_000_000,
        "cost_low_ns": 19_000_000,
        "cost_high_ns": 21_000_000,
        "systematic": True,
        "reason": "late-launch",
    }
]


def report_of(**settings: Any) -> FindingsReport:
    store = store_of(**settings)
    report = diagnose(store, command="advisor diagnose x")
    stored = store.con.execute("SELECT count(*) FROM finding").fetchone()[0]
    outcomes = store.con.execute("SELECT count(*) FROM outcome").fetchone()[0]
    store.close()
    assert (stored, outcomes) == (len(report.findings), len(report.outcomes))
    return report


def test_a_healthy_run_has_nothing_to_gain() -> None:
    hidden = {"rank": [0, 1, 2, 3], "step": [*range(8)], "window_ns": 100_000_000}
    hidden |= {"compute_ns": 100_000_000, "comm_ns": 9_000_000, "hidden_comm_ns": 9_000_000}
    report = report_of(ranks=4, steps=8, tables={"step_breakdown": [hidden]})
    assert report.verdict.cause == "healthy"
    assert report.verdict.kind == "healthy"
    assert all(item.severity == Severity.INFO for item in report.findings)
    assert not [item for item in report.outcomes if item.outcome == OutcomeKind.ERROR]


@pytest.mark.slow
def test_one_late_rank_is_one_finding_and_the_verdict() -> None:
    report = report_of(ranks=4, steps=8, tables={**EXPOSED, "lateness": LATE})
    urgent = [item for item in report.findings if item.severity != Severity.INFO]
    assert [item.rule for item in urgent] == ["straggler-rank"]
    assert report.verdict.cause == "straggler-rank"
    assert report.verdict.finding == urgent[0].id
    assert report.verdict.savings_ns == 20_000_000


def test_one_rank_of_several_is_told_what_is_missing() -> None:
    tables = {
        "step_breakdown": [{**EXPOSED["step_breakdown"][0], "rank": 0}],
        "lateness": LATE,
    }
    report = report_of(ranks=1, world_size=4, steps=8, tables=tables)
    assert report.verdict.cause == "unknown"
    assert report.verdict.reason == "ranks-missing"
    assert report.verdict.values["missing"] == [1, 2, 3]
    blamed = {item.rule for item in report.findings} & {"straggler-rank", "slow-ring-link"}
    assert not blamed
    outcome = next(item for item in report.outcomes if item.rule == "straggler-rank")
    assert outcome.outcome == OutcomeKind.NOT_APPLICABLE
    assert outcome.how_to_capture


def test_partial_steps_give_no_verdict() -> None:
    steps = [{"rank": [0, 1], "step": [0, 1], "complete": False}]
    report = report_of(ranks=2, tables={"step": steps, "lateness": LATE})
    assert report.verdict.cause == "unknown"
    assert report.verdict.reason == "no-complete-step"


@pytest.mark.parametrize(("steps", "known"), [(1, False), (8, True)])
def test_noise_is_told_only_where_steps_show_it(steps: int, known: bool) -> None:
    quiet = [{**EXPOSED["step_breakdown"][0], "exposed_comm_ns": 0, "rank": [0, 1]}]
    report = report_of(ranks=2, steps=steps, tables={"step_breakdown": quiet})
    assert (report.verdict.values["noise_ns"] is not None) is known


def test_a_benchmark_alone_is_told_by_its_numbers() -> None:
    rows = [
        {"tool": "nccl-tests", "op": op, "ranks": 8, "bytes": size, "time_us": us, "busbw_gbps": bw}
        for op, size, us, bw in [
            ("all_gather", 8, 30.0, 0.0),
            ("all_reduce", 8, 34.5, 0.0),
            ("all_reduce", 8_000_000_000, 60_000.0, 232.0),
        ]
    ]
    store = store_of(ranks=0, tables={"bench": rows})
    insert_rows(store.con, "bench_curve", curve_rows(store.con, RUN))
    verdict = diagnose(store).verdict
    assert (verdict.cause, verdict.reason) == ("benchmark", "benchmark")
    assert (verdict.values["op"], verdict.values["best_gbps"]) == ("all_reduce", 232.0)
    assert (verdict.values["ranks"], verdict.values["smallest_ns"]) == (8, 34_500)
    rows[0]["wrong"] = 3
    store = store_of(ranks=0, tables={"bench": rows})
    insert_rows(store.con, "bench_curve", curve_rows(store.con, RUN))
    verdict = diagnose(store).verdict
    assert (verdict.kind, verdict.cause) == ("sure", "benchmark-wrong-results")


def test_a_device_that_mostly_idles_is_not_called_healthy() -> None:
    idle = {"rank": [0, 1], "step": [0, 1, 2, 3], "window_ns": 100_000_000}
    busy = {"compute_ns": 900_000, "comm_ns": 100_000, "hidden_comm_ns": 100_000}
    tables = {"step_breakdown": [{**idle, **busy, "idle_ns": 99_000_000}]}
    verdict = report_of(ranks=2, steps=4, tables=tables).verdict
    assert (verdict.kind, verdict.reason, verdict.severity) == ("lossy", "idle", "warning")
    assert verdict.values["idle"] == pytest.approx(0.99)


def test_one_step_with_waiting_is_not_called_healthy() -> None:
    one = [{**EXPOSED["step_breakdown"][0], "step": 0, "exposed_wait_ns": 24_000_000}]
    verdict = report_of(ranks=4, steps=1, tables={"step_breakdown": one}).verdict
    assert verdict.cause == "unknown"
    assert verdict.reason == "one-step"
    assert verdict.values["exposed"] == pytest.approx(0.24)


@pytest.mark.slow
def test_a_shifted_clock_changes_nothing_here() -> None:
    """Residuals, not offsets, enter the rules: an aligned shift must not show."""
    tables = {**EXPOSED, "lateness": LATE}
    plain = report_of(ranks=4, steps=8, tables=tables)
    store = store_of(ranks=4, steps=8, tables=tables)
    store.con.execute("UPDATE rank SET clock_offset_ns = 400000000 WHERE rank = 1")
    shifted = diagnose(store, command="advisor diagnose x")
    store.close()
    assert shifted.findings == plain.findings


def test_broken_user_rules_do_not_stop_the_run(tmp_path: Path) -> None:
    write_rule(tmp_path, "evil", "DELETE FROM rank")
    write_rule(tmp_path, "mine", "SELECT 20000000 AS savings_ns")
    store = store_of(ranks=2, steps=8)
    report = diagnose(store, rule_dirs=[tmp_path])
    assert store.con.execute("SELECT count(*) FROM rank").fetchone()[0] == 2
    store.close()
    outcomes = {item.rule: item.outcome for item in report.outcomes}
    assert outcomes["evil"] == OutcomeKind.ERROR
    assert outcomes["mine"] == OutcomeKind.FIRED
    assert report.verdict.cause == "mine"


def test_parameters_can_be_changed_and_are_checked() -> None:
    store = store_of(ranks=4, steps=8, tables=EXPOSED)
    with pytest.raises(AdvisorError, match="no rule parameter"):
        diagnose(store, params={"exposed-communication.nope": 1})
    with pytest.raises(AdvisorError, match="must be a number"):
        diagnose(store, params={"exposed-communication.min_share": "much"})
    assert diagnose(store, params={"exposed-communication.min_share": 0.9})
    store.close()


def test_a_read_only_store_is_diagnosed_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.duckdb"
    made = Store.create(path)
    made.con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', '')")
    made.save()
    made.close()
    with Store.open(path) as store:
        assert diagnose(store).runs[0].run == "run"


def test_a_store_without_runs_is_an_error() -> None:
    with Store.create() as store, pytest.raises(AdvisorError, match="no run"):
        diagnose(store)


@pytest.mark.parametrize(
    ("changes", "reason", "empty"),
    [
        (
            ["UPDATE step_breakdown SET compute_ns = 0, comm_ns = 0, exposed_comm_ns = 0"],
            "nothing-recorded",
            [],
        ),
        (
            [
                "UPDATE step_breakdown SET compute_ns = 0, comm_ns = 0, exposed_comm_ns = 0 "
                "WHERE rank = 1"
            ],
            "nothing-recorded",
            [1],
        ),
        (
            [
                "UPDATE step_breakdown SET comm_ns = 0, exposed_comm_ns = 0, hidden_comm_ns = 0",
                "DELETE FROM collective",
            ],
            "no-communication",
            [],
        ),
    ],
)
def test_nothing_recorded_is_not_healthy(changes: list[str], reason: str, empty: list[int]) -> None:
    with store_of(ranks=4, steps=8) as store:
        store.con.execute(
            "UPDATE step_breakdown SET compute_ns = 9, comm_ns = 9, hidden_comm_ns = 9"
        )
        for change in changes:
            store.con.execute(change)
        verdict = diagnose(store).verdict
    assert (verdict.kind, verdict.reason) == ("inconclusive", reason)
    assert verdict.values.get("empty", []) == empty


def test_the_moment_of_a_slow_link_is_a_call_of_its_own_rank() -> None:
    """GIVEN a longer call between ranks 2 and 3 than those of the link from 0 to 1."""
    call = {
        "op": "all_reduce",
        "group_size": 2,
        "bytes": 1 << 20,
        "start_ns": 0,
        "matched_ranks": 2,
    }
    calls = [
        {**call, "call_id": 1, "rank": [0, 1], "process_group": "a", "end_ns": 20_000_000,
         "dur_ns": 20_000_000, "transfer_ns": 20_000_000, "step": 0},
        {**call, "call_id": 2, "rank": [2, 3], "process_group": "b", "end_ns": 30_000_000,
         "dur_ns": 30_000_000, "transfer_ns": 30_000_000, "step": 0},
    ]  # fmt: skip
    link = {"kind": "edge", "src": 0, "dst": 1, "calls": 96, "measured_gbps": 5,
            "expected_gbps": 50, "expected_from": "stagger", "excess_ns_per_step": 18_000_000,
            "excess_low_ns": 16_000_000, "excess_high_ns": 20_000_000, "p_value": 0.0001,
            "evidence": '{"share": [0.7, 0.75, 0.8]}'}  # fmt: skip
    tables = {**EXPOSED, "collective": calls, "link_excess": [link]}
    found = report_of(ranks=4, steps=8, tables=tables).findings
    (slow,) = [item for item in found if item.rule == "slow-ring-link"]
    assert slow.evidence.window is not None
    assert slow.evidence.window.call_ids == [1]


def test_a_benchmark_of_unknown_ranks_asks_for_them() -> None:
    rows = [
        {"tool": "osu", "op": "all_reduce", "bytes": size, "time_us": us, "algbw_gbps": gbps}
        for size, us, gbps in [(8, 28.3, 0.0), (64_000_000, 5_800.0, 11.0)]
    ]
    store = store_of(ranks=0, tables={"bench": rows})
    insert_rows(store.con, "bench_curve", curve_rows(store.con, RUN))
    verdict = diagnose(store).verdict
    assert (verdict.reason, verdict.values["best_gbps"]) == ("benchmark", 11.0)
    assert verdict.values["lacks_ranks"]
    assert "mpirun -np" in verdict.next_steps[0]
