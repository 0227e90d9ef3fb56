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
IDLE = {**STEPS, "compute_ns": 65_000_000, "idle_ns": 35_000_000, "idle_host_ns": 30_000_000}


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
    report = report_of(ranks=4, steps=8, tables={"step_breakdown": [IDLE]})
    assert report.findings[0].rule == "launch-bound"
    assert report.verdict.title.endswith(
        ": 15 ms to 30 ms of every step (15 % to 30 %) can be recovered."
    )
    page = render(report, None, "html").replace("\N{NO-BREAK SPACE}", " ")
    assert "<strong>15 ms to 30 ms</strong> per step can be won back, 15 % to 30 % of" in page


def test_launch_gaps_come_with_the_doubt_that_the_profiler_made_them() -> None:
    """In the first sentence of why, which no view leaves out."""
    report = report_of(ranks=4, steps=8, tables={"step_breakdown": [IDLE]})
    first = report.verdict.why.split(". ")[0]
    assert "the profiler delays launches too, with_stack=True most of all" in first


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


def test_a_headline_that_rests_on_little_says_so() -> None:
    few = {"rank": 0, "step": 0, "window_ns": 100_000_000, "exposed_comm_ns": 85_000_000}
    few |= {"comm_ns": 85_000_000, "idle_ns": 15_000_000, "exposed_wait_ns": None}
    rank = {"rank": 0, "world_size": 300, "timeline": "host", "events_read": 18}
    tables = {"step_breakdown": [few], "rank": [rank]}
    title = report_of(ranks=1, steps=1, tables=tables).verdict.title
    assert title.startswith(
        "85 % of the step is exposed communication, as far as only 18 events of one step can tell; "
    )
