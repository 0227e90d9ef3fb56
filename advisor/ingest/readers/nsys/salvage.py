"""What is left of a damaged export, as a database of its own: every row that can still be read.

The rows of the tables that are used here are copied from the file's pages (:mod:`.pages`) into a
new database in a temporary folder. That one is whole, so the queries on it need not know. The
file itself is only read; the copy is never larger, since no page is read twice.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.ingest.readers.nsys.pages import Losses, Pages

EVENT_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
)
TABLES = (
    *EVENT_TABLES,
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    "StringIds",
    "TARGET_INFO_SYSTEM_ENV",
    "TARGET_INFO_GPU",
    "TARGET_INFO_SESSION_START_TIME",
    "ANALYSIS_DETAILS",
    "META_DATA_CAPTURE",
    "ENUM_CUPTI_SYNC_TYPE",
)
"""The tables that the reader of exports uses; a test holds this list to it."""

LOST = "row in a missing or damaged page"
_ROWS_AT_ONCE = 10_000


@dataclass
class Salvage:
    """What was saved and what was not. ``lost``: rows by reason, ``notes`` say of which tables."""

    lost: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Table:
    name: str
    root: int
    columns: tuple[str, ...]
    row_id: int | None
    """Which column is the row id, and so not stored with the others."""


def is_whole(path: Path) -> bool:
    """Whether the file has as many pages as its header says. ValueError: its header is damaged."""
    with Pages(path) as pages:
        return pages.missing == 0


def salvage(path: Path, target: Path) -> Salvage:
    """Copy the rows of :data:`TABLES` that ``path`` still holds into a new database ``target``.

    Raises ValueError when nothing of the file can be told.
    """
    out = Salvage()
    schema = Losses()
    with Pages(path) as pages, contextlib.closing(sqlite3.connect(target)) as into:
        if pages.missing:
            verb = "is" if pages.missing == 1 else "are"
            out.notes.append(
                f"the file is cut: {pages.missing:,} of its {pages.expected:,} pages {verb} "
                f"missing or broken off ({pages.page_bytes:,} bytes each); what is left was read"
            )
        else:
            out.notes.append("the file is damaged: what is left was read")
        into.execute("PRAGMA journal_mode = OFF")
        into.execute("PRAGMA synchronous = OFF")
        tables = list(_tables(pages, schema))
        for table in tables:
            losses = Losses()
            _copy(pages, table, into, losses)
            if table.row_id is not None:  # ids of its own, with gaps: they count no rows
                losses = Losses(losses.pages)
            _tell(table.name, losses, out)
        into.commit()
    if schema.pages:
        out.notes.append(_of_the_list({table.name for table in tables}))
    return out


def _of_the_list(found: set[str]) -> str:
    """What a damaged list of tables means: none of its rows is an event's, but tables may lack."""
    absent = [name for name in EVENT_TABLES if name not in found]
    if not absent:
        return "the list of tables is cut or damaged itself: those of events are all there"
    missing = ", ".join(absent)
    return f"the list of tables is cut or damaged itself: {missing} may be missing altogether"


def _tell(name: str, losses: Losses, out: Salvage) -> None:
    if not losses.pages:
        return
    rows = max(1, losses.rows)
    out.lost[LOST] = out.lost.get(LOST, 0) + rows
    pages = f"{losses.pages:,} page{'s' if losses.pages > 1 else ''} of {name}"
    more = " at least" if losses.open_end or not losses.rows else ""
    out.notes.append(f"{pages} lost, with{more} {rows:,} row{'s' if rows > 1 else ''}")


def _tables(pages: Pages, losses: Losses) -> Iterator[_Table]:
    """The tables of :data:`TABLES`, from the first tree of the file, which lists all."""
    seen = set()
    for _, values in pages.rows(1, losses):
        if len(values) != 5 or values[0] != "table" or values[1] not in TABLES:
            continue
        _, name, _, root, sql = values
        table = _described(name, root, sql)
        if table is None:
            losses.pages += 1
        elif name not in seen:
            seen.add(name)
            yield table


def _described(name: str, root: Any, sql: Any) -> _Table | None:
    """Columns as sqlite itself understands the statement, in a database that holds nothing else."""
    if not isinstance(root, int) or not isinstance(sql, str):
        return None
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        empty.set_authorizer(_only_create)
        try:
            empty.execute(sql)
            empty.set_authorizer(None)
            found = empty.execute(
                "SELECT name, upper(type), pk FROM pragma_table_info(?) ORDER BY cid", [name]
            ).fetchall()
        except sqlite3.Error:
            return None
    keys = [place for place, (_, _, key) in enumerate(found) if key]
    by_id = keys[0] if len(keys) == 1 and found[keys[0]][1] == "INTEGER" else None
    return _Table(name, root, tuple(column for column, _, _ in found), by_id) if found else None


def _only_create(action: int, first: str | None, *_: str | None) -> int:
    listing = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_READ)
    allowed = action == sqlite3.SQLITE_CREATE_TABLE or (listing and first == "sqlite_master")
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _copy(pages: Pages, table: _Table, into: sqlite3.Connection, losses: Losses) -> None:
    """The table's rows, under the names of its columns, with the values as they are stored."""
    columns = [
        _quoted(column) + (" INTEGER PRIMARY KEY" if place == table.row_id else "")
        for place, column in enumerate(table.columns)
    ]
    into.execute(f"CREATE TABLE {_quoted(table.name)} ({', '.join(columns)})")
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {_quoted(table.name)} VALUES ({marks})"
    rows = _filled(pages.rows(table.root, losses), table, losses)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        into.executemany(insert, some)


def _filled(
    rows: Iterator[tuple[int, list[Any]]], table: _Table, losses: Losses
) -> Iterator[list[Any]]:
    """Rows with all columns: old rows lack those that were added to the table later."""
    width = len(table.columns)
    for row_id, values in rows:
        if len(values) > width:
            losses.rows += 1
            losses.pages += losses.pages == 0
            continue
        values += [None] * (width - len(values))
        if table.row_id is not None:
            values[table.row_id] = row_id
        yield values


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
