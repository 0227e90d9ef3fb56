"""What may help but cannot be shown is said so, in one sentence, and never beside 'nothing'."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.engine.calibration import calibration
from advisor.engine.catalogue import recipes
from advisor.findings import OutcomeKind, Severity, Verdict
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


UNSURE = "4000000 AS savings_ns, 2000000 AS savings_low_ns, 'info' AS severity"


def test_a_paired_gain_under_the_noise_of_steps_is_as_sure_as_its_rule(tmp_path: Path) -> None:
    verdict = verdict_with(tmp_path, UNSURE, apart=2_000_000)
    assert (verdict.kind, verdict.cause) == ("sure", "mine")
    assert verdict.savings_ns == 4_000_000
    assert verdict.values["probability"] == pytest.approx(calibration().rate("mine"))
    assert verdict.next_steps == ["do it", "Prove it: look again"]


@pytest.mark.parametrize("apart", [0, 2_000_000])
def test_an_option_that_may_give_nothing_is_no_cause(tmp_path: Path, apart: int) -> None:
    verdict = verdict_with(
        tmp_path,
        "4000000 AS savings_ns, 0 AS savings_low_ns, 6000000 AS savings_high_ns, "
        "'info' AS severity",
        apart=apart,
    )
    assert (verdict.kind, verdict.reason) == ("lossy", "exposed"), "12 % of the step is exposed"
    assert verdict.savings_ns is None
    assert verdict.values["option_ns"] == 6_000_000
    assert "up to 6 ms per step" in verdict.next_steps[0]
    assert verdict.next_steps[0].endswith(" do it")
    assert "advisor tune --sweep" in verdict.next_steps[1]


def test_less_than_a_percent_is_not_offered(tmp_path: Path) -> None:
    verdict = verdict_with(tmp_path, "700000 AS savings_ns, 0 AS savings_low_ns")
    assert verdict.kind == "lossy"
    assert not any("do it" in step for step in verdict.next_steps)


@pytest.mark.parametrize(
    ("format", "workload", "said", "not_said"),
    [
        ("kineto", None, "advisor record", "nvtx"),
        ("nsys", None, "nvtx", "advisor record"),
        ("kineto", '{"name": "gpt2"}', "advisor profile WORKLOAD --steps", ".py"),
    ],
)
def test_what_to_record_is_in_the_terms_of_the_tool_that_recorded(
    format: str, workload: str | None, said: str, not_said: str
) -> None:
    one = [{**BREAKDOWN[0], "step": [0]}]
    with store_of(ranks=2, steps=1, tables={"step_breakdown": one}) as store:
        store.con.execute(
            "INSERT INTO source (run, source_id, path, format) VALUES (?, 0, 'a', ?)", [RUN, format]
        )
        store.con.execute("UPDATE run SET workload = ?", [workload])
        verdict = diagnose(store, select=["unsteady-steps"]).verdict
    assert verdict.reason == "one-step"
    assert said in verdict.next_steps[0]
    assert not_said not in " ".join(verdict.next_steps)


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
