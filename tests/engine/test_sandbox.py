"""A rule's SQL can read the run's tables and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.engine.facts import read_facts
from advisor.engine.sandbox import RuleSqlError, Sandbox
from advisor.engine.verdict.facts import read_situation
from tests.engine.helpers import RUN, store_of


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    store = store_of(ranks=2, steps=3)
    with Sandbox(store, RUN, timeout_s=20) as made:
        yield made
    store.close()


def test_reads_the_rows_of_its_run_only() -> None:
    store = store_of(ranks=2, steps=3)
    store.con.execute("INSERT INTO rank (run, rank) VALUES ('other', 7)")
    with Sandbox(store, RUN) as sandbox:
        assert sandbox.records("SELECT rank FROM rank ORDER BY 1") == [{"rank": 0}, {"rank": 1}]
    store.close()


def test_binds_only_what_the_text_names(sandbox: Sandbox) -> None:
    values = {"wanted": 1, "unused": 5}
    assert sandbox.records("SELECT rank FROM rank WHERE rank = $wanted", values) == [{"rank": 1}]


def test_decimals_are_numbers_that_python_adds(sandbox: Sandbox) -> None:
    (row,) = sandbox.records("SELECT 0.5 AS part, [0.5, NULL] AS parts, 0.25::DOUBLE AS real")
    assert row["part"] + row["real"] == 0.75
    assert row["parts"][0] + row["real"] == 0.75


def test_what_idling_less_gives_back_is_one_core_or_what_is_shared(sandbox: Sandbox) -> None:
    asked = "unnest([taken_back(4, 10, 20), taken_back(4, 10, 80), taken_back(NULL, NULL, 80)])"
    assert [row["part"] for row in sandbox.records(f"SELECT {asked} AS part")] == [0.25, 0.125, 0]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM rank",
        "SELECT 1; DELETE FROM rank",
        "WITH gone AS (DELETE FROM rank RETURNING *) SELECT * FROM gone",
        "CREATE TABLE mine (a INTEGER)",
        "ATTACH '/tmp/other.duckdb'",
        "INSTALL json",
        "LOAD json",
        "SET lock_configuration = false",
        "PRAGMA database_list",
        "COPY rank TO '/tmp/advisor-rule-test.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM no_such_table",
        "SELECT $missing",
        "SELEC 1",
        "",
    ],
)
def test_refuses_everything_but_reading(sandbox: Sandbox, sql: str) -> None:
    with pytest.raises(RuleSqlError):
        sandbox.select(sql, {})
    assert sandbox.records("SELECT count(*) AS ranks FROM rank") == [{"ranks": 2}]
    assert not Path("/tmp/advisor-rule-test.csv").exists()


def test_python_variables_are_out_of_reach(sandbox: Sandbox) -> None:
    secret = sandbox.con.sql("SELECT 1 AS a").to_arrow_table()
    assert secret.num_rows == 1
    with pytest.raises(RuleSqlError):
        sandbox.select("SELECT * FROM secret", {})


def test_raw_events_and_own_results_are_not_there(sandbox: Sandbox) -> None:
    for table in ("event", "activity", "finding", "source"):
        with pytest.raises(RuleSqlError):
            sandbox.select(f"SELECT * FROM {table}", {})


def test_a_query_that_does_not_end_is_stopped() -> None:
    with Sandbox(None, RUN, timeout_s=0.2) as sandbox:
        with pytest.raises(RuleSqlError, match="longer than"):
            sandbox.select(
                "SELECT sum(a.range * b.range) FROM range(9999999) a, range(9999999) b", {}
            )
        assert sandbox.records("SELECT 1 AS alive") == [{"alive": 1}]


def test_a_view_without_rows_holds_nothing_until_its_tables_have_some() -> None:
    with Sandbox(None, RUN) as sandbox:
        assert not sandbox.holds("tcp", "", {})
        assert not sandbox.holds("setting", "value = '1'", {})
        rows = [{"run": RUN, "kind": "env", "rank": 0, "name": "NCCL_DEBUG", "value": "INFO"}]
        sandbox.hold({"topology": rows})
        assert sandbox.holds("setting", "", {})
        assert not sandbox.holds("setting", "value = '1'", {})
        assert sandbox.holds("setting", "value = 'INFO'", {})
        sandbox.hold({})
        assert not sandbox.holds("setting", "", {})


def test_what_is_asked_of_empty_tables_is_neither_planned_nor_makes_views() -> None:
    with Sandbox(None, RUN) as sandbox:
        of = ("setting", "edge_gap")
        assert sandbox.records("SELECT no_column FROM gap_kind", of=of) == []
        assert "gap_kind" not in sandbox._made
        sandbox.hold({"topology": [{"run": RUN, "kind": "env", "name": "A", "value": "1"}]})
        assert sandbox.records("SELECT value FROM setting", of=of) == [{"value": "1"}]


def test_the_verdict_on_a_run_without_steps_works_out_no_gaps() -> None:
    with Sandbox(None, RUN) as sandbox:
        situation = read_situation([], sandbox, read_facts(sandbox), [])
        assert not situation.idling
        assert not {"gap_kind", "once_gap"} & sandbox._made.keys()


def test_views_follow_their_tables_and_come_back_from_one_that_fails() -> None:
    def place(near: str) -> dict[str, list[dict[str, object]]]:
        row = {"run": RUN, "kind": "rail", "calls": 1, "evidence": f'{{"near": {near}}}'}
        return {"link_excess": [row]}

    with Sandbox(None, RUN) as sandbox:
        for _ in range(3):
            for near, found in (("[1, 2]", [1, 2]), ("[3]", [3])):
                sandbox.hold(place(near))
                assert sandbox.records("SELECT near FROM slow_place") == [{"near": found}]
            sandbox.hold(place('["no rank"]'))
            with pytest.raises(RuleSqlError, match="no rank"):
                sandbox.records("SELECT near FROM slow_place")
            sandbox.hold({})
            assert not sandbox.records("SELECT near FROM slow_place")
