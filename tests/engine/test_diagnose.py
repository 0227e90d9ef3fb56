"""The whole way: a store in, a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.errors import AdvisorError
from advisor.findings import FindingsReport, OutcomeKind, Severity
from advisor.store import Store
from tests.engine.helpers import store_of, write_rule

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
    assert report.verdict.title.startswith("Nothing to gain in communication")
    assert all(item.severity == Severity.INFO for item in report.findings)
    assert not [item for item in report.outcomes if item.outcome == OutcomeKind.ERROR]


def test_one_late_rank_is_one_finding_and_the_verdict() -> None:
    report = report_of(ranks=4, steps=8, tables={**EXPOSED, "lateness": LATE})
    urgent = [item for item in report.findings if item.severity != Severity.INFO]
    assert [item.rule for item in urgent] == ["straggler-rank"]
    assert report.verdict.cause == "straggler-rank"
    assert "Rank 2" in report.verdict.title
    assert report.verdict.savings_ns == 20_000_000


def test_one_rank_of_several_is_told_what_is_missing() -> None:
    tables = {
        "step_breakdown": [{**EXPOSED["step_breakdown"][0], "rank": 0}],
        "lateness": LATE,
    }
    report = report_of(ranks=1, world_size=4, steps=8, tables=tables)
    assert report.verdict.cause == "unknown"
    assert "1 of 4 ranks" in report.verdict.title
    blamed = {item.rule for item in report.findings} & {"straggler-rank", "slow-ring-link"}
    assert not blamed
    outcome = next(item for item in report.outcomes if item.rule == "straggler-rank")
    assert outcome.outcome == OutcomeKind.NOT_APPLICABLE
    assert outcome.how_to_capture


def test_partial_steps_give_no_verdict() -> None:
    steps = [{"rank": [0, 1], "step": [0, 1], "complete": False}]
    report = report_of(ranks=2, tables={"step": steps, "lateness": LATE})
    assert report.verdict.cause == "unknown"
    assert "No complete step" in report.verdict.title


@pytest.mark.parametrize(("steps", "known"), [(1, False), (8, True)])
def test_noise_is_told_only_where_steps_show_it(steps: int, known: bool) -> None:
    quiet = [{**EXPOSED["step_breakdown"][0], "exposed_comm_ns": 0, "rank": [0, 1]}]
    report = report_of(ranks=2, steps=steps, tables={"step_breakdown": quiet})
    assert "A step takes" in report.verdict.why
    assert ("are noise" in report.verdict.why) is known


@pytest.mark.parametrize(
    ("last_ms", "words"), [(180, "A step takes 100 ms, 110 ms in the mean, of which: "), (104, "")]
)
def test_shares_of_the_mean_step_say_so_where_it_is_not_the_typical_one(
    last_ms: int, words: str
) -> None:
    """Exposed for 44 ms in the mean step of 110 ms: no 40 % of the typical 100 ms."""
    lengths = [100] * 7 + [last_ms]
    steps = [
        {"rank": [0, 1], "step": [number], "step_ns": length * 1_000_000}
        for number, length in enumerate(lengths)
    ]
    parts = [
        {
            "rank": [0, 1],
            "step": [number],
            "window_ns": length * 1_000_000,
            "compute_ns": length * 600_000,
            "exposed_comm_ns": length * 400_000,
            "comm_ns": length * 400_000,
        }
        for number, length in enumerate(lengths)
    ]
    report = report_of(ranks=2, steps=8, tables={"step": steps, "step_breakdown": parts})
    assert "exposed communication 40 %" in report.verdict.why
    assert (words or "A step takes 100 ms: ") in report.verdict.why


def test_a_benchmark_alone_is_told_by_its_numbers() -> None:
    rows = [
        {"tool": "nccl-tests", "op": op, "ranks": 8, "bytes": size, "time_us": us, "busbw_gbps": bw}
        for op, size, us, bw in [
            ("all_gather", 8, 30.0, 0.0),
            ("all_reduce", 8, 34.5, 0.0),
            ("all_reduce", 8_000_000_000, 60_000.0, 232.0),
        ]
    ]
    verdict = report_of(ranks=0, tables={"bench": rows}).verdict
    assert verdict.title.startswith(
        "all_reduce reaches 232 GB/s bus bandwidth on 8 ranks (at 8 GB)"
    )
    assert "34.5 µs" in verdict.why
    rows[0]["wrong"] = 3
    verdict = report_of(ranks=0, tables={"bench": rows}).verdict
    assert verdict.title == "The benchmark found wrong results in all_gather."


def test_a_device_that_mostly_idles_is_not_called_healthy() -> None:
    idle = {"rank": [0, 1], "step": [0, 1, 2, 3], "window_ns": 100_000_000}
    busy = {"compute_ns": 900_000, "comm_ns": 100_000, "hidden_comm_ns": 100_000}
    tables = {"step_breakdown": [{**idle, **busy, "idle_ns": 99_000_000}]}
    verdict = report_of(ranks=2, steps=4, tables=tables).verdict
    assert verdict.cause == "unknown"
    assert verdict.title.startswith("The device idles for 99 % of the step")


def test_one_step_with_waiting_is_not_called_healthy() -> None:
    one = [{**EXPOSED["step_breakdown"][0], "step": 0, "exposed_wait_ns": 24_000_000}]
    verdict = report_of(ranks=4, steps=1, tables={"step_breakdown": one}).verdict
    assert verdict.cause == "unknown"
    assert "24 % of the step is exposed" in verdict.title


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
    ("changes", "title"),
    [
        (
            ["UPDATE step_breakdown SET compute_ns = 0, comm_ns = 0, exposed_comm_ns = 0"],
            "Neither compute nor communication was recorded:",
        ),
        (
            [
                "UPDATE step_breakdown SET compute_ns = 0, comm_ns = 0, exposed_comm_ns = 0 "
                "WHERE rank = 1"
            ],
            "Neither compute nor communication was recorded on rank 1:",
        ),
        (
            [
                "UPDATE step_breakdown SET comm_ns = 0, exposed_comm_ns = 0, hidden_comm_ns = 0",
                "DELETE FROM collective",
            ],
            "No communication was recorded",
        ),
    ],
)
def test_nothing_recorded_is_not_nothing_to_gain(changes: list[str], title: str) -> None:
    with store_of(ranks=4, steps=8) as store:
        store.con.execute(
            "UPDATE step_breakdown SET compute_ns = 9, comm_ns = 9, hidden_comm_ns = 9"
        )
        for change in changes:
            store.con.execute(change)
        verdict = diagnose(store).verdict
    assert verdict.cause == "unknown"
    assert verdict.title.startswith(title)
