"""Rows into base tables: Python mappings in, one insert out.

DuckDB's ``executemany`` costs about a millisecond per row; an Arrow table of a thousand rows costs
about as much as one of them. A few rows go as one statement's parameters instead: Arrow looks for
pandas when it takes Python values, and importing that costs more than reading a small trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from advisor.ingest.source import ReadContext

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

Row = Mapping[str, Any]


def insert(context: ReadContext, table: str, rows: Iterable[Row]) -> int:
    """Append ``rows`` (values by column) to ``table``, each with the run; how many there were.

    ``table`` and the columns come from this package, never from an input. What a row leaves out is
    null, and so is what is no text or whole number where the column wants one, or does not fit.
    Text is made valid UTF-8.
    """
    kinds = _columns(context.con, table)
    total = 0
    for batch in _batches(rows):
        _append(context, table, {name: kinds[name] for name in {"run"}.union(*batch)}, batch)
        total += len(batch)
    return total


def insert_events(context: ReadContext, rows: Iterable[Row]) -> int:
    """Append rows that have columns of ``event`` and of ``comm_event``; how many there were.

    An event gets its row in ``comm_event`` when one of that table's own columns is not null.
    """
    event, comm_event = (_columns(context.con, table) for table in ("event", "comm_event"))
    own = comm_event.keys() - event.keys()
    total = 0
    for batch in _batches(rows):
        spoken = [row for row in batch if any(row[name] is not None for name in own & row.keys())]
        _append(context, "event", event, batch)
        _append(context, "comm_event", comm_event, spoken)
        total += len(batch)
    return total


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _columns(con: Any, table: str) -> dict[str, str]:
    """Types by column. The catalogue's own tables would take 10 ms to be asked."""
    described = con.execute(f"SELECT * FROM {table} LIMIT 0").description
    return {name: str(kind) for name, kind, *_ in described}


def _append(
    context: ReadContext, table: str, kinds: Mapping[str, str], rows: Sequence[Row]
) -> None:
    """Insert the columns of ``kinds``: a few rows as parameters, more through one Arrow table."""
    values = {name: [_fit(row.get(name), kind) for row in rows] for name, kind in kinds.items()}
    values["run"] = [context.run] * len(rows)
    con = context.con
    if len(rows) <= _FEW:
        places = ", ".join([f"({', '.join('?' * len(values))})"] * len(rows))
        if rows:
            con.execute(
                f"INSERT INTO {table} ({', '.join(values)}) VALUES {places}",
                [value for one in zip(*values.values(), strict=True) for value in one],
            )
        return
    arrays = [pa.array(column, type=_TYPES[kinds[name]]) for name, column in values.items()]
    con.register("rows_to_insert", pa.Table.from_arrays(arrays, names=list(values)))
    try:
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_to_insert")
    finally:
        con.unregister("rows_to_insert")


def _fit(value: Any, kind: str) -> Any:
    if kind in {"BIGINT", "INTEGER"}:
        bits = 63 if kind == "BIGINT" else 31
        fits = isinstance(value, int) and -(1 << bits) <= value < (1 << bits)
        return value if fits else None
    if kind == "VARCHAR":
        is_text = isinstance(value, str)
        return value.encode("utf-8", errors="replace").decode("utf-8") if is_text else None
    return value
