"""Opens a database that somebody else made: read-only, bounded, and able to do nothing but SELECT.

A sqlite file can hold views, triggers and virtual tables that run functions when queried. Only
plain tables are read here, and an authorizer denies everything else. Where sqlite meets damage,
what is left of the file is salvaged (:mod:`.salvage`) and the queries go on there.
"""

import contextlib
import os
import sqlite3
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.readers.nsys.pages import MAX_ROW_BYTES
from advisor.ingest.readers.nsys.salvage import Salvage, is_whole, salvage
from advisor.ingest.scratch import temporary_folder
from advisor.ingest.source import Source

MAX_CELL_BYTES = MAX_ROW_BYTES
MAX_DATABASE_BYTES = 64 * 1024**3
_PIECE = 4 * 1024 * 1024
# A damaged schema also shows as an error message that sqlite3 itself cannot decode.
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_FUNCTIONS = {"coalesce", "count", "like"}
_LONGEST_PATTERN = 256
LONGEST_NAME = 4096  # characters; an event holds its name, and thousands may share one
# Steps of sqlite's virtual machine: a row of 50 bytes takes about a hundred, in ten queries.
_STEPS_PER_BYTE, _STEPS_AT_LEAST, _STEPS_AT_ONCE = 100, 100_000_000, 100_000


@dataclass
class Database:
    """The tables of an export with their columns; losses are counted in ``dropped``."""

    connection: sqlite3.Connection
    where: str
    tables: dict[str, set[str]]
    dropped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unusable: Counter[str] = field(default_factory=Counter)
    """Values that rows were kept, or passed over, without: by column and table."""
    salvaged: Callable[[], tuple[sqlite3.Connection, Salvage]] | None = None
    """Opens what is left of a damaged file; None once that was done."""

    def drop(self, reason: str, count: int = 1) -> None:
        """Count a loss (nothing when ``count`` is 0)."""
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def has(self, table: str, *columns: str) -> bool:
        """Whether a plain table with these columns is there."""
        return table in self.tables and set(columns) <= self.tables[table]

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query; of a damaged file, of the rows that are left."""
        given = 0
        try:
            for row in self.connection.execute(sql):
                given += 1
                yield row
        except _DAMAGE as error:
            if self._salvage():
                # In the same order: by time where the query says so, else as they are stored.
                yield from islice(self.rows(sql), given, None)
            else:
                self.drop("table cut or damaged")
                self.notes.append(f"reading stopped in a table: {error}")

    def _salvage(self) -> bool:
        """Go on with what is left of the file; False where that was tried before or is nothing."""
        if self.salvaged is None:
            return False
        salvaged, self.salvaged = self.salvaged, None
        try:
            self.connection, found = salvaged()
            self.tables = _tables(self.connection)
            _lock(self.connection)
        except (*_DAMAGE, ValueError):
            return False
        self.take(found)
        return True

    def take(self, found: Salvage) -> None:
        """Tell what a salvage did not find."""
        self.notes += found.notes
        for reason, count in found.lost.items():
            self.drop(reason, count)

    def column(self, table: str, column: str) -> str:
        """``column`` of ``table`` for a query, NULL where this schema version lacks it."""
        return f'"{column}"' if column in self.tables.get(table, set()) else "NULL"


def string_column(database: Database, table: str, column: str) -> tuple[str, str]:
    """SQL of a name that is stored in StringIds, and the join it needs."""
    if database.has(table, column) and database.has("StringIds", "id", "value"):
        return "s.value", f"LEFT JOIN StringIds s ON s.id = e.{column}"
    return "NULL", ""


def text_column(database: Database) -> tuple[str, str]:
    """SQL of an NVTX range's text, which stands in the row or in StringIds, and the join."""
    own = 'e."text"' if database.has("NVTX_EVENTS", "text") else "NULL"
    stored, join = string_column(database, "NVTX_EVENTS", "textId")
    return (f"coalesce({own}, {stored})" if join else own), join


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Database]:
    """The database of a source; compressed ones through a temporary file that goes away.

    Of a file that is cut or damaged, what is left of it. Raises :class:`AdvisorError` when it
    cannot be opened at all.
    """
    with contextlib.ExitStack() as stack:
        path = source.path
        notes: list[str] = []
        if source.compression != "none":
            path, damage = _unpacked(source, stack)
            notes += [damage] if damage else []

        def salvaged() -> tuple[sqlite3.Connection, Salvage]:
            left = stack.enter_context(temporary_folder("nsys")) / "salvaged.sqlite"
            found = salvage(path, left)
            return _connected(left, stack), found

        try:
            database = _open(path, str(source.path), salvaged, stack)
        except (*_DAMAGE, ValueError) as error:
            raise AdvisorError(
                f"cannot be read as a sqlite database: {error}",
                where=str(source.path),
                hint="export it again: nsys export --type sqlite REPORT.nsys-rep",
            ) from error
        _lock(database.connection)
        database.notes = notes + database.notes
        yield database


