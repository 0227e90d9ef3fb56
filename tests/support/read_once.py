"""Recordings under fixtures/ are read and derived once per test run, not once per test.

The first test that loads a recording reads and derives it as ever and keeps the store in a file
that all workers share; the next ones copy its tables. Only :func:`advisor.api.load` and
``load_runs`` are shortened, into stores in memory, for whole recordings of this repository. With
``ADVISOR_TEST_READ_EVERY_TIME=1`` nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor import api
from advisor.store import Store

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def reading_once(folder: Path) -> Callable[..., api.Run]:
    """``api._read`` with the stores of fixtures kept in ``folder``."""
    read = api._read
    folder.mkdir(exist_ok=True)

    def read_once(made: Store, runs: Mapping[str, Sequence[Any]], **options: Any) -> api.Run:
        key = _key(made, runs, options)
        if key is None:
            return read(made, runs, **options)
        kept = folder / f"{key}.duckdb"
        if kept.exists():
            _copy(kept, made)
            return api.Run(made, command=options["command"])
        run = read(made, runs, **options)
        _keep(run.store, kept)
        return run

    return read_once


def _key(made: Store, runs: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> str | None:
    if made.path is not None or options.get("leave_out"):
        return None
    named = [(name, [str(path) for path in paths]) for name, paths in runs.items()]
    for _, paths in named:
        for path in paths:
            if not Path(path).exists() or FIXTURES not in Path(path).resolve().parents:
                return None
    return hashlib.sha256(repr((named, options["lean"])).encode()).hexdigest()[:20]


def _keep(store: Store, kept: Path) -> None:
    """Write the store beside its name and rename it: two workers may do so at once."""
    partial = kept.with_suffix(f".{os.getpid()}")
    store.con.execute(f"ATTACH '{partial}' AS kept")
    (name,) = store.con.execute("SELECT current_database()").fetchone() or ("memory",)
    store.con.execute(f'COPY FROM DATABASE "{name}" TO kept')
    store.con.execute("DETACH kept")
    partial.replace(kept)


def _copy(kept: Path, made: Store) -> None:
    made.con.execute(f"ATTACH '{kept}' AS kept (READ_ONLY)")
    tables = made.con.execute(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE database_name = 'kept'"
    ).fetchall()
    for table, size in tables:
        if size and table != "meta":
            made.con.execute(f'INSERT INTO "{table}" SELECT * FROM kept."{table}"')
    made.con.execute("DETACH kept")
