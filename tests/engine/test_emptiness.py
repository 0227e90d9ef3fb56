"""What is told of a statement's emptiness without asking it is so when it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from advisor.config import parsed
from advisor.engine import emptiness, load_catalogue
from advisor.engine.emptiness import finds_nothing, needs_of, needs_of_all
from advisor.engine.examples import fill
from advisor.engine.sandbox import RuleSqlError, Sandbox
from advisor.engine.views import views

# Each with the tables of which any one, when it alone is empty, leaves nothing to find.
STATEMENTS = {
    "SELECT x FROM a": "a",
    "FROM a": "a",
    "SELECT 1 FROM a, b": "ab",
    "SELECT 1 FROM a JOIN b USING (x)": "ab",
    "SELECT 1 FROM a SEMI JOIN b USING (x)": "ab",
    "SELECT 1 FROM a LEFT JOIN b USING (x)": "a",
    "SELECT 1 FROM a ANTI JOIN b USING (x)": "a",
    "SELECT 1 FROM a RIGHT JOIN b USING (x)": "b",
    "SELECT 1 FROM a FULL JOIN b USING (x)": "",
    "SELECT 1 FROM a POSITIONAL JOIN b": "",
    "SELECT 1 FROM a WHERE x IN (SELECT x FROM b) AND x > 0": "ab",
    "SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b)": "ab",
    "SELECT 1 FROM a WHERE x NOT IN (SELECT x FROM b)": "a",
    "SELECT 1 FROM a WHERE NOT EXISTS (SELECT 1 FROM b)": "a",
    "SELECT 1 FROM a WHERE x = 1 OR EXISTS (SELECT 1 FROM b)": "a",
    "SELECT x, count(*) FROM a GROUP BY x": "a",
    "SELECT x, count(*) FROM a GROUP BY ALL": "a",
    "SELECT count(*) FROM a GROUP BY ALL": "",
    "SELECT sum(x) FROM a GROUP BY ROLLUP (x)": "",
    "SELECT count(*) FROM a": "",
    "SELECT geomean(x) FROM a": "",
    "SELECT count(*) FROM a HAVING count(*) = 0": "",
    "SELECT 1 FROM a HAVING true": "",
    "SELECT x, sum(x) OVER () FROM a": "a",
    "SELECT (SELECT max(x) FROM b) FROM a": "a",
    "SELECT x FROM (SELECT x FROM a) q LIMIT 3": "a",
    "WITH b AS (SELECT x FROM a) SELECT x FROM b": "a",
    "WITH a AS (SELECT x FROM a) SELECT x FROM a": "a",
    "WITH a AS (SELECT 1 AS x) SELECT x FROM a": "",
    "WITH q AS (SELECT count(*) AS x FROM a) SELECT x FROM q": "",
    "SELECT x FROM a EXCEPT SELECT x FROM b": "a",
    "SELECT x FROM a INTERSECT SELECT x FROM b": "ab",
    "SELECT x FROM a UNION ALL SELECT x FROM b": "",
    "SELECT 1": "",
    "VALUES (1)": "",
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute("CREATE TABLE a (x INT); CREATE TABLE b (x INT)")
        yield made


@pytest.mark.parametrize(("statement", "leaves_nothing"), STATEMENTS.items())
def test_what_is_told_is_so(
    con: duckdb.DuckDBPyConnection, statement: str, leaves_nothing: str
) -> None:
    needs = needs_of(con, statement)
    for empty in ("a", "b", "ab"):
        con.execute("DELETE FROM a; DELETE FROM b")
        for table in {"a", "b"} - {*empty}:
            con.execute(f"INSERT INTO {table} VALUES (1), (2)")
        told = finds_nothing(needs, frozenset(empty).__contains__)
        if empty != "ab":
            assert told == (empty in leaves_nothing)
        assert not told or con.execute(statement).fetchall() == []


def test_both_halves_of_a_union_must_be_empty(con: duckdb.DuckDBPyConnection) -> None:
    needs = needs_of(con, "SELECT x FROM a UNION ALL SELECT x FROM b")
    assert finds_nothing(needs, lambda _: True)
    assert not finds_nothing(needs, lambda name: name == "a")


def test_of_what_is_no_select_nothing_is_told(con: duckdb.DuckDBPyConnection) -> None:
    assert needs_of(con, "DELETE FROM a") is False
    assert needs_of(con, "no SQL") is False


def test_rules_and_views_find_nothing_in_nothing_where_that_is_told() -> None:
    rules, _ = load_catalogue()
    told = 0
    with Sandbox(None, "example") as sandbox:
        values = {name: param.default for rule in rules for name, param in rule.params.items()}
        for sql in (*(view.select for view in views().values()), *(rule.sql for rule in rules)):
            if finds_nothing(needs_of(sandbox.con, sql), sandbox._is_empty):
                told += 1
                assert sandbox.select(sql, values)[1] == [], sql
    assert told > 40


def test_a_rule_is_asked_where_its_example_fires() -> None:
    rules, _ = load_catalogue()
    with Sandbox(None, "example") as sandbox:
        for rule in rules:
            fill(sandbox, next(one for one in rule.examples if one.expect == "fired"))
            assert not finds_nothing(needs_of(sandbox.con, rule.sql), sandbox._is_empty), rule.id


def test_a_known_statement_is_not_asked_for_nothing() -> None:
    sql = "SELECT rank FROM link_excess WHERE error('asked')"
    with Sandbox(None, "example") as asked, pytest.raises(RuleSqlError):
        asked.select(sql, {})
    with Sandbox(None, "example", known={sql: "link_excess"}) as sandbox:
        assert sandbox.records(sql) == []


def test_needs_are_worked_out_the_second_time_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsed, "_folder", lambda: tmp_path)
    assert needs_of_all(["SELECT x FROM a"]) == {}
    assert needs_of_all(["SELECT x FROM a"]) == {"SELECT x FROM a": "a"}
    monkeypatch.setattr(emptiness, "_worked_out", lambda _: pytest.fail("worked out again"))
    assert needs_of_all(["SELECT x FROM a"]) == {"SELECT x FROM a": "a"}
    monkeypatch.setattr(parsed, "_folder", lambda: None)
    assert needs_of_all(["SELECT x FROM a"]) == {}
