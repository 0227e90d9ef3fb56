"""Between DuckDB and numpy: read columns without losing integers, write columns by name.

NULL in an integer column would turn it into float64 in pandas, and a nanosecond since the epoch
does not fit a float64; so columns travel as masked numpy arrays, and back with :data:`MISSING`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = np.iinfo(np.int64).min
_ROWS_AT_ONCE = 50_000


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
    """Append columns to a table by name: arrays, lists, or one value that all rows share.

    None, NaN and :data:`MISSING` are NULL.
    """
    shared = {name: value for name, value in columns.items() if isinstance(value, str | int)}
    arrays = {name: _array(values) for name, values in columns.items() if name not in shared}
    if not arrays or not len(next(iter(arrays.values()))):
        return
    holes = ", ".join(
        f'nullif("{name}", \'{MISSING}\'::BIGINT) AS "{name}"'
        for name, values in arrays.items()
        if values.dtype.kind == "i" and (values == MISSING).any()
    )
    constants = "".join(f', ? AS "{name}"' for name in shared)
    con.register("advisor_rows", arrays)
    try:
        con.execute(
            f'INSERT INTO "{table}" BY NAME '
            f"SELECT * {f'REPLACE ({holes})' if holes else ''}{constants} FROM advisor_rows",
            list(shared.values()),
        )
    finally:
        con.unregister("advisor_rows")


class Pieces:
    """Many small pieces of one table, inserted together: to plan an insert takes milliseconds."""

    def __init__(self, con: Any, table: str) -> None:
        self._con, self._table = con, table
        self._waiting: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self._rows = 0

    def add(self, columns: Mapping[str, Any]) -> None:
        """A piece as :func:`insert` takes it; those with the same texts and names go together."""
        shared = {name: value for name, value in columns.items() if isinstance(value, str)}
        others = {name: value for name, value in columns.items() if name not in shared}
        count = next((len(value) for value in others.values() if not isinstance(value, int)), 0)
        for name, value in others.items():
            if isinstance(value, int):
                others[name] = np.full(count, value, dtype=np.int64)
        self._waiting.setdefault((*shared.items(), *others), []).append({**shared, **others})
        self._rows += count
        if self._rows >= _ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Insert what waits."""
        for pieces in self._waiting.values():
            insert(
                self._con,
                self._table,
                {
                    name: value if isinstance(value, str) else _joined([p[name] for p in pieces])
                    for name, value in pieces[0].items()
                },
            )
        self._waiting, self._rows = {}, 0


def _joined(parts: Sequence[Any]) -> Any:
    if len({getattr(part, "dtype", None) for part in parts} - {None}) == 1 and all(
        isinstance(part, np.ndarray) for part in parts
    ):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return [value for part in parts for value in np.asarray(part, dtype=object).tolist()]


def insert_rows(con: Any, table: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records that all have the same keys."""
    if records:
        insert(con, table, {name: [record[name] for record in records] for name in records[0]})


def insert_objects(
    con: Any,
    table: str,
    objects: Sequence[Any],
    named: Mapping[str, str] | None = None,
    **columns: Any,
) -> None:
    """Append a row for each object, its columns as the schema declares them.

    A column holds the attribute of its own name, or of that without its unit; ``named`` says what
    others are called. ``columns`` are given instead: lists, or one value that all rows share.
    Raises AttributeError for a column that is neither.
    """
    if not objects:
        return
    values = dict(columns)
    for name, *_ in con.execute(f'SELECT * FROM "{table}" LIMIT 0').description:
        if name not in values:
            attribute = (named or {}).get(name, name)
            if not hasattr(objects[0], attribute):
                attribute = name.removesuffix("_ns").removesuffix("_gbps")
            values[name] = [getattr(one, attribute) for one in objects]
    insert(con, table, values)


def _array(values: Any) -> NDArray[Any]:
    """The column as a numpy array that DuckDB reads without guessing at its type."""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    known = {type(kind().item()) if issubclass(kind, np.generic) else kind for kind in kinds} - {
        type(None)
    }
    if known and known <= {int}:
        return np.array([MISSING if value is None else value for value in values], dtype=np.int64)
    if known and known <= {int, float}:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array
