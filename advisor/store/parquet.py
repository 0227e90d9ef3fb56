"""The exchange form of a store: a folder of Parquet files, one per table, run and rank.

What a writer wrote appears at once when it has ended (:mod:`.batches`), so that readers never see
half a rank, and ranks can be added by another process or on another day. Opening such a folder
gives the same tables and views as a DuckDB file: events stay on disk, small tables are loaded.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from advisor.config.atomic_files import PRIVATE, half_written, write_atomic
from advisor.errors import AdvisorError
from advisor.store.batches import (
    PER_RANK,
    PER_RUN,
    Batch,
    Index,
    clear_unfinished,
    finish,
    has_rows,
    new_token,
    run_folder,
)

SCHEMA_VERSION_FILE = "advisor-store.json"
_LAYOUT = 2  # 1 had no batches: nothing told whether a rank was whole
_AS_VIEWS = ("event", "comm_event")
_MERGED = ("run", "process_group")  # every batch of ranks repeats them


def is_parquet_store(path: Path) -> bool:
    """Whether ``path`` is a folder written by :func:`write_parquet`."""
    return (path / SCHEMA_VERSION_FILE).is_file()


def prepare_parquet(folder: Path, *, schema_version: int) -> None:
    """Make ``folder`` a store if it is new or empty.

    Raises :class:`AdvisorError` when it holds something else or another schema version.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / SCHEMA_VERSION_FILE
    # Of a writer that is at work on the marker, or was killed there.
    others = (file for file in folder.iterdir() if not file.name.startswith(f".{marker.name}."))
    if not marker.exists() and any(others):
        raise AdvisorError(
            "this folder is not empty and no store", where=str(folder), hint="choose a new one"
        )
    _check_version(folder, schema_version)
    if not marker.exists():
        write_atomic(marker, json.dumps({"schema_version": schema_version, "layout": _LAYOUT}))


def refuse_present(folder: Path, run: str, ranks: Iterable[int | None]) -> None:
    """Raise :class:`AdvisorError` for the first of ``ranks`` that the store in ``folder`` has."""
    present = Index(folder).ranks(run)
    for rank in ranks:
        if rank in present:
            raise AdvisorError(
                f"rank {rank} of run '{run}' is in this store already",
                where=str(folder),
                hint="pass --force to replace it, or another --run",
            )


