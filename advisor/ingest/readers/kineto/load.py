"""Loads the traces of a run: the chunks of all files into ``event``, then the exceptions.

Regular chunks go through the scanner (:mod:`.native`), what it refuses through :mod:`.parser`, and
what that cannot parse through :mod:`.repair`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.accelerators import place_on_devices
from advisor.ingest.readers.kineto.contents import summarise
from advisor.ingest.readers.kineto.cutter import Chunk
from advisor.ingest.readers.kineto.delete_rows import (
    delete_covered,
    delete_foreign,
    delete_repeated,
    forget,
)
from advisor.ingest.readers.kineto.insert import insert
from advisor.ingest.readers.kineto.merged import (
    find_ranks_of_events,
    refuse_crowds,
    split_by_process,
)
from advisor.ingest.readers.kineto.native.pipeline import Item
from advisor.ingest.readers.kineto.pairs import pair_begin_end
from advisor.ingest.readers.kineto.ranks import (
    EPOCH_NS,
    assign_ranks,
    check_parts,
    forget_workers,
    write_ranks,
)
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.readers.kineto.unnumbered_ranks import number_unnumbered
from advisor.ingest.scanner_library import library
from advisor.ingest.source import ReadContext, Source
from advisor.metrics.steps.untimed import UNTIMED
from advisor.store.notes import PARTLY_READ
from advisor.vocabulary.numbers import MOST_EVENT_NS

_OLD_KEY, _KEY = "external id", "External id"


def load(sources: Sequence[Source], context: ReadContext) -> None:
    """Read ``sources`` (all of one run) into run's base tables.

    A file that has to be refused (a decompression bomb) is an error where the user named it; one
    found in a folder is left out, and its row in ``source`` says why.
    """
    found = [Trace(source, number) for number, source in enumerate(sources)]
    context.con.execute(event_fields.UNUSABLE_SQL)
    for trace in found:
        try:
            trace.peek()
        except AdvisorError as error:
            trace.refused = trace.source.refused(error)
    traces = [trace for trace in found if trace.refused is None]
    assign_ranks(traces, context.ranks)
    for key in (_KEY, _OLD_KEY):
        for asking in (False, True):
            chosen = [
                trace
                for trace in traces
                if _external_key(trace.source) == key and trace.asks_events is asking
            ]
            if chosen:
                _load_dialect(chosen, context, key, merged=asking)
    _leave_out([trace for trace in found if trace.refused is not None], context)
    traces = [trace for trace in traces if trace.refused is None]
    _take_base_of_others(traces, context)
    find_ranks_of_events(traces, context)
    split_by_process(traces, context)
    refuse_crowds(traces, context)
    pair_begin_end(traces, context)
    place_on_devices(traces, context)
    delete_repeated(traces, context)
    _mark_collective_copies(context)
    _count_durations(traces, context)
    _count_numbers(traces, context)
    number_unnumbered(traces, context)
    _leave_out([trace for trace in traces if trace.refused is not None], context)
    traces = [trace for trace in traces if trace.refused is None]
    forget_workers(traces)
    summary = summarise(context)
    check_parts(traces, summary, context)
    write_ranks(traces, summary, context)


def _leave_out(traces: Sequence[Trace], context: ReadContext) -> None:
    """Remove what was read of refused files, and report them."""
    for trace in traces:
        forget(trace, (trace.first_id, trace.last_id), context)
        context.refuse(trace.source, "kineto", trace.refused or "")


def _unless_refused(trace: Trace, chunks: Iterator[Chunk]) -> Iterator[Item]:
    """The chunks; a refusal on the way costs this file alone."""
    if trace.refused is not None:
        return
    try:
        for chunk in chunks:
            yield trace, chunk
    except AdvisorError as error:
        trace.refused = trace.source.refused(error)


def _external_key(source: Source) -> str:
    """Traces of PyTorch 1.8 write ``external id``; struct fields cannot differ by case only."""
    old = b'"external id"' in source.head and b'"External id"' not in source.head
    return _OLD_KEY if old else _KEY


def _load_dialect(traces: list[Trace], context: ReadContext, key: str, *, merged: bool) -> None:
    def chunks() -> Iterator[Item]:
        for trace in traces:
            yield from _unless_refused(trace, trace.chunks(context.progress))
            yield from _unless_refused(trace, trace.last_events())

    how: dict[str, Any] = {"merged": merged, "library": library()}
    if malformed := insert(chunks(), context, key, **how):
        insert(_repaired(traces, malformed), context, key, **how)
    for trace in (trace for trace in traces if trace.refused is None):
        trace.settle()
        delete_covered(trace, context)
        delete_foreign(trace, context)
    assumed = [trace.base_ns for trace in traces]
    for trace in traces:
        trace.finish()
    # The fields after the events may have given another base time than was assumed.
    _shift(traces, assumed, context)


def _repaired(traces: list[Trace], malformed: dict[int, list[int]]) -> Iterator[Item]:
    for trace in traces:
        numbers = malformed.get(trace.number)
        if numbers:
            yield from _unless_refused(trace, trace.repairs(numbers))


# Work of one stream runs one after another. What ends after the next but one did not take so long:
# of 39,000 such events of fourteen real recordings none does. A graph's branches may share a
# stream, and where it is common the stream is no such queue.
_OUTLASTING = """
WITH ordered AS (
  SELECT event_id, event_id // $file AS file, rank, device, stream, correlation,
         start_ns + dur_ns > lead(start_ns + dur_ns, 2) OVER (
           PARTITION BY event_id // $file, rank, device, stream ORDER BY start_ns, event_id
         ) AS outlasts
  FROM event WHERE run = $run AND class IN ('compute', 'comm', 'memory') AND device IS NOT NULL
    AND stream IS NOT NULL AND category IS DISTINCT FROM 'gpu_user_annotation'),
