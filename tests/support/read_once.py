"""Recordings are read, derived and diagnosed once per test run, not once per test.

The first test that loads a recording of fixtures/ or of ../shared/data reads and derives it as ever
and keeps the store in a file that all workers share; the next ones copy its tables. So it is with
the report by the shipped rules of tables that still hold what was kept. ``make test-all`` goes on
with what ``make test`` kept of the same files. Only
:func:`advisor.api.load` and ``load_runs`` are shortened, into stores in memory. With
``ADVISOR_TEST_READ_EVERY_TIME=1`` nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from advisor import api
from advisor.engine.diagnose import _remember
from advisor.findings import FindingsReport
from advisor.store import Store
from advisor.vocabulary import phases

_ROOT = Path(__file__).resolve().parents[2]
_KEPT_OF = (_ROOT / "fixtures", (_ROOT.parent / "shared" / "data").resolve())
_READ: WeakKeyDictionary[api.Run, str] = WeakKeyDictionary()
"""Run of such recordings -> its key."""


def keep(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have stores and reports kept in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    patch.setattr(api, "_read", _reading_once(folder))
    patch.setattr(api.Run, "diagnose", _diagnosing_once(folder))


def _reading_once(folder: Path) -> Callable[..., api.Run]:
    read = api._read

    def read_once(made: Store, runs: Mapping[str, Sequence[Any]], **options: Any) -> api.Run:
        key = _key(made, runs, options)
        if key is None:
            return read(made, runs, **options)
        kept = folder / f"{key}.duckdb"
        if kept.exists():
            _copy(kept, made)
            run = api.Run(made, command=options["command"])
        else:
            run = read(made, runs, **options)
            _keep(run.store, kept)
        _READ[run] = key
        return run

    return read_once


def _diagnosing_once(folder: Path) -> Callable[..., FindingsReport]:
    diagnose = api.Run.diagnose

    def diagnose_once(run: api.Run, **options: Any) -> FindingsReport:
        if run not in _READ or any(options.values()) or phases._listener.get() is not None:
            return diagnose(run, **options)
        text = repr((_READ[run], run._command, _contents(run.store)))
        kept = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.pickle"
        if kept.exists():
            run._report = pickle.loads(kept.read_bytes())
            _remember(run.store, run._report)
            return run._report
        report = diagnose(run)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(report))
        partial.replace(kept)
        return report

    return diagnose_once


def _contents(store: Store) -> list[Any]:
    """What every table holds, and in which order, but what a diagnosis writes itself."""
    names = store.con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE estimated_size > 0 "
        "AND table_name NOT IN ('outcome', 'finding') ORDER BY ALL"
    ).fetchall()
    rows = '(SELECT *, row_number() OVER () AS place FROM "{0}")'
    sums = [f"SELECT '{{0}}', sum(hash(t)) FROM {rows} t".format(name) for (name,) in names]
    return list(store.con.execute(" UNION ALL ".join(sums)).fetchall())


def _key(made: Store, runs: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> str | None:
    if made.path is not None or options.get("leave_out"):
        return None
    named = [(name, [str(path) for path in paths]) for name, paths in runs.items()]
    for _, paths in named:
        for path in paths:
            parents = Path(path).resolve().parents
            if not Path(path).exists() or not any(folder in parents for folder in _KEPT_OF):
                return None
    text = repr((named, options["lean"], options.get("hardware")))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


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