def write_parquet(
    con: Any,
    folder: Path,
    *,
    schema_version: int,
    force: bool = False,
    batch: str | None = None,
    rows_only: Collection[int] = (),
    alone: bool = True,
) -> None:
    """Write the base tables of ``con`` into ``folder``, beside what it holds already.

    All ranks of a run appear at once when all is written. ``batch`` names what is written; by
    default the name is made of the ranks. What another batch of the same name wrote is replaced.
    Of the ranks in ``rows_only`` the events stay as they are. ``alone``: nobody else is writing
    these ranks, so that what was left of them can be removed.

    Raises :class:`AdvisorError` when a rank of a run is there already (unless ``force``) or the
    folder holds something else.
    """
    prepare_parquet(folder, schema_version=schema_version)
    ranks = con.execute("SELECT run, rank FROM rank ORDER BY ALL").fetchall()
    for run in () if force else dict.fromkeys(run for run, _ in ranks):
        refuse_present(folder, run, (rank for its_run, rank in ranks if its_run == run))
    for (run,) in con.execute("SELECT run FROM run ORDER BY ALL").fetchall():
        mine = [rank for its_run, rank in ranks if its_run == run]
        default = f"{mine[0]}-{mine[-1]}-{len(mine)}" if mine else f"none-{_inputs(con, run)}"
        written = Batch(
            run=run,
            name=batch or default,
            token=new_token(),
            number=Index(folder).next_number(),
            ranks=tuple(rank for rank in mine if rank not in rows_only),
            rows_of=tuple(rank for rank in mine if rank in rows_only),
            tables=tuple(table for table in PER_RUN if has_rows(con, table, run)),
        )
        _write_batch(con, folder, written)
        if alone:
            with _alone_in(folder):
                clear_unfinished(folder, run, ranks=mine, names=[written.name])


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time says what is finished, or removes what is not: what one has looked at
    before another finishes it would be removed after."""
    with (folder / SCHEMA_VERSION_FILE).open("rb") as marker:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(marker, fcntl.LOCK_EX)
        yield


def _write_batch(con: Any, folder: Path, batch: Batch) -> None:
    places = []
    try:
        for rank in sorted({*batch.ranks, *batch.rows_of}):
            for table in PER_RANK if rank in batch.ranks else ("rank",):
                places.append(batch.of_rank(folder, table, rank))
                _copy(
                    con,
                    f"SELECT * FROM {table} WHERE run = $run AND rank = $rank"
                    + (" ORDER BY event_id" if table in _AS_VIEWS else ""),
                    {"run": batch.run, "rank": rank},
                    places[-1],
                )
        for table in batch.tables:
            places.append(batch.of_run(folder, table))
            query = f"SELECT * FROM {table} WHERE run = $run"
            _copy(con, query, {"run": batch.run}, places[-1])
        with _alone_in(folder):
            if any(not place.exists() for place in places):
                raise AdvisorError(
                    "another process removed files that were just written",
                    where=str(folder),
                    hint="let one process at a time write a rank",
                )
            finish(folder, batch)
    except BaseException:
        for place in places:
            place.unlink(missing_ok=True)
        raise


def _inputs(con: Any, run: str) -> str:
    """A short name for the inputs of a batch without ranks (logs): others differ."""
    rows = con.execute(
        "SELECT path, bytes FROM source WHERE run = ? ORDER BY ALL", [run]
    ).fetchall()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def _copy(con: Any, query: str, values: dict[str, Any], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with half_written(place) as temporary:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
        target = str(temporary).replace("'", "''")
        options = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"  # it is renamed here
        con.execute(f"COPY ({query}) TO '{target}' ({options})", values)
        temporary.replace(place)


def _check_version(folder: Path, schema_version: int) -> None:
    marker = folder / SCHEMA_VERSION_FILE
    if not marker.exists():
        return
    try:
        content = json.loads(marker.read_bytes())
        found, layout = content["schema_version"], content.get("layout", 1)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise AdvisorError("not a store of this tool", where=str(marker)) from error
    if found != schema_version:
        raise AdvisorError(
            f"written with schema version {found}, this advisor reads {schema_version}",
            where=str(folder),
            hint="ingest the traces again",
        )
    if layout != _LAYOUT:
        raise AdvisorError(
            f"its files are laid out as in version {layout}, this advisor reads {_LAYOUT}",
            where=str(folder),
            hint="ingest the traces again, into a new folder",
        )


def attach_parquet(con: Any, folder: Path, *, schema_version: int) -> None:
    """Fill ``con`` (which has the empty tables of schema.sql) from a Parquet store.

    The tables of events become views of the files, so that their size on disk does not matter.
    Files that belong to no finished batch are not read, and a row of ``source`` says so.
    """
    _check_version(folder, schema_version)
    index = Index(folder)
    try:
        for table in (*PER_RUN, *PER_RANK):
            files = index.files(table)
            if table in _AS_VIEWS and files:
                con.execute(f"DROP TABLE {table}")
                con.execute(f"CREATE VIEW {table} AS SELECT * FROM {_reading(files)}")
            elif table in _MERGED and files:
                keys = "run" if table == "run" else "run, process_group, ranks"
                con.execute(
                    f"INSERT INTO {table} BY NAME "
                    f"SELECT DISTINCT ON ({keys}) * FROM {_reading(files)}"
                )
            elif table == "source":
                _attach_sources(con, index)
            elif files:
                con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {_reading(files)}")
    except duckdb.Error as error:
        raise AdvisorError(
            f"cannot be read: {str(error).splitlines()[0]}", where=str(folder)
        ) from error
    _tell_unfinished(con, index)


def _reading(files: Sequence[Path]) -> str:
    """SQL that reads these files; a view cannot hold them as parameters."""
    names = ", ".join("'" + str(file.resolve()).replace("'", "''") + "'" for file in files)
    return f"read_parquet([{names}], hive_partitioning = false, union_by_name = true)"


def _attach_sources(con: Any, index: Index) -> None:
    """What was read, but of ranks that were written again later."""
    found = index.sources()
    whole = [file for file, replaced in found if not replaced]
    if whole:
        con.execute(f"INSERT INTO source BY NAME SELECT * FROM {_reading(whole)}")
    for file, replaced in found:
        if replaced:
            con.execute(
                f"INSERT INTO source BY NAME SELECT * FROM {_reading([file])} "
                "WHERE rank IS NULL OR rank NOT IN (SELECT unnest($ranks))",
                {"ranks": replaced},
            )
    # Batches that were written apart count their files from 0 each.
    con.execute(
        "UPDATE source SET source_id = n FROM (SELECT rowid AS place, row_number() OVER "
        "(PARTITION BY run ORDER BY source_id, path, rowid) - 1 AS n FROM source) "
        "WHERE source.rowid = place AND source_id <> n"
    )


def _tell_unfinished(con: Any, index: Index) -> None:
    found = index.unfinished()
    note = (
        "of a writer that has not finished: {} of its files are left out; ingest its traces again"
    )
    runs = {batch.run for batch in index.batches}
    for run in sorted(runs):
        left = found.get(run_folder(index.folder, "source", run).name)
        if left:
            con.execute(
                "INSERT INTO source (run, source_id, path, format, bytes, note) SELECT $run, "
                "coalesce(max(source_id), -1) + 1, $path, 'unknown', 0, $note FROM source "
                "WHERE run = $run",
                {"run": run, "path": str(min(left)), "note": note.format(len(left))},
            )
    if found and not runs:
        raise AdvisorError(
            "holds no finished run: its writer was interrupted, or is still at work",
            where=str(index.folder),
            hint="ingest the traces again",
        )
