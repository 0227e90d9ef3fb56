"""`advisor schema`: the tables of a store, with what every column means."""

from __future__ import annotations

import json

import click

from advisor.errors import AdvisorError


@click.command(epilog="Example:  advisor schema collective")
@click.argument("tables", nargs=-1)
@click.option(
    "--format", "format_", type=click.Choice(["text", "json", "markdown"]), default="text"
)
def command(tables: tuple[str, ...], format_: str) -> None:
    """Print the tables and columns of a store, or only TABLES."""
    from advisor.store.schema import parse_schema

    known = parse_schema()
    unknown = [name for name in tables if name not in {table.name for table in known}]
    if unknown:
        raise AdvisorError(
            f"no table '{unknown[0]}'",
            hint="it takes names of tables (every store has the same): "
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
