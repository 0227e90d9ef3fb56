"""`advisor ingest`: read traces once into a store that every other command opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import _options as options
from advisor.cli._options import argument, option
from advisor.cli._output import check_folder_target, folder_target, refuse_inputs, say_some
from advisor.config.atomic_files import remove
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.store.store import Store


@options.command(
    epilog="Examples:  advisor ingest traces/ -o run.duckdb\n\n"
    "           advisor ingest 'rank*.json.gz' nccl.log -o run.duckdb --lean\n\n"
    "           advisor ingest s3://bucket/run/ -o /shared/run/ --ray 10.0.0.1:6379"
)
def command(
    paths: tuple[str, ...] = argument(required=True, type=click.Path()),
    output: str = option(
        "-o",
        "--output",
        type=click.Path(),
        required=True,
        help="Store to write: a DuckDB file, or a folder (ending in /) for Parquet by run and "
        "rank.",
    ),
    run: str = option(default="run", show_default=True, help="Name of the run in the store."),
    lean: bool = option(
        help="Keep device events, collectives, annotations and what they rest on: same findings."
    ),
    force: bool = option(help="Replace an existing store (and nothing else)."),
    ray_address: str | None = option(
        "--ray",
        is_flag=False,
        flag_value="",
        metavar="[ADDRESS]",
        help="Spread the work over a Ray cluster (put last: without ADDRESS the running one, else "
        "a local one). PATHS may then be fsspec URLs, and the output is a folder that all see.",
    ),
    quiet: bool = option("-q", "--quiet", help="No progress bar, no summary."),
) -> None:
    """Read PATHS (traces, logs, folders, patterns) of one run into a store."""
    place = folder_target(output) or Path(output)
    as_folder = place.is_dir() or output.endswith("/")
    refuse_inputs([place], paths)
    if ray_address is None:
        _here([Path(path) for path in paths], place, as_folder, run, lean, force, quiet)
    elif as_folder:
        how = {"run": run, "lean": lean, "force": force, "address": ray_address or None}
        _on_ray(paths, output, quiet, **how)
    else:
        raise click.UsageError("--ray writes a folder: let --output end in /")


def _here(
    paths: list[Path], place: Path, as_folder: bool, run: str, lean: bool, force: bool, quiet: bool
) -> None:
    from advisor.cli._progress import progress_bar
    from advisor.ingest import ingest, refuse_nothing
    from advisor.store.notes import OTHER_FORMAT
    from advisor.store.store import Store

    if as_folder:
        check_folder_target(place)
    with _scratch(place) if as_folder else Store.create(place, force=force) as store:
        with progress_bar(paths, enabled=not quiet) as progress:
            ingest(paths, store, run=run, lean=lean, progress=progress)
            refuse_nothing(store, run)
        if as_folder:
            store.write_folder(place, force=force)
        else:
            store.save()
        summary = store.con.execute(
            "SELECT (SELECT count(*) FROM rank), sum(events_read), sum(events_dropped) FROM source"
        ).fetchall()
        unread = store.con.execute(
            "SELECT path, note FROM source WHERE run = ? "
            "AND NOT coalesce(list_contains(codes, ?), false) AND (format = 'unknown' OR "
            "try_cast(drop_reasons AS JSON) ->> '$.refused' IS NOT NULL) ORDER BY source_id",
            [run, OTHER_FORMAT],
        ).fetchall()
    if not quiet:
        _say(f"{place}/" if as_folder else str(place), *(value or 0 for value in summary[0]))
        files = [f"not read: {path}: {note.removeprefix(f'{path}: ')}" for path, note in unread]
        say_some(files, rest="the table source")


def _on_ray(paths: tuple[str, ...], output: str, quiet: bool, **how: Any) -> None:
    from advisor.cli._progress import cluster_bar
    from advisor.ingest.ray_map import ingest_on_ray

    with cluster_bar(enabled=not quiet) as progress:
        summary = ingest_on_ray(paths, output, progress=progress, **how)
    if not quiet:
        _say(output, summary.ranks, summary.events_read, summary.events_dropped)
    error = summary.error(output)
    if error is not None:
        raise error


def _say(output: str, ranks: int, read: int, dropped: int) -> None:
    lost = f", {dropped:,} lost (see the tables rank and source)" if dropped else ""
    click.echo(
        f"Wrote {output}: {ranks:,} {'rank' if ranks == 1 else 'ranks'}, {read:,} events{lost}",
        err=True,
    )


@contextmanager
def _scratch(folder: Path) -> Iterator[Store]:
    """A store on disk for the time of writing a Parquet folder: traces may exceed the memory."""
    from advisor.store.leftovers import SCRATCH_STORE, clear_leftovers, scratch_folder
    from advisor.store.store import Store
    from advisor.store.target import writing

    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(folder)
        scratch = scratch_folder(folder)
    try:
        with Store.create(scratch / SCRATCH_STORE) as store:
            yield store
    except AdvisorError as error:
        if error.where.startswith(str(scratch)):  # of which nobody knows
            raise AdvisorError(error.message, where=f"{folder}/", hint=error.hint) from error
        raise
    finally:
        remove(scratch)
