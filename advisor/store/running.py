"""The database connections of this process, so that Ctrl-C can stop a query that is running.

Python hands a signal to the main thread once that is back from the database, and a query over
many gigabytes does not come back by itself.
"""

import contextlib
import weakref
from typing import Any

from advisor.errors import EndedBySignalError

_RAISED_WITHIN = ("KeyboardInterrupt:", "EndedBySignalError:")
"""How DuckDB words what a signal raised in Python that it called itself, an import for example."""

_connections: weakref.WeakSet[Any] = weakref.WeakSet()


def stoppable(con: Any) -> Any:
    """``con``, known to :func:`stop_queries` as long as it lives."""
    _connections.add(con)
    return con


def stop_queries() -> None:
    """Make every running query raise an error; connections that do nothing go on."""
    import duckdb

    for con in list(_connections):
        with contextlib.suppress(duckdb.Error):  # closed since: it runs nothing any more
            con.interrupt()


def was_stopped(error: BaseException) -> bool:
    """Whether Ctrl-C came while the database worked, which then raises an error of its own."""
    said = str(error)
    return (
        EndedBySignalError.came
        or said.endswith(("Query interrupted", "Interrupted!"))
        or said.startswith(_RAISED_WITHIN)
        or isinstance(error.__context__, KeyboardInterrupt)
    )
