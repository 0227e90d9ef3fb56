"""`advisor ingest`: read traces once into a store that every other command opens."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from advisor.store.store import Store


@click.command(
    epilog="Examples:  advisor ingest traces/ -o run.duckdb\n\n"
    "           advisor ingest 'rank*.json.gz' nccl.log -o run.duckdb --lean"
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="Store to write: a DuckDB file, or a folder (ending in /) for Parquet by run and rank.",
)
@click.option("--run", default="run", show_default=True, help="Name of the run in the store.")
@click.option("--lean", is_flag=True, help="Keep device events, collectives and annotations only.")
@click.option("--force", is_flag=True, help="Replace an existing store.")
@click.option("--quiet", is_flag=True, help="No progress bar, no summary.")
def command(
    paths: tuple[Path, ...], output: str, run: str, lean: bool, force: bool, quiet: bool
) -> None:
    """Read PATHS (traces, logs, folders, patterns) of one run into a store."""
    from advisor.cli._progress import progress_bar
    from advisor.ingest import ingest
    from advisor.store.store import Store

    place = Path(output)
    as_folder = place.is_dir() or output.endswith("/")
    with _scratch(place) if as_folder else Store.create(place, force=force) as store:
        with progress_bar(paths, enabled=not quiet) as progress:
            ingest(paths, store, run=run, lean=lean, progress=progress)
        if as_folder:
            store.write_folder(place, force=force)
        else:
            store.save()
        summary = store.con.execute(
            "SELECT count(DISTINCT rank), sum(events_read), sum(events_dropped) FROM source"
        ).fetchall()
    if not quiet:
        ranks, read, dropped = (value or 0 for value in summary[0])
        lost = f", {dropped:,} lost (see the tables rank and source)" if dropped else ""
        click.echo(f"Wrote {output}: {ranks} ranks, {read:,} events{lost}", err=True)


@contextmanager
def _scratch(folder: Path) -> Iterator[Store]:
    """A store on disk for the time of writing a Parquet folder: traces may exceed the memory."""
    from advisor.store.store import Store

    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".advisor-", dir=folder.parent) as scratch,
        Store.create(Path(scratch) / "scratch.duckdb") as store,
    ):
        yield store
