"""The Python interface as a notebook sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.api import Run
from advisor.cli import _watch
from advisor.errors import AdvisorError
from tests.report.support import make_healthy_report, make_report, make_store


def test_a_notebook_shows_the_verdict_first_and_what_to_do() -> None:
    with make_store() as store:
        run = Run(store)
        run._report = make_report(name="<b>rank 2</b>")
        run._report.verdict.next_steps = ["prove it: `step ms` must fall <1 ms"]
        shown = run._repr_html_()
    assert "<b>rank 2" not in shown, "names are data, not markup"
    assert shown.index("20 ms of every 100 ms step") < shown.index("<ol>") < shown.index("<table>")
    assert "20 ms ±1" in shown
    assert "straggler-rank" in shown
    assert "<code>step ms</code> must fall &lt;1" in shown


def test_a_healthy_run_shows_no_empty_table() -> None:
    with make_store() as store:
        run = Run(store)
        run._report = make_healthy_report()
        assert "table" not in run._repr_html_()


def test_a_run_says_what_it_holds() -> None:
    with advisor.load("fixtures/gpt2-tiny-ddp-2") as run:
        assert repr(run).startswith("<advisor.Run run: 2 ranks, ")


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE collective",
        "DELETE FROM rank",
        "EXPLAIN ANALYZE DELETE FROM rank",
        "SELECT 1; DROP TABLE rank",
        "SET threads = 1",
        "",
    ],
)
def test_a_query_leaves_the_run_as_it_is(query: str) -> None:
    with make_store() as store:
        run = Run(store)
        before = run.arrow("SELECT * FROM rank")
        for ask in (run.sql, run.arrow):
            with pytest.raises(AdvisorError, match=r"a run is only read|one query is expected"):
                ask(query)
        assert before.num_rows > 0
        assert run.arrow("SELECT * FROM rank").equals(before), "and the run answers further queries"


def test_a_query_takes_parameters_and_pivots() -> None:
    with make_store() as store:
        run = Run(store)
        assert run.sql("SELECT ? + 1 AS n", [2])["n"].tolist() == [3]
        assert run.arrow("PIVOT (SELECT 'a' AS k, 2 AS n) ON k USING sum(n)").num_rows == 1


def test_a_query_that_fails_says_where_tables_are_listed() -> None:
    with make_store() as store, pytest.raises(AdvisorError, match="advisor schema"):
        Run(store).sql("SELECT * FROM no_such_table")


def test_a_closed_run_says_what_to_do_and_keeps_its_report() -> None:
    run = Run(make_store())
    run._report = make_report(name="rank 2")
    run.close()
    run.close()
    for ask in (run.breakdown, run.collectives, lambda: run.sql("SELECT 1"), run.render):
        with pytest.raises(AdvisorError, match=r"run is closed.*\n  load it again"):
            ask()
    assert repr(run) == "<advisor.Run closed>"
    assert len(run.findings()) > 0


def test_an_empty_folder_that_is_watched_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            (tmp_path / "rank0.json").write_text("{}")

    monkeypatch.setattr(_watch.time, "sleep", nap)
    _watch.watch([str(tmp_path)], 5.0, lambda: "diagnosed", rounds=1)
    said = capsys.readouterr()
    assert said.err.count(f"Nothing in {tmp_path} yet") == 1
    assert "diagnosed" in said.out
