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

_KEPT = 4
_FEW_ROWS = 1_000
"""So many are deleted in less time than their table is made anew; what is deleted takes room."""
_FREE: dict[int, list[Any]] = {}
"""Process -> databases without rows; one that was forked has not the threads of its parent's."""
_HELD_HERE = 3
"""References to a connection that nobody holds: the finalizer's, an argument's, getrefcount's."""

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
    held_by: weakref.WeakKeyDictionary[Store, list[int]] = weakref.WeakKeyDictionary()

    def emptied(con: Any) -> bool:
        con.execute("RESET threads")
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

    def give_back(con: Any, store: list[int], process: int) -> None:
        free = _FREE.setdefault(process, [])
        nobody = sys.getrefcount(con) == _HELD_HERE + len(store)
        if nobody and process == os.getpid() and len(free) < _KEPT:
            with contextlib.suppress(duckdb.Error):
                if emptied(con):
                    free.append(con)

    def create_again(path: Path | None = None, *, force: bool = False) -> Store:
        free = _FREE.get(os.getpid())
        if path is None and free:
            store = Store(free.pop(), path=None)
            store.may_hold_results = False
        else:
            store = create(path, force=force)
        if path is None:
            held_by[store] = [1]
            again = weakref.finalize(store, give_back, store.con, held_by[store], os.getpid())
            again.atexit = False
        return store

    def close_again(store: Store) -> None:
        if store in held_by:
            store._con = closed
            held_by[store].clear()
        else:
            close(store)

    patch.setattr(Store, "create", create_again)
    patch.setattr(Store, "close", close_again)
