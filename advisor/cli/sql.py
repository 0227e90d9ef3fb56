"""`advisor sql`: ask a run anything, read-only and without reach beyond its tables."""

from __future__ import annotations

import csv
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._complete import rule_names
from advisor.cli._options import ABOVE_ZERO, POSITIVE, argument, option
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.store.store import Store

_TABLE_WIDTH = 10_000


@options.command(
    epilog='Example:  advisor sql run.duckdb "SELECT op, count(*), sum(bytes) FROM collective '
    'GROUP BY op"'
)
def command(
    run: Path = argument(),
    query: str | None = argument(required=False),
    rule: str | None = option(
        metavar="RULE",
        shell_complete=rule_names,
        help="Run this rule's own query instead of QUERY.",
    ),
    format_: Literal["table", "json", "csv"] = option(
        "--format", default="table", show_default=True, help="How to print the rows."
    ),
    limit: int = option(type=POSITIVE, default=1000, show_default=True, help="Rows of a table."),
    timeout: float = option(
        type=ABOVE_ZERO,
        default=300,
        show_default=True,
        metavar="SECONDS",
        help="Stop QUERY after this long; a rule's query has 20 s of processor time.",
    ),
) -> None:
    """Run one SQL QUERY on RUN: a store, a folder of traces or a trace.

    Traces are read and analysed in memory; a store (`advisor diagnose RUN --store FILE`) answers at
    once. `advisor schema` lists the tables; the views that rules read can be asked as well.

    The connection is read-only and cannot touch files, extensions or the network.
    """
    if (query is None) == (rule is None):
        raise click.UsageError("give a QUERY, or --rule RULE")
    if rule is not None:
        columns, rows = _of_rule(run, rule)
    else:
        assert query is not None
        most = limit + 1 if format_ == "table" else None
        columns, rows = _of_query(run, query, most, timeout)
    if format_ == "json":
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        click.echo(json.dumps(records, default=str, ensure_ascii=False, indent=1))
    elif format_ == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows(rows)
    else:
        _print_table(columns, rows, limit)


def _of_query(
    path: Path, query: str, most: int | None, timeout_s: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    from advisor.engine.time_limit import TimeLimit
    from advisor.engine.views import views
    from advisor.store.reading import reading, refuse_writing

    _refuse_all_but_one(query)
    refuse_writing(query)
    with _open(path, query) as opened:
        if not _asked(opened, query).isdisjoint(views()):
            columns, rows = _on_views(opened, query, {}, timeout_s)
            return columns, rows[:most]
        opened.lock_down()
        limit = TimeLimit(timeout_s, opened.con.interrupt, cpu=time.monotonic)
        with reading(opened.con, query, ()) as result:
            shown = result if most is None else result.limit(most)
            try:
                with limit:
                    return list(shown.columns), shown.fetchall()
            except duckdb.InterruptException as error:
                raise AdvisorError(
                    f"took longer than {timeout_s:g} s, and was stopped",
                    where="query",
                    hint="ask for less, or give it longer: --timeout SECONDS",
                ) from error
            finally:
                limit.close()


def _refuse_all_but_one(query: str) -> None:
    """Raise AdvisorError for no statement, or several: only one result could be shown."""
    import duckdb

    try:
        count = len(duckdb.extract_statements(query))
    except duckdb.Error:
        return  # running the query says what is wrong with it
    if count != 1:
        raise AdvisorError(
            "holds no statement" if count == 0 else f"holds {count} statements",
            where="query",
            hint='give one, for example "SELECT op, count(*) FROM collective GROUP BY op"'
            + ("" if count == 0 else "; join several with UNION ALL or WITH"),
        )


def _of_rule(path: Path, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """A rule's query on the views that rules see, with its parameters as they stand in its file."""
    from advisor import api
    from advisor.engine import load_catalogue
    from advisor.engine.allowance import RULE_S

    rule = next((rule for rule in load_catalogue(())[0] if rule.id == name), None)
    if rule is None:
        raise AdvisorError(f"no rule is called '{name}'", hint="list them: advisor rules")
    values = {key: param.default for key, param in rule.params.items()}
    return _on_views(api.load(path).store, rule.sql, values, RULE_S)


def _on_views(
    store: Store, query: str, values: Mapping[str, Any], timeout_s: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Answered run by run, as rules are: views are of one run. Of several, the first column."""
    from advisor.engine.sandbox import RuleSqlError, Sandbox

    runs = [str(row[0]) for row in store.con.execute("SELECT run FROM run ORDER BY 1").fetchall()]
    columns: list[str] = []
    found: list[tuple[Any, ...]] = []
    for run in runs:
        with Sandbox(store, run, timeout_s=timeout_s) as sandbox:
            try:
                columns, rows = sandbox.select(query, values)
            except RuleSqlError as error:
                hint = 'a view and its columns: advisor sql RUN "FROM facts LIMIT 1"'
                raise AdvisorError(str(error), where="query", hint=hint) from error
        found += [(run, *row) if len(runs) > 1 else tuple(row) for row in rows]
    return ["run", *columns] if len(runs) > 1 else columns, found


def _open(path: Path, query: str) -> Store:
    """The run's store; traces are read, and what ``query`` asks for is analysed, in memory."""
    from advisor import api
    from advisor.engine.views import views
    from advisor.ingest.from_store import is_derived
    from advisor.store.schema import analysed_tables
    from advisor.store.store import Store, is_store

    stored = is_store(path)
    worked_out = {*analysed_tables(), *views()}
    if stored:
        opened = Store.open(path)
        if is_derived(opened) or _asked(opened, query).isdisjoint(worked_out):
            return opened
        opened.close()
    run = api.load(path)
    if _asked(run.store, query) & {"finding", "outcome"}:
        run.diagnose()
    click.echo(
        f"{'This store holds only what was read' if stored else 'These are traces'}: "
        "analysed for this query. To keep the analysis:\n"
        f"  advisor diagnose {shlex.quote(str(path))} --store FILE",
        err=True,
    )
    return run.store


def _asked(store: Store, query: str) -> set[str]:
    import duckdb

    try:
        return set(store.con.get_table_names(query))
    except duckdb.Error:
        return set()  # running the query says what is wrong with it


def _print_table(columns: list[str], rows: list[tuple[Any, ...]], limit: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from advisor.report.clean import printable

    table = Table(box=None, header_style="bold", pad_edge=False)
    numeric = [
        all(isinstance(row[index], int | float) for row in rows if row[index] is not None)
        for index in range(len(columns))
    ]
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(Text(name), justify="right" if right and rows else "left")
    for row in rows[:limit]:
        table.add_row(*(Text("" if value is None else printable(value)) for value in row))
    # Wider than any terminal: a cut column name or number would be worse than a folded line.
    console = Console(width=_TABLE_WIDTH)
    console.print(table)
    if len(rows) > limit:
        click.echo(f"(first {limit} rows; --limit or --format csv for more)", err=True)
