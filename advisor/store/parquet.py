"""The exchange form of a store: a folder of Parquet files, one per table, run and rank.

Every file is written beside its place and renamed into it, so that readers never see half of one,
and ranks can be added by another process or on another day. Opening such a folder gives the same
tables and views as a DuckDB file: events stay on disk, the small tables are loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb

from advisor.errors import AdvisorError

SCHEMA_VERSION_FILE = "advisor-store.json"
PER_RANK = ("event", "comm_event", "rank")
_AS_VIEWS = ("event", "comm_event")
PER_RUN = ("run", "process_group", "topology", "link", "nccl_choice", "bench", "flight", "source")
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
    if not marker.exists() and any(folder.iterdir()):
        raise AdvisorError(
            "this folder is not empty and no store", where=str(folder), hint="choose a new one"
        )
    _check_version(folder, schema_version)
    if not marker.exists():
        _replace(marker, json.dumps({"schema_version": schema_version}).encode())


def write_parquet(
    con: Any,
    folder: Path,
    *,
    schema_version: int,
    force: bool = False,
    batch: str | None = None,
    rows_only: Collection[int] = (),
) -> None:
    """Write the base tables of ``con`` into ``folder``, beside what it holds already.

    A rank's ``rank`` file is written after its events: where it is, the rank is whole. ``batch``
    names the files of the tables by run; by default it is made of the ranks. Of the ranks in
    ``rows_only`` the events stay as they are.

    Raises :class:`AdvisorError` when a rank of a run is there already (unless ``force``) or the
    folder holds something else.
    """
    prepare_parquet(folder, schema_version=schema_version)
    ranks = con.execute("SELECT run, rank FROM rank ORDER BY ALL").fetchall()
    if not force:
        for run, rank in ranks:
            if rank_place(folder, "event", run, rank).exists():
                raise AdvisorError(
                    f"rank {rank} of run '{run}' is in this store already",
                    where=str(folder),
                    hint="pass --force to replace it, or another --run",
                )
    for run, rank in ranks:
        for table in PER_RANK if rank not in rows_only else ("rank",):
            _copy(
                con,
                f"SELECT * FROM {table} WHERE run = $run AND rank = $rank"
                + (" ORDER BY event_id" if table in _AS_VIEWS else ""),
                {"run": run, "rank": rank},
                rank_place(folder, table, run, rank),
            )
    for (run,) in con.execute("SELECT run FROM run ORDER BY ALL").fetchall():
        mine = [rank for its_run, rank in ranks if its_run == run]
        own_batch = f"{mine[0]}-{mine[-1]}-{len(mine)}" if mine else f"none-{_inputs(con, run)}"
        for table in PER_RUN:
            place = run_folder(folder, table, run) / f"ranks={batch or own_batch}.parquet"
            (filled,) = con.execute(
                f"SELECT count(*) > 0 FROM {table} WHERE run = ?", [run]
            ).fetchone()
            if filled:
                _copy(con, f"SELECT * FROM {table} WHERE run = $run", {"run": run}, place)
            else:
                place.unlink(missing_ok=True)
        clear_partial(folder, run, mine, [batch or own_batch])


def _inputs(con: Any, run: str) -> str:
    """A short name for the inputs of a batch without ranks (logs): others differ."""
    rows = con.execute(
        "SELECT path, bytes FROM source WHERE run = ? ORDER BY ALL", [run]
    ).fetchall()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def _name(run: str) -> str:
    """A run's name as part of a path; no two names meet and none leaves the folder."""
    return quote(run, safe="").replace(".", "%2E")[:200] or "%"


def run_folder(folder: Path, table: str, run: str) -> Path:
    """Where the files of one table of one run are."""
    return folder / table / f"run={_name(run)}"


def rank_place(folder: Path, table: str, run: str, rank: int) -> Path:
    """The file of one rank in a table of :data:`PER_RANK`."""
    return run_folder(folder, table, run) / f"rank={rank}.parquet"


def _copy(con: Any, query: str, values: dict[str, Any], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{place.stem}.", suffix=".partial", dir=place.parent)
    os.close(handle)
    temporary = Path(name)
    target = name.replace("'", "''")
    try:
        con.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)", values)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(place: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".", suffix=".partial", dir=place.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(place)


def _check_version(folder: Path, schema_version: int) -> None:
    marker = folder / SCHEMA_VERSION_FILE
    if not marker.exists():
        return
    try:
        found = json.loads(marker.read_bytes())["schema_version"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise AdvisorError("not a store of this tool", where=str(marker)) from error
    if found != schema_version:
        raise AdvisorError(
            f"written with schema version {found}, this advisor reads {schema_version}",
            where=str(folder),
            hint="ingest the traces again",
        )


def attach_parquet(con: Any, folder: Path, *, schema_version: int) -> None:
    """Fill ``con`` (which has the empty tables of schema.sql) from a Parquet store.

    The tables of events become views of the files, so that their size on disk does not matter.
    """
    _check_version(folder, schema_version)
    try:
        for table in (*PER_RUN, *PER_RANK):
            if not any((folder / table).glob("run=*/*.parquet")):
                continue
            pattern = f"{folder.resolve()}/{table}/run=*/*.parquet".replace("'", "''")
            files = f"read_parquet('{pattern}', hive_partitioning = false, union_by_name = true)"
            if table in _AS_VIEWS:
                con.execute(f"DROP TABLE {table}")
                con.execute(f"CREATE VIEW {table} AS SELECT * FROM {files}")
            elif table in _MERGED:
                keys = "run" if table == "run" else "run, process_group, ranks"
                con.execute(
                    f"INSERT INTO {table} BY NAME SELECT DISTINCT ON ({keys}) * FROM {files}"
                )
            else:
                con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {files}")
    except duckdb.Error as error:
        raise AdvisorError(
            f"cannot be read: {str(error).splitlines()[0]}", where=str(folder)
        ) from error


def forget_replaced(
    con: Any, folder: Path, run: str, ranks: Collection[int], written: Collection[str]
) -> None:
    """After ranks were written again under other batch names: drop their former rows of ``source``.

    ``written`` are the names of the batches that hold the new rows.
    """
    for file in sorted(run_folder(folder, "source", run).glob("ranks=*.parquet")):
        if file.stem.removeprefix("ranks=") in written:
            continue
        rows = "FROM read_parquet($file, hive_partitioning = false)"
        values = {"file": str(file), "ranks": list(ranks)}
        gone, kept = con.execute(
            f"SELECT count(*) FILTER (rank IN (SELECT unnest($ranks))), count(*) {rows}", values
        ).fetchone()
        if gone == kept:
            file.unlink()
        elif gone:
            keep = "rank IS NULL OR rank NOT IN (SELECT unnest($ranks))"
            _copy(con, f"SELECT * {rows} WHERE {keep}", values, file)


def clear_partial(folder: Path, run: str, ranks: Collection[int], written: Collection[str]) -> None:
    """Remove what writers that died left beside these ranks' and batches' files."""
    names = {f"rank={rank}" for rank in ranks} | {f"ranks={batch}" for batch in written}
    for table in (*PER_RANK, *PER_RUN):
        for file in run_folder(folder, table, run).glob(".*.partial"):
            if file.name[1:].split(".")[0] in names:
                file.unlink(missing_ok=True)
