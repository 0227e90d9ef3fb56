"""A store in memory takes over the database of one that no test holds any more.

To open a database and to make its tables takes longer than to read most traces of tests. Only a
database that is as it was when it was made is taken: its settings, tables and databases are
compared, and whoever still holds the connection keeps it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import duckdb
import pytest

from advisor.store import Store
from advisor.store.schema import parse_schema

_KEPT = 3
_FEW_ROWS = 1_000
"""So many are deleted in less time than their table is made anew; what is deleted takes room."""
_GONE: dict[int, list[Any]] = {}
"""Process -> databases of stores that are gone; one that was forked has not the threads of its
parent's."""

_TABLES = "SELECT table_name, database_name, sql, estimated_size FROM duckdb_tables()"
_VIEWS = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
_SETTINGS = (
    *("lock_configuration", "enable_external_access", "allowed_directories", "memory_limit"),
    *("disabled_optimizers", "preserve_insertion_order", "TimeZone"),
)
_OTHERS = """
    SELECT 'settings', NULL, {settings}
    UNION ALL SELECT 'database', database_name, path FROM duckdb_databases()
    UNION ALL SELECT 'table', table_name, sql FROM duckdb_tables()
    UNION ALL SELECT 'meta', key, value FROM meta ORDER BY ALL
""".format(settings=" || ".join(f"current_setting('{name}')::VARCHAR" for name in _SETTINGS))


def reuse(patch: pytest.MonkeyPatch) -> None:
    """Have ``Store.create`` take databases in memory from stores that are gone."""
    create, close = Store.create, Store.close
    first = create()
    made_as = {name: (base, sql) for name, base, sql, _ in first.con.execute(_TABLES).fetchall()}
    others = first.con.execute(_OTHERS).fetchall()
    definitions = {table.name: table.definition for table in parse_schema()}
    first.close()
    closed = first.con
    made: weakref.WeakSet[Store] = weakref.WeakSet()

    def emptied(con: Any) -> bool:
        con.execute("SET threads = 1")  # as a new one has
        work = [f'DROP VIEW "{view}"' for (view,) in con.execute(_VIEWS).fetchall()]
        there = con.execute(_TABLES).fetchall()
        kept = set()
        for name, base, sql, rows in there:
            if (base, sql) != made_as.get(name) or rows > _FEW_ROWS:
                work.append(f'DROP TABLE "{name}"')
                continue
            kept.add(name)
            if rows and name in definitions:
                work.append(f'DELETE FROM "{name}"')
        work += [definitions[name] for name in definitions.keys() - kept]
        con.execute(";".join(["BEGIN", *work, "COMMIT"]))
        return bool(con.execute(_OTHERS).fetchall() == others)

    def let_go(con: Any, process: int) -> None:
        gone = _GONE.setdefault(process, [])
        gone.append(con)
        del gone[:-_KEPT]

    def taken() -> Any:
        gone = _GONE.get(os.getpid(), [])
        for place in range(len(gone)):
            if sys.getrefcount(gone[place]) == 2:  # of the list and of this call: nobody holds it
                con = gone.pop(place)
                with contextlib.suppress(duckdb.Error):
                    return con if emptied(con) else None
                return None
        return None

    def create_again(path: Path | None = None, *, force: bool = False) -> Store:
        if path is not None:
            return create(path, force=force)
        con = taken()
        store = create() if con is None else Store(con, path=None)
        store.may_hold_results = False
        made.add(store)
        weakref.finalize(store, let_go, store.con, os.getpid()).atexit = False
        return store

    def close_again(store: Store) -> None:
        if store in made:
            store._con = closed
        else:
            close(store)

    patch.setattr(Store, "create", create_again)
    patch.setattr(Store, "close", close_again)
