"""Every DuckDB connection of this tool: opened in one place, without what DuckDB gets wrong."""

from pathlib import Path
from typing import Any

import duckdb

_MEMORY = ":memory:"
# DuckDB 2.0.0 and 2.0.1: where statistics show the right side of a LEFT JOIN to be empty, a sum()
# over the rows counts as 0. "HAVING sum(x) > 1" then keeps nothing, and "ORDER BY sum(x)" fails.
_WITHOUT = "SET disabled_optimizers = 'statistics_propagation'"
_IN_MEMORY = {"async_threads": 0}
"""Eight would wait for files of other machines, and trim the process's memory while they rest. A
file has one configuration in a process, and users open theirs without any."""


def connect(path: Path | None = None, *, read_only: bool = False, **config: Any) -> Any:
    """A connection to the file, or to a database in memory; ``config`` is DuckDB's.

    Raises duckdb.Error where it is no database, or another process writes it.
    """
    place = _MEMORY if path is None else str(path)
    own = _IN_MEMORY if path is None else {}
    con = duckdb.connect(place, read_only=read_only, config={**own, **config})
    con.execute(_WITHOUT)
    return con
