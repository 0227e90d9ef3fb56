"""Between DuckDB and numpy: read columns without losing integers, write columns by name.

NULL in an integer column would turn it into float64 in pandas, and a nanosecond since the epoch
does not fit a float64; so columns travel as masked numpy arrays and Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

MISSING = np.iinfo(np.int64).min


def read(con: Any, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
    """The result of a query as numpy arrays by column.

    Integers with NULLs become int64 with :data:`MISSING` in their place, texts become object
    arrays with None, floats have NaN.
    """
    columns = con.execute(sql, list(parameters)).fetchnumpy()
    return {name: _plain(values) for name, values in columns.items()}


def _plain(values: Any) -> Any:
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if values.dtype.kind in "iu":
        return np.where(np.ma.getmaskarray(values), MISSING, values.data.astype(np.int64))
    if values.dtype.kind == "f":
        return np.where(np.ma.getmaskarray(values), np.nan, values.data.astype(np.float64))
    plain = np.array(values.data, dtype=object)
    plain[np.ma.getmaskarray(values)] = None
    return plain


def rows(con: Any, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The result of a query as Python rows."""
    found: list[tuple[Any, ...]] = con.execute(sql, list(parameters)).fetchall()
    return found


def insert(con: Any, table: str, columns: Mapping[str, Any]) -> None:
    """Append columns (arrays or lists; None and :data:`MISSING` are NULL) to a table by name."""
    arrays = {name: _arrow(values) for name, values in columns.items()}
    if not arrays or not len(next(iter(arrays.values()))):
        return
    con.register("advisor_rows", pa.table(arrays))
    try:
        con.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM advisor_rows')
    finally:
        con.unregister("advisor_rows")


def insert_rows(con: Any, table: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records that all have the same keys."""
    if records:
        insert(con, table, {name: [record[name] for record in records] for name in records[0]})


def _arrow(values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return pa.array(values, mask=values == MISSING)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return pa.array(values, mask=np.isnan(values))
    return pa.array([_scalar(value) for value in values])


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, int) and value == MISSING else value
