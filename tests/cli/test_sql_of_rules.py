"""A finding's query can be run again, and what a table prints steers no terminal."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from advisor.cli import explain, sql
from advisor.engine import load_catalogue
from advisor.errors import AdvisorError
from advisor.report.commands import inline_code
from advisor.store import Store, running


@pytest.mark.slow
def test_the_query_of_a_rule_runs_with_its_parameters(fixtures_dir: Path) -> None:
    recording = str(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank")
    answer = CliRunner().invoke(
        sql.command, [recording, "--rule", "straggler-rank", "--format", "json"]
    )
    assert answer.exit_code == 0, answer.output
    (row,) = json.loads(answer.stdout)
    assert (row["rank"], row["times_last"], row["calls"]) == (1, 50, 52)


def test_a_query_may_name_the_views_that_rules_read(fixtures_dir: Path) -> None:
    recording = str(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank")
    query = "SELECT f.step_ns, count(*) AS rows FROM facts f, rank_step GROUP BY ALL"
    answer = CliRunner().invoke(sql.command, [recording, query, "--format", "json"])
    assert answer.exit_code == 0, answer.output
    (row,) = json.loads(answer.stdout)
    assert row["rows"] > 0
    assert 250e6 < row["step_ns"] < 300e6
    answer = CliRunner().invoke(sql.command, [recording, "SELECT nope FROM facts"])
    assert isinstance(answer.exception, AdvisorError)
    assert "nope" in str(answer.exception)


@pytest.mark.parametrize("arguments", [[], ["SELECT 1", "--rule", "jitter"]])
def test_one_query_is_asked_for(fixtures_dir: Path, arguments: list[str]) -> None:
    answer = CliRunner().invoke(sql.command, [str(fixtures_dir), *arguments])
    assert answer.exit_code == 2
    assert "QUERY, or --rule" in answer.output


def test_no_rule_of_that_name(fixtures_dir: Path) -> None:
    answer = CliRunner().invoke(sql.command, [str(fixtures_dir), "--rule", "nope"])
    assert "no rule is called 'nope'" in str(answer.exception)


def test_a_table_prints_no_control_characters(fixtures_dir: Path) -> None:
    recording = str(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank")
    answer = CliRunner().invoke(sql.command, [recording, "SELECT 'a' || chr(27) || '[2J' AS x"])
    assert "\x1b" not in answer.stdout
    assert "a\N{REPLACEMENT CHARACTER}[2J" in answer.stdout


def test_a_query_without_end_is_stopped(fixtures_dir: Path) -> None:
    recording = str(fixtures_dir / "flight-gloo-desync")
    endless = "SELECT count(*) FROM range(10000000000) a, range(1000000) b WHERE a.range = -1"
    answer = CliRunner().invoke(sql.command, [recording, endless, "--timeout", "0.2"])
    assert isinstance(answer.exception, AdvisorError)
    assert "--timeout" in answer.exception.hint


def test_explain_shows_no_template_code() -> None:
    for rule in load_catalogue(())[0]:
        page = explain.explain_rule(rule)
        assert "{{" not in page, rule.id
        assert "{%" not in page, rule.id
        assert "assumes: \n" not in page, rule.id
        assert not page.rstrip().endswith("assumes:"), rule.id


def test_a_setting_with_commas_is_one_piece_of_code() -> None:
    text = inline_code("set NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV, then run")
    assert "<code>NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV</code>, then run" in str(text)


def test_a_closed_connection_does_not_stop_the_others() -> None:
    closed = running.stoppable(duckdb.connect())
    closed.close()
    running.stop_queries()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "holds no statement"),
        (" ; ", "holds no statement"),
        ("-- only words", "holds no statement"),
        ("SELECT 1; SELECT 2", "holds 2 statements"),
    ],
)
def test_one_statement_is_run_and_no_other_is_dropped(
    fixtures_dir: Path, query: str, said: str
) -> None:
    answer = CliRunner().invoke(sql.command, ["--", str(fixtures_dir / "gpt2-tiny-ddp-2"), query])
    assert isinstance(answer.exception, AdvisorError)
    assert said in answer.exception.message


def test_a_semicolon_at_the_end_is_no_second_statement() -> None:
    sql._refuse_all_but_one("SELECT ';' AS semicolon; -- the end")


@pytest.mark.parametrize("kept", [False, True], ids=["traces", "store"])
def test_a_query_that_would_change_a_table_is_refused(
    fixtures_dir: Path, tmp_path: Path, kept: bool
) -> None:
    """GIVEN traces or a store WHEN a query is none that reads THEN it is refused, in one line."""
    place = fixtures_dir / "gpt2-tiny-ddp-2"
    if kept:
        place = tmp_path / "run.duckdb"
        with Store.create(place) as store:
            store.save()
    for query in ("DROP TABLE collective", "CREATE TABLE t AS SELECT 1", "DELETE FROM rank"):
        answer = CliRunner().invoke(sql.command, [str(place), query])
        assert isinstance(answer.exception, AdvisorError), query
        assert "a run is only read, and this is" in str(answer.exception)
        assert answer.stdout == ""


@pytest.mark.slow
def test_a_query_that_only_describes_is_answered(fixtures_dir: Path) -> None:
    place = str(fixtures_dir / "gpt2-tiny-ddp-2")
    for query in ("DESCRIBE collective", "SUMMARIZE rank", "SHOW TABLES", "EXPLAIN FROM rank"):
        answer = CliRunner().invoke(sql.command, [place, query])
        assert answer.exit_code == 0, (query, answer.exception)
        assert "rank" in answer.stdout