few AS (
  SELECT file, rank, device, stream FROM ordered
  GROUP BY ALL HAVING count(*) FILTER (outlasts) BETWEEN 1 AND 0.01 * count(*) + 1),
graph AS (
  SELECT event_id // $file AS file, correlation FROM event
  WHERE run = $run AND class = 'runtime' AND contains(name, 'GraphLaunch'))
UPDATE event SET dur_ns = NULL WHERE run = $run AND event_id IN (
  SELECT event_id FROM ordered SEMI JOIN few USING (file, rank, device, stream)
  ANTI JOIN graph USING (file, correlation) WHERE outlasts)
"""


def _count_durations(traces: list[Trace], context: ReadContext) -> None:
    """Spans that do not say how long they took: those of the host are kept with 0.

    What a device did and what was communicated stays unknown (metrics/steps/untimed.py).
    """
    context.con.execute(
        "UPDATE event SET dur_ns = NULL WHERE run = ? AND dur_ns > ?", [context.run, MOST_EVENT_NS]
    )
    context.con.execute(_OUTLASTING, {"run": context.run, "file": event_fields.IDS_PER_FILE})
    rows = context.con.execute(
        f"SELECT event_id // ?, count(*) FILTER ({UNTIMED}), count(*) FROM event WHERE run = ? "
        "AND dur_ns IS NULL AND NOT starts_with(class, '!') GROUP BY ALL",
        [event_fields.IDS_PER_FILE, context.run],
    ).fetchall()
    if not rows:
        return
    context.con.execute(
        f"UPDATE event SET dur_ns = 0 WHERE run = ? AND dur_ns IS NULL AND NOT ({UNTIMED})",
        [context.run],
    )
    by_number = {trace.number: trace for trace in traces}
    for number, left_out, count in rows:
        words = f"events without a usable duration: {count:,}"
        if left_out:
            by_number[number].codes.append(PARTLY_READ)
            words += f", {left_out:,} of them of the device, left out"
        by_number[number].notes.append(words)


def _count_numbers(traces: list[Trace], context: ReadContext) -> None:
    """Say of which fields a number was none, or out of range, and is therefore not known."""
    rows = context.con.execute(
        f"SELECT event_id // $1, field, count(*) FROM {event_fields.UNUSABLE} WHERE run = $2 "
        "AND event_id IN (SELECT event_id FROM event WHERE run = $2) GROUP BY ALL ORDER BY ALL",
        [event_fields.IDS_PER_FILE, context.run],
    ).fetchall()
    context.con.execute(f"DROP TABLE temp.{event_fields.UNUSABLE}")
    by_number = {trace.number: trace for trace in traces}
    for number, field, count in rows:
        by_number[number].notes.append(f"events without a usable {field}: {count:,}")


def _take_base_of_others(traces: Sequence[Trace], context: ReadContext) -> None:
    """Files that were cut lack their base time, which stands at the end: that of the others.

    pytorch/kineto rounds it to three months, so that all ranks of a job have the same
    (libkineto/src/output_json.h).
    """
    bases = {trace.info.base_time_ns for trace in traces} - {None}
    if len(bases) != 1:
        return
    for trace in traces:
        is_absolute = (trace.origin_us or 0) * 1000 > EPOCH_NS
        if trace.info.base_time_ns is None and not trace.complete and not is_absolute:
            trace.info.base_time_ns = next(iter(bases))
            trace.set_base()
            _shift([trace], [0], context)
            trace.notes.append("its base time was cut off: it is that of the other files")


def _shift(traces: Sequence[Trace], assumed_ns: Sequence[int], context: ReadContext) -> None:
    """Correct the times of rows that were written with other base times than the traces have."""
    by_shift: dict[int, list[int]] = {}
    for trace, before in zip(traces, assumed_ns, strict=True):
        by_shift.setdefault(trace.base_ns - before, []).append(trace.number)
    for shift, numbers in by_shift.items():  # ranks of a job have the same, as a rule
        if shift:
            context.con.execute(
                "UPDATE event SET start_ns = start_ns + ? "
                "WHERE run = ? AND event_id // ? IN (SELECT unnest(?))",
                [shift, context.run, event_fields.IDS_PER_FILE, numbers],
            )


# Copies by which a collective moves its data: NCCL's copy-engine collectives run no kernel. Since
# 2.28 all-gathers, all-to-alls, scatters and gathers of registered buffers go over the copy
# engines where ``NCCL_CTA_POLICY=2`` asks for it (NVIDIA/nccl src/ce_coll.cc). Kineto records
# copies between devices; c10d's annotation, in which they are launched, says what they are.
_PEER_COPY = "class = 'memory' AND device IS NOT NULL AND contains(name, 'PtoP')"
_OF_COLLECTIVES = f"""
UPDATE event SET class = 'comm' WHERE run = $run AND event_id IN (
  SELECT c.event_id FROM (FROM event WHERE run = $run AND {_PEER_COPY}) c
  JOIN event l ON l.run = $run AND l.event_id // $file = c.event_id // $file
    AND l.correlation = c.correlation AND l.class = 'runtime' AND c.correlation > 0
  JOIN event a ON a.run = $run AND a.event_id // $file = c.event_id // $file AND a.tid = l.tid
    AND a.device IS NULL AND starts_with(a.name, 'nccl:')
    AND l.start_ns BETWEEN a.start_ns AND a.start_ns + a.dur_ns)
"""


def _mark_collective_copies(context: ReadContext) -> None:
    """Make copies between devices that c10d launched in a collective communication."""
    found = context.con.execute(
        f"SELECT 1 FROM event WHERE run = ? AND {_PEER_COPY} LIMIT 1", [context.run]
    ).fetchone()
    if found is not None:
        context.con.execute(
            _OF_COLLECTIVES, {"run": context.run, "file": event_fields.IDS_PER_FILE}
        )
