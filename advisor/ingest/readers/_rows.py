"""Rows into base tables: Python mappings in, one insert out.

DuckDB's ``executemany`` costs about a millisecond per row; an Arrow table of a thousand rows costs
about as much as one of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from advisor.ingest.source import ReadContext

_BATCH = 50_000

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
    """Insert the columns of ``kinds``."""
    if not rows:
        return
    values = {name: [_fit(row.get(name), kind) for row in rows] for name, kind in kinds.items()}
    values["run"] = [context.run] * len(rows)
    arrays = [arrow_column(column, _TYPES[kinds[name]]) for name, column in values.items()]
    con = context.con
    con.register("rows_to_insert", pa.Table.from_arrays(arrays, names=list(values)))
    try:
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_to_insert")
    finally:
        con.unregister("rows_to_insert")


def arrow_column(values: Sequence[Any], kind: Any) -> Any:
    """As pa.array, which would import pandas, and dictionary_encode(), which would import Arrow's
    functions: both take longer than reading a small trace."""
    if pa.types.is_dictionary(kind):
        codes = {text: code for code, text in enumerate(dict.fromkeys(values))}
        index = arrow_column([None if text is None else codes[text] for text in values], pa.int32())
        return pa.DictionaryArray.from_arrays(index, arrow_column([*codes], pa.string()))
    known = np.array([value is not None for value in values], bool)
    data, children = list[Any](), list[Any]()
    if pa.types.is_list(kind):
        ends = np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32)
        items = [item for value in values for item in value or ()]
        data, children = [ends], [arrow_column(items, kind.value_type)]
    elif pa.types.is_string(kind):
        texts = [(value or "").encode() for value in values]
        data = [np.cumsum([0, *map(len, texts)], dtype=np.int32), b"".join(texts)]
    elif pa.types.is_boolean(kind):
        data = [np.packbits(np.array([bool(value) for value in values]), bitorder="little")]
    else:
        code = "i" if pa.types.is_integer(kind) else "f"
        data = [np.array([value or 0 for value in values], f"{code}{kind.bit_width // 8}")]
    buffers = [pa.py_buffer(one) for one in (np.packbits(known, bitorder="little"), *data)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=children)


def _fit(value: Any, kind: str) -> Any:
    if kind in {"BIGINT", "INTEGER"}:
        bits = 63 if kind == "BIGINT" else 31
        fits = isinstance(value, int) and -(1 << bits) <= value < (1 << bits)
        return value if fits else None
    if kind == "VARCHAR":
        is_text = isinstance(value, str)
        return value.encode("utf-8", errors="replace").decode("utf-8") if is_text else None
    return value
