"""`advisor schema`: the tables of a store, with what every column means or what this one holds."""

import json
from pathlib import Path
from typing import Literal

import click

from advisor.cli import _options as options
from advisor.cli._complete import table_names
from advisor.cli._options import argument, option
from advisor.errors import AdvisorError


@options.command(
    epilog="Examples:  advisor schema collective\n\n           advisor schema run.duckdb"
)
def command(
    tables: tuple[str, ...] = argument(metavar="[TABLE]... | STORE", shell_complete=table_names),
    format_: Literal["text", "json", "markdown"] = option("--format", default="text"),
) -> None:
    """Print the tables and columns that every store has, or only TABLEs.

    With a STORE: its schema version, its runs, and how many rows each of its tables holds.
    """
    from advisor.store.schema import parse_schema
    from advisor.store.store import is_store

    if len(tables) == 1 and is_store(Path(tables[0])):
        _describe(Path(tables[0]), format_)
        return
    known = parse_schema()
    unknown = [name for name in tables if name not in {table.name for table in known}]
    if unknown:
        raise AdvisorError(
            f"no table '{unknown[0]}'",
            hint="it takes a store, or names of tables (every store has the same): "
            + ", ".join(table.name for table in known),
        )
    chosen = [table for table in known if not tables or table.name in tables]
    if format_ == "json":
        click.echo(json.dumps([table.as_dict() for table in chosen], indent=1))
        return
    for table in chosen:
        if format_ == "markdown":
            click.echo(f"## {table.name}\n\n{table.comment}\n\n| column | type | meaning |")
            click.echo("|---|---|---|")
            for column in table.columns:
                click.echo(f"| {column.name} | {column.type} | {column.comment} |")
            click.echo("")
            continue
        click.secho(table.name, bold=True)
        click.echo(f"  {table.comment}")
        width = max(len(column.name) for column in table.columns)
        kind = max(len(column.type) for column in table.columns)
        for column in table.columns:
            click.echo(f"    {column.name:<{width}}  {column.type:<{kind}}  {column.comment}")
        click.echo("")


def _describe(place: Path, format_: str) -> None:
    from advisor.store.schema import parse_schema
    from advisor.store.store import SCHEMA_VERSION, Store

    with Store.open(place) as store:
        runs = store.con.execute("SELECT run, advisor_version FROM run ORDER BY ALL").fetchall()
        rows = {
            table.name: store.con.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0]
            for table in parse_schema()
        }
    if format_ == "json":
        made = [{"run": run, "advisor_version": version} for run, version in runs]
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "runs": made, "rows": rows}))
        return
    click.echo(f"{place}: schema version {SCHEMA_VERSION}")
    for run, version in runs:
        click.echo(f"run '{run}', written by advisor {version}")
    width = max(map(len, rows))
    if format_ == "markdown":
        click.echo("\n| table | rows |\n|---|---:|")
    for table, count in rows.items():
        click.echo(
            f"| {table} | {count} |"
            if format_ == "markdown"
            else f"  {table:<{width}}  {count:>12,}"
        )
