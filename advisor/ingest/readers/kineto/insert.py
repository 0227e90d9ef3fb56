"""Streams chunks into the tables of a store, scanned or parsed by the database itself."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from advisor.errors import AdvisorError
from advisor.ingest.classes import literal
from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.cutter import Chunk
from advisor.ingest.readers.kineto.json_value import is_deeper
from advisor.ingest.readers.kineto.native.pipeline import Item, Leftover, Scanning
from advisor.ingest.readers.kineto.native.scanner import COMM_EVENTS, EVENTS, Scanner
from advisor.ingest.readers.kineto.reread import RepairedChunk
from advisor.ingest.readers.kineto.trace import Trace, chunk_first_id
from advisor.ingest.source import ReadContext
from advisor.store.running import stoppable

_ARROW = pa.schema(
    [
        ("chunk", pa.string()),
        ("rank", pa.int32()),
        ("base_ns", pa.int64()),
        ("first_id", pa.int64()),
    ]
)
# A thread fills a row group of its own (122,880 events, about 35 MB before compression) and holds
# the parse of one chunk. More only delays writing: the result is written once in any case.
_MEMORY_MB = 200
_MEMORY_MB_PER_THREAD = 100
_COMM_ROWS = 50_000
_BOOLEAN_TIMES = [re.compile(rb'("%s"\s*:\s*)(?:true|false)\b' % key) for key in (b"ts", b"dur")]


def insert_parsed(
    items: Iterable[Item], context: ReadContext, key: str, *, origin_us: int, merged: bool
) -> None:
    """Let the database parse the chunks. An error in ``items`` comes out as it was raised."""
    sql.self_test(context.con)
    statement = sql.insert_sql(
        context.run, "kineto_stream", key, origin_us=origin_us, lean=context.lean, merged=merged
    )
    context.con.execute(sql.STAGE_SQL)
    try:
        batches = (_batch(trace, chunk) for trace, chunk in items)
        _stream(context, _ARROW, batches, statement)
        context.con.execute(sql.MOVE_SQL)
    finally:
        context.con.execute(sql.UNSTAGE_SQL)


def insert_scanned(
    items: Iterable[Item],
    context: ReadContext,
    key: str,
    *,
    merged: bool,
    library: Any,
) -> Leftover:
    """Let the scanner read the chunks; what it refused is returned and nothing of it inserted."""
    comm = _CommEvents(context)
    scanning = Scanning(
        items,
        lambda: Scanner(library, key, lean=context.lean, merged=merged),
        comm.add,
        comm.flush,
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
    return scanning.leftover


class _CommEvents:
    """Collects rows of ``comm_event`` and inserts them by the thousands, from any thread."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._batches: list[Any] = []

    def add(self, batch: Any) -> None:
        with self._lock:
            self._batches.append(batch)
            if sum(kept.num_rows for kept in self._batches) >= _COMM_ROWS:
                self._insert()

    def flush(self) -> None:
        with self._lock:
            self._insert()

    def _insert(self) -> None:
        batches, self._batches = self._batches, []
        if not batches:
            return
        con = self._context.con.cursor()
        try:
            con.register("kineto_comm", pa.Table.from_batches(batches, COMM_EVENTS))
            columns = ", ".join(COMM_EVENTS.names)
            con.execute(
                f"INSERT INTO comm_event (run, {columns}) "
                f"SELECT {literal(self._context.run)}, {columns} FROM kineto_comm"
            )
        finally:
            con.close()


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


def _batch(trace: Trace, chunk: Chunk) -> pa.RecordBatch:
    text: bytes | bytearray = _no_boolean_times(trace.utf8(chunk.text))
    if not isinstance(chunk, RepairedChunk) and is_deeper(text, trace.source.limits.nesting + 1):
        text = b"["  # malformed, to be read event by event, which tells what is too deep
    size = len(text)
    offsets = pa.py_buffer(_offsets(size))
    columns = [pa.StringArray.from_buffers(1, offsets, pa.py_buffer(text))]
    numbers = (trace.rank, trace.base_ns, chunk_first_id(trace, chunk))
    for field, number in zip(list(_ARROW)[1:], numbers, strict=True):
        data = number.to_bytes(field.type.bit_width // 8, sys.byteorder, signed=True)
        columns.append(pa.Array.from_buffers(field.type, 1, [None, pa.py_buffer(data)]))
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _no_boolean_times(text: bytearray) -> bytes | bytearray:
    """The chunk with null for true and false as a time, which the database would take for 1 and 0.

    A key cannot be meant that stands in a string: its quotes would be escaped there.
    """
    for pattern in _BOOLEAN_TIMES:
        if pattern.search(text):
            text = bytearray(pattern.sub(rb"\1null", text))
    return text


def _offsets(size: int) -> bytes:
    if size > 2**31 - 1:
        raise AdvisorError("one event is larger than 2 GiB")
    return bytes(4) + size.to_bytes(4, sys.byteorder)
