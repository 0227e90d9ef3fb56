"""Opens a DuckDB file that is there: perhaps damaged, perhaps made by somebody else.

Such a file can hold views and computed columns, which read files and open connections for whoever
asks its tables. It is opened without access to either, and refused where it holds any.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from advisor.errors import AdvisorError
from advisor.store.opening import connect

_CLOSED = """
    SET autoinstall_known_extensions = false;
    SET autoload_known_extensions = false;
    SET allow_community_extensions = false;
    SET enable_external_access = false;
"""
_ACTIVE = """
    SELECT view_name, 'view' FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT column_name, 'computed column' FROM duckdb_columns()
    WHERE NOT internal AND column_default IS NOT NULL
    LIMIT 1
"""
_DAMAGED = re.compile(
    r"corrupt database file|checksum|could not read enough bytes"
    r"|TProtocolException|no magic bytes|don't know what type|variable-length int"
    r"|parquet|(?:de|un)compress",
    re.I,
)
_AGAIN = "ingest the traces again"


def connect_stored(path: Path, *, read_only: bool = True) -> Any:
    """A connection to a store's file. Raises AdvisorError where it is damaged or holds code,
    duckdb.Error where it is no database or another process writes it.
    """
    try:
        con = connect(path, read_only=read_only)
        con.execute(_CLOSED)
        found = con.execute(_ACTIVE).fetchone()
    except duckdb.Error as error:
        raise damaged(error, path) or error from error
    if found is not None:
        con.close()
        name, kind = found
        raise AdvisorError(
            f"holds a {kind} {str(name)[:60]!r}: a store of this tool holds plain tables alone",
            where=str(path),
            hint=_AGAIN,
        )
    return con


@contextmanager
def reading_stored(path: Path) -> Iterator[None]:
    """What is done inside asks a store's tables; raises AdvisorError where it is damaged."""
    try:
        yield
    except duckdb.Error as error:
        raise damaged(error, path) or error from error


def damaged(error: BaseException, path: Path | None = None) -> AdvisorError | None:
    """What to say where the database found its file damaged, else None."""
    if not isinstance(error, duckdb.Error) or not _DAMAGED.search(str(error)):
        return None
    return AdvisorError(
        f"this store is damaged: {str(error).splitlines()[0][:200]}",
        where="" if path is None else str(path),
        hint=_AGAIN,
    )
