"""The Python interface as a notebook sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import advisor
from advisor.api import Run
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
    assert "20 ms" in shown
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


TWO_JOBS = ("fixtures/lab-ddp-compute-bound", "fixtures/lab-zero1-loader-stall")


@pytest.fixture(scope="module")
def two_jobs() -> Iterator[Run]:
    with advisor.load(*TWO_JOBS) as run:
        yield run


@pytest.mark.long
@pytest.mark.slow
def test_findings_of_several_recordings_say_of_which_they_are(two_jobs: Run) -> None:
    found = two_jobs.findings()
    runs = {Path(job).name for job in TWO_JOBS}
    assert set(found["run"]) == runs
    assert [finding.run for finding in two_jobs.report.findings] == found["run"].tolist()
    shown = two_jobs._repr_html_().partition("<table>")[2]
    assert all(shown.count(f">{name}: ") == (found["run"] == name).sum() for name in runs)


@pytest.mark.slow
def test_integers_stay_integers_and_texts_are_arrow(two_jobs: Run) -> None:
    frames = [two_jobs.findings(), two_jobs.breakdown(), two_jobs.breakdown("run"),
              two_jobs.collectives(), two_jobs.ranks(), two_jobs.steps(),
              two_jobs.sql("FROM rank")]  # fmt: skip
    for frame in frames:
        assert len(frame)
        kinds = {str(dtype) for dtype in frame.dtypes}
        assert kinds <= {"string", "Int64", "Int32", "Int16", "double[pyarrow]", "bool[pyarrow]",
                         "string[pyarrow]", "object"}, kinds  # fmt: skip
    query = "SELECT unnest([1795225500371877276, NULL]) AS start_ns"
    (start,) = two_jobs.sql(query)["start_ns"].dropna()
    assert start == 1795225500371877276, "float64 would round it to 256 ns"
    assert two_jobs.findings()["savings_ns"].dtype == "Int64"


def test_every_frame_can_be_described(two_jobs: Run) -> None:
    for frame in (two_jobs.collectives(), two_jobs.steps(), two_jobs.ranks(), two_jobs.findings(),
                  two_jobs.breakdown(), two_jobs.breakdown("run")):  # fmt: skip
        count = len(frame)
        assert len(frame.describe()) == 8
        assert frame.describe(include="all").loc["count", "run"] == count
        assert repr(frame)
    calls = two_jobs.collectives()
    bounds = calls["start_ns"].agg(["min", "max"])
    mean = calls["start_ns"].describe()["mean"]
    assert bounds["min"] <= mean <= bounds["max"], "nothing overflows"
    assert all(isinstance(ranks, tuple) for ranks in two_jobs.findings()["ranks"].dropna())


def test_what_has_no_arrow_kernel_can_be_shown_and_described() -> None:
    with make_store() as store:
        frame = Run(store).sql(
            "SELECT * FROM (VALUES (INTERVAL 1 DAY, INTERVAL 2 MONTH, [[1], [2]], 3::UBIGINT, true,"
            " TIMESTAMP '2026-01-02'), (NULL, NULL, NULL, NULL, NULL, NULL)) v(iv, m, l, u, b, t)"
        )
    assert frame["iv"][0] == pd.Timedelta(days=1)
    assert frame["m"][0].months == 2
    assert frame["l"][0] == ((1,), (2,))
    assert str(frame["u"].dtype) == "UInt64"
    assert frame.isna().sum().tolist() == [1] * 6
    assert "1 days" in repr(frame)
    assert frame.describe(include="all").loc["count"].tolist() == [1] * 6


def test_frames_take_the_arithmetic_of_everyday() -> None:
    with make_store() as store:
        run = Run(store)
        frame = run.sql(
            "SELECT k, sum(n) AS n, 1.5 AS d, k::ENUM('a', 'b') AS e, max(x) AS x"
            " FROM (VALUES ('a', 3, 1), ('b', 4, NULL), ('b', 5, NULL)) v(k, n, x)"
            " GROUP BY k ORDER BY k"
        )
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "k": "string[pyarrow]", "n": "Int64", "d": "double[pyarrow]",
        "e": "string[pyarrow]", "x": "Int32",
    }  # fmt: skip
    assert (frame["n"] / 2 * frame["d"] + 0.5).tolist() == [2.75, 7.25]
    assert np.log2(frame["n"] - 1).tolist() == pytest.approx([1.0, 3.0])
    assert frame[frame["e"] == "b"]["n"].tolist() == [9]
    assert frame[frame["x"] > 0]["k"].tolist() == ["a"], "a row without a value is not chosen"
    assert frame.groupby("e")["n"].sum().to_dict() == {"a": 3, "b": 9}
    assert frame.merge(pd.DataFrame({"n": [9], "name": ["nine"]}))["name"].tolist() == ["nine"]
    assert frame["x"].astype(float).isna().tolist() == [False, True]
    assert frame["n"].to_numpy().dtype == np.int64


def test_a_sum_past_64_bits_is_a_float() -> None:
    with make_store() as store:
        frame = Run(store).sql(
            "SELECT sum(x) AS s FROM (VALUES (9e18::BIGINT), (9e18::BIGINT)) v(x)"
        )
    assert frame["s"].tolist() == [1.8e19]


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
