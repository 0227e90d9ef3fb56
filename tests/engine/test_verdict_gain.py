"""What a headline promises: no single number where it would be the most that can be had."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.findings import Finding, FindingsReport, Severity
from advisor.report import render
from advisor.vocabulary.words import group_text
from tests.engine.helpers import store_of

STEPS = {"rank": [0, 1, 2, 3], "step": [*range(8)], "window_ns": 100_000_000}
IDLE = {**STEPS, "compute_ns": 65_000_000, "idle_ns": 35_000_000}
WAITED = {"rank": STEPS["rank"], "step": STEPS["step"], "kind": "synchronisation",
          "idle_ns": 30_000_000, "name": "aten::item"}  # fmt: skip


def report_of(**settings: Any) -> FindingsReport:
    with store_of(**settings) as store:
        return diagnose(store, command="advisor diagnose x")


def finding(gain: int | None, low: int | None, high: int | None) -> Finding:
    return Finding(
        id="x",
        run="r",
        rule="x",
        severity=Severity.INFO,
        title="x",
        message="x",
        savings_ns=gain,
        savings_low_ns=low,
        savings_high_ns=high,
    )


def test_an_estimate_at_its_upper_end_is_said_with_both_ends() -> None:
    report = report_of(ranks=4, steps=8, tables={"step_breakdown": [IDLE], "host_gap": [WAITED]})
    assert report.findings[0].rule == "blocking-sync"
    assert report.verdict.values["at_top"]
    assert "15–30 ms of every 100 ms step" in report.verdict.title
    page = render(report, None, "html").replace("\N{NO-BREAK SPACE}", " ")
    assert "15–30 ms of every 100 ms step" in page


@pytest.mark.parametrize(
    ("gain", "low", "high", "ends"),
    [
        (30, 15, 30, (15, 30)),
        (27, 0, 27, (0, 27)),
        (20, 10, 40, None),
        (20, 20, 20, None),
        (20, None, None, None),
        (None, 1, 2, None),
    ],
)
def test_only_an_estimate_near_the_top_of_its_interval_is_a_range(
    gain: int | None, low: int | None, high: int | None, ends: tuple[int, int] | None
) -> None:
    assert finding(gain, low, high).gain_range_ns() == ends


def test_a_group_is_named_with_the_ranks_that_were_read() -> None:
    assert group_text(8, [0, 1]) == "8 ranks, 2 of them read"
    assert group_text(2, [1, 0, 1]) == "2 ranks"
    assert group_text(1, [0]) == "1 rank"
