"""Streams chunks into the tables of a store, as the scanner or the parser reads them."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from advisor.ingest.classes import literal
from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.native.pipeline import Item, Scanning
from advisor.ingest.readers.kineto.native.scanner import EVENTS, Scanner
from advisor.ingest.readers.kineto.parser import Parser
from advisor.ingest.source import ReadContext
from advisor.store.running import stoppable

# A thread fills a row group of its own (122,880 events, about 35 MB before compression). More only
# delays writing: the result is written once in any case.
_MEMORY_MB = 200
_MEMORY_MB_PER_THREAD = 100
_ROWS_AT_ONCE = 50_000
_BESIDE = ("comm_event", event_fields.UNUSABLE)


def insert(
    items: Iterable[Item], context: ReadContext, key: str, *, merged: bool, library: Any
) -> dict[int, list[int]]:
    """Insert the rows of chunks; numbers of those that are malformed are returned, by file.

    ``library``: the scanner's, or None. An error in ``items`` comes out as it was raised.
    """
    beside = _Beside(context)
    how = {"lean": context.lean, "merged": merged}
    scanning = Scanning(
        items,
        lambda: None if library is None else Scanner(library, key, **how),
        lambda: Parser(key, **how),
        beside.add,
        beside.flush,
    )
    columns = ", ".join(EVENTS.names)
    statement = (
        f"INSERT INTO event (run, {columns}) "
        f"SELECT {literal(context.run)}, {columns} FROM kineto_stream"
    )
    try:
        _stream(context, EVENTS, scanning.batches(), statement)
    finally:
        scanning.stop()
    return scanning.malformed


class _Beside:
    """Collects rows of the other tables and inserts them by the thousands, from any thread."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Any]] = {table: [] for table in _BESIDE}

    def add(self, batches: Sequence[Any]) -> None:
        with self._lock:
            for table, batch in zip(_BESIDE, batches, strict=False):  # scanned rows lack nothing
                self._waiting[table].append(batch)
                if sum(kept.num_rows for kept in self._waiting[table]) >= _ROWS_AT_ONCE:
                    self._insert(table)

    def flush(self) -> None:
        with self._lock:
            for table in _BESIDE:
                self._insert(table)

    def _insert(self, table: str) -> None:
        batches, self._waiting[table] = self._waiting[table], []
        if not any(batch.num_rows for batch in batches):
            return
        # A temporary table is its connection's own, which nobody else uses meanwhile.
        con = self._context.con
        con = con if table == event_fields.UNUSABLE else con.cursor()
        con.register("kineto_rows", pa.Table.from_batches(batches))
        columns = ", ".join(batches[0].schema.names)
        con.execute(
            f"INSERT INTO {table} (run, {columns}) "
            f"SELECT {literal(self._context.run)}, {columns} FROM kineto_rows"
        )
        con.unregister("kineto_rows")


def _stream(context: ReadContext, schema: Any, batches: Iterator[Any], statement: str) -> None:
    """Run an INSERT from ``kineto_stream``; an error in ``batches`` comes out as it was raised."""
    failure: list[BaseException] = []

    def noted() -> Iterator[Any]:
        try:
            yield from batches
        except BaseException as error:
            failure.append(error)
            raise

    reader = pa.RecordBatchReader.from_batches(schema, noted())
    # A connection of its own: registering fails while another has an unread result.
    con = stoppable(context.con.cursor())
    con.register("kineto_stream", reader)
    limited = context.store.path is not None
    try:
        if limited:
            con.execute(f"SET memory_limit = '{_memory_limit_mb(con)}MB'")
        con.execute("SET preserve_insertion_order = false")
        con.execute(statement)
    except Exception:
        if failure:
            raise failure[0] from None
        raise
    finally:
        con.unregister("kineto_stream")
        con.execute("RESET preserve_insertion_order")
        if limited:
            con.execute("RESET memory_limit")
        con.close()


def _memory_limit_mb(con: Any) -> int:
    """What the database may hold while it streams into a file, whatever the traces' size."""
    (threads,) = con.execute("SELECT current_setting('threads')").fetchone()
    return max(_MEMORY_MB, _MEMORY_MB_PER_THREAD * int(threads))
