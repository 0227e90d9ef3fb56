"""The score on other people's recordings: its judgement on hand-made reports, and one real case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import advisor
from benchmarks.lab import shared
from benchmarks.lab.shared import Known

LATE = Known("x", [], "a log", ("straggler-rank",), (7,), says="5 of 8", gain_ns=5e6)
NOBODY = Known("y", [], "one rank")


def report(*findings: dict[str, Any], outcomes: list[dict[str, str]] | None = None) -> Any:
    return {"findings": list(findings), "outcomes": outcomes or []}


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "rule": "straggler-rank",
        "title": "Rank 7 is late at 5 of 8 collectives",
        "where": "rank 7",
        "severity": "critical",
        "ranks": [7],
        "savings_ns": 4_000_000,
        "savings_low_ns": 3_000_000,
        "savings_high_ns": 6_000_000,
        **changes,
    }


def test_the_known_cause_place_and_gain_are_right() -> None:
    assert shared.judge(LATE, report(finding())).wrong == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"rule": "jitter"}, "named jitter first"),
        ({"ranks": [7, 6]}, "named rank [7, 6]"),
        ({"title": "Rank 7 is late"}, "does not say 5 of 8"),
        ({"savings_high_ns": 4_500_000}, "gain 5 ms outside [3000000, 4500000]"),
        ({"savings_low_ns": None}, "gain 5 ms outside None"),
    ],
)
def test_each_way_to_miss_is_a_miss(change: dict[str, Any], wrong: str) -> None:
    assert shared.judge(LATE, report(finding(**change), finding())).wrong == [wrong]


def test_no_finding_and_a_failed_rule_are_misses() -> None:
    broken = [{"rule": "jitter", "outcome": "error"}]
    assert shared.judge(LATE, report(outcomes=broken)).wrong == [
        "error in jitter",
        "named nothing first",
    ]


def test_a_command_that_fails_is_a_miss_even_where_nobody_is_to_blame(tmp_path: Path) -> None:
    (wrong,) = shared.judge(NOBODY, shared.diagnose([tmp_path / "absent.json"])).wrong
    assert wrong.startswith("exit 2: ")


def test_where_nobody_is_to_blame_only_blame_is_wrong() -> None:
    assert shared.judge(NOBODY, report(finding(rule="launch-bound"))).wrong == []
    result = shared.judge(NOBODY, report(finding(rule="launch-bound"), finding(severity="info")))
    assert result.wrong == ["blames straggler-rank (rank 7)"]


def test_truths_come_from_the_files_beside_the_recordings(shared_data: Path) -> None:
    truths = {case.name: case for case in shared.known(shared_data)}
    assert truths["flight recorder, lock_gil_1st"].ranks == (9, 14)
    assert len(truths["flight recorder, gpu_error_2nd"].inputs) == 16
    table = truths["op table, 8 ranks, 4 stages"]
    assert table.ranks == (6, 7)
    assert table.gain_ns == pytest.approx(329e6, rel=0.01)


@pytest.mark.slow
def test_one_step_of_dlrm_names_the_late_rank_and_says_that_it_is_one_step(
    shared_data: Path,
) -> None:
    with advisor.load(shared_data / "dlrm_8xV100") as run:
        found = run.report
    assert found.findings[0].rule == "straggler-rank"
    assert found.findings[0].ranks == [7]
    assert found.verdict.cause == "unknown"
    assert found.verdict.reason == "one-step"
