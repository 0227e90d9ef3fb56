"""Removes rows that turned out to be no events of the run: see :mod:`.reread` and :mod:`.trace`."""

from collections.abc import Iterator, Sequence

from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.reread import REREAD_IDS
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

# The cheap numbers first: of 40 real recordings none has a repeated event, and few agree in these.
_FIND = """
CREATE TEMP TABLE repeated AS
WITH suspect AS (
  SELECT any_value(rank) AS rank, any_value(start_ns) AS start_ns FROM event
  WHERE run = $run AND NOT starts_with(class, '!')
  GROUP BY hash(event_id // $file, rank, start_ns, dur_ns, stream, tid, correlation)
  HAVING count(*) > 1),
known AS (
  SELECT e.event_id, e.event_id // $file AS file, correlation IS NOT NULL OR external_id IS NOT NULL
    OR device IS NOT NULL AS has_id, row_number() OVER (
      PARTITION BY e.event_id // $file, e.rank, name, category, class, device, stream, pid, tid,
        e.start_ns, dur_ns, correlation, external_id, bytes ORDER BY event_id) AS copy
  FROM event e SEMI JOIN suspect USING (rank, start_ns) WHERE run = $run)
SELECT event_id, file FROM known WHERE copy > 1
  AND file IN (SELECT file FROM known WHERE copy > 1 AND has_id)
"""

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


def delete_repeated(traces: Sequence[Trace], context: ReadContext) -> None:
    """Of equal events of a file the first is kept; how many others there were becomes a note.

    A part of a file may be written once more. Two kernels of one stream do not begin and end
    together, and no two events share all of their numbers: one that agrees with another of its file
    in everything that is kept is its copy, and would count as work that nobody did. Events without
    an id of their own (nested functions that last no microsecond) may agree by chance: they are
    copies where others are.
    """
    con = context.con
    try:
        con.execute(_FIND, {"run": context.run, "file": event_fields.IDS_PER_FILE})
        counts = dict(con.execute("SELECT file, count(*) FROM repeated GROUP BY 1").fetchall())
        for table in _TABLES if counts else ():
            con.execute(
                f"DELETE FROM {table} WHERE run = ? "
                "AND event_id IN (SELECT event_id FROM repeated)",
                [context.run],
            )
    finally:
        con.execute("DROP TABLE IF EXISTS temp.repeated")
    for trace in traces:
        if trace.number in counts:
            words = f"events that stand in the file once more, left out: {counts[trace.number]:,}"
            trace.notes.append(words)
