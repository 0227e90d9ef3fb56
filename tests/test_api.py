"""The Python interface as a notebook sees it."""

from __future__ import annotations

from advisor.api import Run
from tests.report.support import make_healthy_report, make_report, make_store


def test_a_notebook_shows_the_verdict_first_and_what_to_do() -> None:
    with make_store() as store:
        run = Run(store)
        run._report = make_report(name="<b>rank 2</b>")
        shown = run._repr_html_()
    assert "<b>rank 2" not in shown, "names are data, not markup"
    assert shown.index("20 ms of every 100 ms step") < shown.index("<ol>") < shown.index("<table>")
    assert "20 ms ±1" in shown
    assert "straggler-rank" in shown


def test_a_healthy_run_shows_no_empty_table() -> None:
    with make_store() as store:
        run = Run(store)
        run._report = make_healthy_report()
        assert "table" not in run._repr_html_()
