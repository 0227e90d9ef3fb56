"""Loads the traces of a run: one INSERT over the chunks of all files, then the exceptions to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.cutter import Chunk
from advisor.ingest.readers.kineto.merged import split_by_process
from advisor.ingest.readers.kineto.pairs import pair_begin_end
from advisor.ingest.readers.kineto.ranks import assign_ranks, check_parts, write_ranks
from advisor.ingest.readers.kineto.trace import Trace, chunk_first_id
from advisor.ingest.source import ReadContext, Source

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
_OLD_KEY, _KEY = "external id", "External id"


def load(sources: Sequence[Source], context: ReadContext) -> None:
    """Read ``sources`` (all of one run) into run's base tables."""
    sql.self_test(context.con)
    traces = [Trace(source, number) for number, source in enumerate(sources)]
    for trace in traces:
        trace.peek()
    assign_ranks(traces, context.ranks)
    for key in (_KEY, _OLD_KEY):
        for merged in (False, True):
            chosen = [
                trace
                for trace in traces
                if _external_key(trace.source) == key and trace.merged is merged
            ]
            if chosen:
                _load_dialect(chosen, context, key, merged=merged)
    split_by_process(traces, context)
    check_parts(traces, context)
    pair_begin_end(traces, context)
    write_ranks(traces, context)


def _external_key(source: Source) -> str:
    """Traces of PyTorch 1.8 write ``external id``; struct fields cannot differ by case only."""
    old = b'"external id"' in source.head and b'"External id"' not in source.head
    return _OLD_KEY if old else _KEY


def _load_dialect(traces: list[Trace], context: ReadContext, key: str, *, merged: bool) -> None:
    origin_us = next((t.origin_us for t in traces if t.origin_us is not None), 0)

    def normalise(event: dict[str, Any]) -> dict[str, Any]:
        kept = {name: event[name] for name in sql.KEPT_FIELDS if name in event}
        args = event.get("args")
        if isinstance(args, dict):
            wanted = (*sql.KEPT_ARGS, key)
            kept["args"] = {name: args[name] for name in wanted if name in args}
        return kept

    def chunks() -> Iterator[tuple[Trace, Chunk]]:
        for trace in traces:
            for chunk in trace.chunks(context.progress):
                yield trace, chunk
            for chunk in trace.last_events(normalise):
                yield trace, chunk

    _insert(chunks(), context, key, origin_us, merged=merged)
    bad = _bad_chunks(context)
    if bad:
        _insert(_repaired(traces, bad, normalise), context, key, origin_us, merged=merged)
        _forget_after_end(traces, context)
    for trace in traces:
        _apply_tail(trace, context)


def _repaired(
    traces: list[Trace], bad: dict[int, list[int]], normalise: Any
) -> Iterator[tuple[Trace, Chunk]]:
    for trace in traces:
        numbers = bad.get(trace.number)
        if numbers:
            for chunk in trace.repairs(numbers, normalise):
                yield trace, chunk


def _insert(
    chunks: Iterator[tuple[Trace, Chunk]],
    context: ReadContext,
    key: str,
    origin_us: int,
    *,
    merged: bool,
) -> None:
    """Stream chunks into the event table. An error in the generator comes out as it was raised."""
    failure: list[BaseException] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for trace, chunk in chunks:
                yield _batch(trace, chunk)
        except BaseException as error:
            failure.append(error)
            raise

    reader = pa.RecordBatchReader.from_batches(_ARROW, batches())
    # A connection of its own: registering fails while another has an unread result.
    con = context.con.cursor()
    con.register("kineto_chunks", reader)
    limited = context.store.path is not None
    con.execute(sql.STAGE_SQL)
    try:
        if limited:
            con.execute(f"SET memory_limit = '{_memory_limit_mb(con)}MB'")
        con.execute("SET preserve_insertion_order = false")
        con.execute(
            sql.insert_sql(
                context.run,
                "kineto_chunks",
                key,
                origin_us=origin_us,
                lean=context.lean,
                merged=merged,
            )
        )
        con.execute(sql.MOVE_SQL)
    except Exception:
        if failure:
            raise failure[0] from None
        raise
    finally:
        con.unregister("kineto_chunks")
        con.execute(sql.UNSTAGE_SQL)
        con.execute("RESET preserve_insertion_order")
        if limited:
            con.execute("RESET memory_limit")
        con.close()


def _memory_limit_mb(con: Any) -> int:
    """What the database may hold while it streams into a file, whatever the traces' size."""
    (threads,) = con.execute("SELECT current_setting('threads')").fetchone()
    return max(_MEMORY_MB, _MEMORY_MB_PER_THREAD * int(threads))


def _batch(trace: Trace, chunk: Chunk) -> pa.RecordBatch:
    size = len(chunk.text)
    offsets = pa.py_buffer(_offsets(size))
    text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(chunk.text))
    return pa.record_batch(
        [
            text,
            pa.array([trace.rank], pa.int32()),
            pa.array([trace.base_ns], pa.int64()),
            pa.array([chunk_first_id(trace, chunk)], pa.int64()),
        ],
        schema=_ARROW,
    )


def _offsets(size: int) -> bytes:
    if size > 2**31 - 1:
        raise AdvisorError("one event is larger than 2 GiB")
    return b"\0\0\0\0" + size.to_bytes(4, "little")


def _bad_chunks(context: ReadContext) -> dict[int, list[int]]:
    """Numbers of malformed chunks by file; their marker rows are removed."""
    rows = context.con.execute(
        "SELECT event_id FROM event WHERE run = ? AND class = ?",
        [context.run, sql.BAD_CHUNK],
    ).fetchall()
    found: dict[int, list[int]] = {}
    for (event_id,) in rows:
        number, within = divmod(event_id, sql.IDS_PER_FILE)
        found.setdefault(number, []).append(within // sql.IDS_PER_CHUNK)
    if rows:
        context.con.execute(
            "DELETE FROM event WHERE run = ? AND class = ?", [context.run, sql.BAD_CHUNK]
        )
    return found


def _forget_after_end(traces: list[Trace], context: ReadContext) -> None:
    """Objects after the end of the list of events looked like events but are none."""
    for trace in traces:
        if trace.ended_in is not None:
            first = trace.first_id + (trace.ended_in + 1) * sql.IDS_PER_CHUNK
            for table in ("event", "comm_event"):
                context.con.execute(
                    f"DELETE FROM {table} WHERE run = ? AND event_id BETWEEN ? AND ?",
                    [context.run, first, trace.last_id],
                )


def _apply_tail(trace: Trace, context: ReadContext) -> None:
    """Correct rows when the fields after the events gave another base time than assumed."""
    assumed = trace.base_ns
    trace.finish()
    shift = trace.base_ns - assumed
    if shift:
        context.con.execute(
            "UPDATE event SET start_ns = start_ns + ? WHERE run = ? AND event_id BETWEEN ? AND ?",
            [shift, context.run, trace.first_id, trace.last_id],
        )
