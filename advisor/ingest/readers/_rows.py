"""Rows into base tables: Python tuples in, one Arrow insert out.

DuckDB's ``executemany`` costs about a millisecond per row; an Arrow table of a thousand rows costs
about as much as one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

_BATCH = 50_000

_TYPES = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "INTEGER[]": pa.list_(pa.int32()),
}


def insert(con: Any, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Append ``rows`` (values in the order of ``columns``) to ``table``; how many there were.

    ``table`` and ``columns`` come from this package, never from an input. Text is made valid
    UTF-8; what is no text or whole number where the column wants one, or does not fit, is null.
    """
    described = con.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ?", [table]
    )
    kinds: dict[str, str] = dict(described.fetchall())
    iterator = iter(rows)
    total = 0
    while batch := list(islice(iterator, _BATCH)):
        arrays = [
            pa.array([_fit(row[place], kinds[name]) for row in batch], type=_TYPES[kinds[name]])
            for place, name in enumerate(columns)
        ]
        arrow = pa.Table.from_arrays(arrays, names=list(columns))
        con.register("rows_to_insert", arrow)
        try:
            con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_to_insert")
        finally:
            con.unregister("rows_to_insert")
        total += len(batch)
    return total


def insert_events(con: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Append rows that have columns of ``event`` and of ``comm_event``; how many there were.

    An event gets its row in ``comm_event`` when one of that table's own columns is not null.
    """
    described = con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() "
        "WHERE table_name IN ('event', 'comm_event')"
    ).fetchall()
    places = {
        table: [at for at, name in enumerate(columns) if (table, name) in described]
        for table in ("event", "comm_event")
    }
    own = set(places["comm_event"]) - set(places["event"])
    iterator = iter(rows)
    total = 0
    while batch := list(islice(iterator, _BATCH)):
        spoken = [row for row in batch if any(row[at] is not None for at in own)]
        for table, chosen in (("event", batch), ("comm_event", spoken)):
            names = [columns[at] for at in places[table]]
            insert(con, table, names, ([row[at] for at in places[table]] for row in chosen))
        total += len(batch)
    return total


def _fit(value: Any, kind: str) -> Any:
    if kind in {"BIGINT", "INTEGER"}:
        bits = 63 if kind == "BIGINT" else 31
        fits = isinstance(value, int) and -(1 << bits) <= value < (1 << bits)
        return value if fits else None
    if kind == "VARCHAR":
        is_text = isinstance(value, str)
        return value.encode("utf-8", errors="replace").decode("utf-8") if is_text else None
    return value