def _open(
    path: Path,
    where: str,
    salvaged: Callable[[], tuple[sqlite3.Connection, Salvage]],
    stack: contextlib.ExitStack,
) -> Database:
    if is_whole(path):
        with contextlib.suppress(*_DAMAGE):
            connection = _connected(path, stack)
            return Database(connection, where, _tables(connection), salvaged=salvaged)
    connection, found = salvaged()
    database = Database(connection, where, _tables(connection))
    database.take(found)
    return database


def _connected(path: Path, stack: contextlib.ExitStack) -> sqlite3.Connection:
    uri = f"file:{urllib.parse.quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"
    connection = stack.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True)))
    connection.text_factory = _text
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)
    _bound(connection, path.stat().st_size)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    _bound_names(connection)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _bound(connection: sqlite3.Connection, size_bytes: int) -> None:
    """End a query that works on long after every byte of the file was looked at often enough."""
    left = iter(range(1 + (_STEPS_AT_LEAST + _STEPS_PER_BYTE * size_bytes) // _STEPS_AT_ONCE))
    connection.set_progress_handler(lambda: next(left, None) is None, _STEPS_AT_ONCE)


def _bound_names(connection: sqlite3.Connection) -> None:
    """A copy of StringIds where the file's own has no key, so that joins stay one to one.

    Or where it holds longer names than :data:`LONGEST_NAME`, which are cut. A temporary table goes
    before the file's table of the same name.
    """
    if not {"id", "value"} <= _tables(connection).get("StringIds", set()):
        return
    described = connection.execute("PRAGMA table_info(StringIds)").fetchall()
    keyed = any(name == "id" and key for _, name, _, _, _, key in described)
    long = f"SELECT 1 FROM StringIds WHERE length(value) > {LONGEST_NAME} LIMIT 1"
    if keyed and not connection.execute(long).fetchall():
        return
    connection.execute("PRAGMA temp_store = FILE")
    connection.execute("CREATE TEMP TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    connection.execute(
        f"INSERT OR IGNORE INTO temp.StringIds SELECT id, substr(value, 1, {LONGEST_NAME}) "
        "FROM main.StringIds WHERE typeof(id) = 'integer'"
    )


def _lock(connection: sqlite3.Connection) -> None:
    """From here on nothing but SELECT."""
    connection.set_authorizer(_authorize)


def _unpacked(source: Source, stack: contextlib.ExitStack) -> tuple[Path, str | None]:
    path = stack.enter_context(temporary_folder("nsys")) / "export.sqlite"
    stream, raw = source.open_raw()
    total = 0
    with stream, path.open("wb") as out:
        while piece := stream.read(_PIECE):
            total += len(piece)
            if total > MAX_DATABASE_BYTES:
                raise AdvisorError(
                    f"unpacks to more than {MAX_DATABASE_BYTES >> 30} GiB", where=str(source.path)
                )
            out.write(piece)
        return path, raw.damage


def _tables(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Columns of the plain tables: no views, no virtual tables."""
    tables: dict[str, set[str]] = {}
    listed = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    for name, sql in listed.fetchall():
        if (
            not isinstance(name, str)
            or '"' in name
            or not str(sql).upper().startswith("CREATE TAB")
        ):
            continue
        described = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        tables[name] = {str(row[1]) for row in described}
    return tables


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = action in _ALLOWED or (
        action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _FUNCTIONS
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
