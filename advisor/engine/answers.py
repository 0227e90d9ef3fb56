"""What a query of the sandbox found, as Python's values."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
from numpy.typing import NDArray


def as_rows(result: duckdb.DuckDBPyConnection) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and rows; SQL's 0.5 is a decimal, which Python adds to no float: a float here."""
    columns = result.description or []
    exact = {number for number, column in enumerate(columns) if "DECIMAL" in str(column[1])}
    found: list[Sequence[Any]] = result.fetchall()
    if exact:
        found = [[_real(v) if n in exact else v for n, v in enumerate(row)] for row in found]
    return [column[0] for column in columns], found


def _real(value: Any) -> Any:
    if isinstance(value, list):
        return [_real(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def as_arrays(result: duckdb.DuckDBPyConnection) -> dict[str, NDArray[Any]]:
    """The columns by name."""
    found: dict[str, NDArray[Any]] = result.fetchnumpy()
    return found
