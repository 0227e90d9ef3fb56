"""Removes rows that turned out to be no events of the run: see :mod:`.reread` and :mod:`.trace`."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.reread import REREAD_IDS
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

FOREIGN = "event of another document"
_TABLES = ("event", "comm_event")


def delete_covered(trace: Trace, context: ReadContext) -> None:
    """Rows of chunks that were cut inside an event; what was read again instead stays."""
    for first, last in _runs(trace.covered):
        ids = [trace.first_id + number * event_fields.IDS_PER_CHUNK for number in (first, last + 1)]
        for table in _TABLES:
            context.con.execute(
                f"DELETE FROM {table} WHERE run = ? AND event_id >= ? AND event_id < ? "
                "AND event_id % ? < ?",
                [context.run, *ids, event_fields.IDS_PER_CHUNK, REREAD_IDS],
            )


def delete_foreign(trace: Trace, context: ReadContext) -> None:
    """Events of a further document in the file that is of another rank or clock: counted."""
    for first, last in trace.foreign:
        (count,) = context.con.execute(
            "SELECT count(*) FROM event WHERE run = ? AND event_id BETWEEN ? AND ? AND class <> ?",
            [context.run, first, last, event_fields.METADATA],
        ).fetchone()
        trace.dropped[FOREIGN] += count
        forget(trace, (first, last), context)


def forget(trace: Trace, ids: tuple[int, int], context: ReadContext) -> None:
    """The rows of a trace whose ids lie in a range, both ends included."""
    first, last = max(ids[0], trace.first_id), min(ids[1], trace.last_id)
    for table in _TABLES:
        context.con.execute(
            f"DELETE FROM {table} WHERE run = ? AND event_id BETWEEN ? AND ?",
            [context.run, first, last],
        )


def _runs(numbers: set[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as (first, last)."""
    ordered = sorted(numbers)
    first = 0
    for at, number in enumerate(ordered):
        if at + 1 == len(ordered) or ordered[at + 1] != number + 1:
            yield ordered[first], number
            first = at + 1
