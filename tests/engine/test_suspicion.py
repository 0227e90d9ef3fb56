"""What may help but cannot be shown is said so, in one sentence, and never beside 'nothing'."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.engine.catalogue import recipes
from advisor.findings import OutcomeKind, Severity, Verdict
from advisor.ingest import ingest
from advisor.metrics.derive import derive
from advisor.store.store import Store
from advisor.vocabulary.words import lower_first
from tests.engine.helpers import RUN, store_of, write_rule

BREAKDOWN = [
    {
        "rank": [0, 1],
        "step": [*range(8)],
        "window_ns": 100_000_000,
        "compute_ns": 88_000_000,
        "exposed_comm_ns": 12_000_000,
        "comm_ns": 12_000_000,
        "exposed_wait_ns": 6_000_000,
    }
]


def verdict_with(
    folder: Path,
    columns: str,
    *,
    format: str = "kineto",
    apart: int = 0,
    workload: str | None = None,
) -> Verdict:
    """The verdict where one rule finds ``columns``; steps are ``apart`` ns longer each time."""
    rule = write_rule(folder, "mine", f"SELECT {columns}", headline="DDP could send less")
    rule.write_text(f"paired: true\n{rule.read_text()}")
    store = store_of(ranks=2, steps=8, tables={"step_breakdown": BREAKDOWN})
    store.con.execute("UPDATE step SET end_ns = end_ns + ? * step", [apart])
    store.con.execute(
        "INSERT INTO source (run, source_id, path, format) VALUES (?, 0, 'a', ?)", [RUN, format]
    )
    store.con.execute("UPDATE run SET workload = ?", [workload])
    with store:
        report = diagnose(store, rule_dirs=[folder], select=["mine"])
    assert [item.severity for item in report.findings] == [Severity.INFO]
    return report.verdict


def test_a_gain_under_the_noise_asks_for_more_steps(tmp_path: Path) -> None:
    verdict = verdict_with(
        tmp_path,
        "4000000 AS savings_ns, 2000000 AS savings_low_ns, 'info' AS severity",
        apart=2_000_000,
    )
    assert verdict.cause == "unknown"
    assert verdict.title.startswith("Suspected, not sure: DDP could send less, for perhaps 4 ms of")
    assert "recordings like this differ by" in verdict.title
    assert verdict.title.endswith("steps would tell.")
    assert "othing" not in verdict.title
    first, second = verdict.next_steps
    assert "otherwise idle machines" in first
    assert "--steps" in first
    assert second == "or try, for about 4 ms per step: do it"


def test_an_estimate_that_reaches_far_down_asks_for_a_trial(tmp_path: Path) -> None:
    verdict = verdict_with(
        tmp_path, "9000000 AS savings_ns, 1500000 AS savings_low_ns, 'info' AS severity"
    )
    assert verdict.title == (
        "Suspected, not sure: DDP could send less, for perhaps 9 ms of every 100 ms step; the "
        "estimate reaches down to 1.5 ms, and a recording with the change would tell."
    )
    assert verdict.next_steps == ["try, for about 9 ms per step: do it", "prove it: look again"]


@pytest.mark.parametrize("low", [0, 900_000])
@pytest.mark.parametrize("apart", [0, 2_000_000])
def test_an_option_that_may_give_nothing_is_no_suspicion_of_a_healthy_run(
    tmp_path: Path, low: int, apart: int
) -> None:
    verdict = verdict_with(
        tmp_path,
        f"4000000 AS savings_ns, {low} AS savings_low_ns, 6000000 AS savings_high_ns, "
        "'info' AS severity",
        apart=apart,
    )
    assert verdict.cause == "healthy"
    assert verdict.savings_ns == 0
    assert verdict.title.startswith(
        "No sure gain in communication: 12 % of the step is exposed; what is listed to try may "
        "give up to 6 ms of every 10"
    )
    assert verdict.title.endswith("ms, or hardly any.")
    assert "compute 88 %" in verdict.why
    assert verdict.next_steps == ["to try, for up to 6 ms per step and perhaps hardly any: do it"]


def test_who_ran_a_workload_file_is_not_told_of_a_script(tmp_path: Path) -> None:
    columns = "4000000 AS savings_ns, 2000000 AS savings_low_ns, 'info' AS severity"
    verdict = verdict_with(tmp_path, columns, apart=2_000_000, workload='{"name": "gpt2"}')
    assert "advisor profile --steps" in verdict.next_steps[0]
    assert not [line for line in verdict.next_steps if ".py" in line]


def test_less_than_a_percent_is_not_called_nothing_either(tmp_path: Path) -> None:
    verdict = verdict_with(tmp_path, "700000 AS savings_ns, 0 AS savings_low_ns")
    assert verdict.cause == "healthy"
    assert verdict.title.startswith("Hardly anything to gain in communication: 12 % of the step")
    assert verdict.next_steps == []


@pytest.mark.parametrize(
    ("format", "said", "not_said"),
    [("kineto", "advisor.record", "NVTX"), ("nsys", "NVTX", "advisor.record")],
)
def test_what_to_record_is_told_for_the_tool_that_recorded(
    tmp_path: Path, format: str, said: str, not_said: str
) -> None:
    columns = "4000000 AS savings_ns, 2000000 AS savings_low_ns, 'info' AS severity"
    verdict = verdict_with(tmp_path, columns, format=format, apart=2_000_000)
    assert said in verdict.next_steps[0]
    assert not_said not in verdict.next_steps[0]


@pytest.mark.parametrize(
    ("formats", "tool"),
    [
        (["kineto"], "schedule("),
        (["nsys"], "nvtx"),
        (["nsys", "kineto"], "schedule("),
        (["nccl-tests"], "A benchmark has no steps"),
        ([], "schedule("),
    ],
)
def test_missing_evidence_is_captured_by_the_tool_that_was_used(
    formats: list[str], tool: str
) -> None:
    store = store_of(ranks=2, steps=0)
    for number, format in enumerate(formats):
        store.con.execute(
            "INSERT INTO source (run, source_id, path, format) VALUES (?, ?, 'a', ?)",
            [RUN, number, format],
        )
    with store:
        report = diagnose(store, select=["unsteady-steps"])
    (outcome,) = report.outcomes
    assert outcome.outcome is OutcomeKind.NOT_APPLICABLE
    assert tool in outcome.how_to_capture


def test_each_other_tool_of_a_recipe_is_a_format_that_is_read() -> None:
    known = {"nsys", "nccl-tests", "nccl-log", "flight-recorder", "op-table"}
    assert {name for recipe in recipes().values() for name in recipe.by_format} <= known


@pytest.mark.parametrize(
    ("title", "inside"),
    [
        ("Rank 1 is late", "rank 1 is late"),
        ("DDP sends", "DDP sends"),
        ("13 MB", "13 MB"),
        ("", ""),
    ],
)
def test_a_title_stands_inside_a_sentence(title: str, inside: str) -> None:
    assert lower_first(title) == inside


def test_the_suspicion_is_the_findings_first(fixtures_dir: Path) -> None:
    """Of the slow link (8 ms, surely some) and wide gradients (23 ms, perhaps none) the link."""
    with Store.create() as store:
        ingest([fixtures_dir / "lab-ddp-slow-link"], store)
        derive(store)
        report = diagnose(store)
    first = report.findings[0]
    assert first.rule == "slow-ring-link"
    assert first.where == "2 -> 1"
    assert lower_first(first.title.rstrip(".")) in report.verdict.title
