"""A recording without steps is told as one trace, and nothing in it is per step."""

from __future__ import annotations

import re

from advisor.report import render
from advisor.report.sections import quality
from tests.report.support import make_report, make_store


def test_nothing_is_per_step_where_the_whole_trace_was_taken_as_one() -> None:
    report = make_report(name="all_reduce per step")
    report.runs[0].step_source = "whole-trace"
    with make_store(steps=1) as store:
        html = render(report, store, "html").replace("\N{NO-BREAK SPACE}", " ")
    for title in ("Where does the time go?", "Times are per trace"):
        assert title in html
    ours = re.sub(r"<code.*?</code>|<h1>.*?</h1>|<article.*?</article>", "", html, flags=re.DOTALL)
    for words in ("Where does the step go", "What a step sends", "ms per step", "calls per step",
                  "median step", "A step takes", "used step"):  # fmt: skip
        assert words not in ours
    assert "no steps marked" in ours
    assert "all_reduce per step" in html, "a name stays"


def test_a_whole_trace_beside_a_run_with_steps_has_none_to_count() -> None:
    report = make_report()
    report.runs.append(
        report.runs[0].model_copy(update={"run": "other", "step_source": "whole-trace"})
    )
    tables = dict(quality.build(report, None).data["tables"])
    runs = tables["Runs"]
    assert "median step or whole trace" in runs.columns
    assert [row[3:5] for row in runs.rows] == [[5, 0], ["–", "–"]]
    html = render(report, None, "html")
    assert "A step takes" not in html, "of which run?"
