"""A recording without steps has none to count."""

from __future__ import annotations

from advisor.report import render
from advisor.report.sections import quality
from tests.report.support import make_report


def test_a_whole_trace_beside_a_run_with_steps_has_none_to_count() -> None:
    report = make_report()
    report.runs.append(
        report.runs[0].model_copy(update={"run": "other", "step_source": "whole-trace"})
    )
    runs = quality.build(report, None, {}).figures[0].table
    assert runs is not None
    assert "median step or whole trace" in runs.columns
    assert [row[3:5] for row in runs.rows] == [[5, 0], ["–", "–"]]
    html = render(report, None, "html")
    assert "A step takes" not in html, "of which run?"
