"""Rows into base tables: Python tuples in, one insert out.

DuckDB's ``executemany`` costs about a millisecond per row; an Arrow table of a thousand rows costs
about as much as one of them. A few rows go as one statement's parameters instead: Arrow looks for
pandas when it takes Python values, and importing that costs more than reading a small trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

_BATCH = 50_000
_FEW = 100  # as parameters 9 ms, 0.1 ms a row; pandas takes 300 ms

_TYPES = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "INTEGER[]": pa.list_(pa.int32()),
    "VARCHAR[]": pa.list_(pa.string()),
}


def insert(con: Any, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Append ``rows`` (values in the order of ``columns``) to ``table``; how many there were.

    ``table`` and ``columns`` come from this package, never from an input. Text is made valid
    UTF-8; what is no text or whole number where the column wants one, or does not fit, is null.
    """
    kinds = _columns(con, table)
    iterator = iter(rows)
    total = 0
    while batch := list(islice(iterator, _BATCH)):
        values = [
            [_fit(row[place], kinds[name]) for row in batch] for place, name in enumerate(columns)
        ]
        if len(batch) <= _FEW:
            places = ", ".join([f"({', '.join('?' * len(columns))})"] * len(batch))
            con.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES {places}",
                [value for one in zip(*values, strict=True) for value in one],
            )
        else:
            _insert_arrow(
                con, table, {name: (kinds[name], values[at]) for at, name in enumerate(columns)}
            )
        total += len(batch)
    return total


def _columns(con: Any, table: str) -> dict[str, str]:
    """Types by column. The catalogue's own tables would take 10 ms to be asked."""
    described = con.execute(f"SELECT * FROM {table} LIMIT 0").description
    return {name: str(kind) for name, kind, *_ in described}


def _insert_arrow(con: Any, table: str, columns: dict[str, tuple[str, list[Any]]]) -> None:
    """Append columns, each with its type, through one Arrow table."""
    arrays = [pa.array(values, type=_TYPES[kind]) for kind, values in columns.values()]
    con.register("rows_to_insert", pa.Table.from_arrays(arrays, names=list(columns)))
    try:
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_to_insert")
    finally:
        con.unregister("rows_to_insert")


def insert_events(con: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Append rows that have columns of ``event`` and of ``comm_event``; how many there were.

    An event gets its row in ``comm_event`` when one of that table's own columns is not null.
    """
    kinds = {table: _columns(con, table) for table in ("event", "comm_event")}
    places = {
        table: [at for at, name in enumerate(columns) if name in kinds[table]] for table in kinds
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
