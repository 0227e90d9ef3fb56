"""Joins B and E events (begin and end of a span on one thread) into spans.

They nest like parentheses per (pid, tid). An end need not have a name; one that has ends the
nearest open begin of that name, as in Perfetto (Catapult ends the last one, and warns). What has no
partner is counted, a begin without an end at the close of the trace too. A span has the arguments
of both; where both have one, the end's counts, as the Trace Event Format says.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from advisor.ingest.classes import classify, keeps_shapes, runs_on_device
from advisor.ingest.readers._rows import arrow_column
from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

_SPAN = pa.schema(
    [(name, pa.int64()) for name in ("rank", "id", "dur", "end_id")]
    + [("class_", pa.string()), ("on_device", pa.bool_()), ("asks", pa.bool_())]
)


class _Open:
    """The begins of one thread that have no end yet; each is put in and taken out once."""

    def __init__(self) -> None:
        self._order: list[int] = []
        self._open: dict[int, int] = {}
        self._by_name: dict[str | None, list[int]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, event_id: int, start: int, name: str | None) -> None:
        """A span begins."""
        self._order.append(event_id)
        self._open[event_id] = start
        self._by_name.setdefault(name, []).append(event_id)

    def end(self, name: str | None) -> tuple[int, int] | None:
        """(event id, start) of the span that ends; None where none is open that can be meant."""
        stacks = [self._order] if name is None else [self._by_name.get(key) for key in (name, None)]
        found = None
        for stack in stacks:
            while stack and stack[-1] not in self._open:
                stack.pop()
            if stack and (found is None or self._began(stack[-1]) > self._began(found)):
                found = stack[-1]
        return None if found is None else (found, self._open.pop(found))

    def _began(self, event_id: int) -> tuple[int, int]:
        return self._open[event_id], event_id


def pair_begin_end(traces: Sequence[Trace], context: ReadContext) -> None:
    """Turn begin markers into spans and remove end markers; see the module."""
    con = context.con
    marked = con.execute(
        "SELECT rank, event_id, class = ?, pid, tid, start_ns, nullif(name, ''), category, stream "
        "FROM event "
        "WHERE run = ? AND class IN (?, ?) ORDER BY rank, start_ns, event_id",
        [event_fields.BEGIN, context.run, event_fields.BEGIN, event_fields.END],
    ).fetchall()
    if not marked:
        return
    owners = {trace.number: trace for trace in traces}
    threads: dict[tuple[Any, ...], _Open] = {}
    began: dict[int, tuple[Any, ...]] = {}
    spans: list[dict[str, Any]] = []
    for rank, event_id, begins, pid, tid, start, name, category, stream in marked:
        owner = owners[event_id // event_fields.IDS_PER_FILE]
        thread = threads.setdefault((owner.number, rank, pid, tid), _Open())
        if begins:
            thread.begin(event_id, start, name)
            began[event_id] = (category, name, stream)
        elif (found := thread.end(name)) is not None:
            begun, since = found
            category, name, on_stream = began.pop(begun)
            is_device = stream is not None or on_stream is not None
            spans.append(
                {
                    "rank": rank,
                    "id": begun,
                    "dur": start - since,
                    "end_id": event_id,
                    "class_": classify(category, name, device=is_device),
                    "on_device": runs_on_device(category),
                    "asks": keeps_shapes(name or ""),
                }
            )
        else:
            owner.dropped["end without begin"] += 1
    for (number, *_), thread in threads.items():
        if thread:
            owners[number].dropped["begin without end"] += len(thread)
    columns = [arrow_column([span[one.name] for span in spans], one.type) for one in _SPAN]
    con.register("kineto_pairs", pa.Table.from_arrays(columns, schema=_SPAN))
    con.execute("CREATE OR REPLACE TEMP TABLE kineto_span AS SELECT * FROM kineto_pairs")
    con.unregister("kineto_pairs")
    _merge_events(context)
    _merge_collectives(context)
    for table in ("comm_event", "event"):
        con.execute(
            f"DELETE FROM {table} WHERE run = $1 AND (rank, event_id) IN "
            "(SELECT (rank, event_id) FROM event WHERE run = $1 AND class IN ($2, $3))",
            [context.run, event_fields.BEGIN, event_fields.END],
        )
    con.execute("DROP TABLE kineto_span")


def _merge_events(context: ReadContext) -> None:
    """Give the begins of spans their durations, classes and the arguments of their ends."""
    both = ", ".join(
        f"{column} = coalesce(closing.{column}, event.{column})"
        for column in ("correlation", "external_id", "bytes")
    )
    placed = ", ".join(
        f"{column} = CASE WHEN on_device THEN coalesce(closing.{column}, event.{column}) END"
        for column in ("device", "stream")
    )
    context.con.execute(
        f"UPDATE event SET dur_ns = dur, class = class_, {both}, {placed} "
        "FROM kineto_span JOIN event AS closing ON closing.rank = kineto_span.rank "
        "AND closing.event_id = end_id "
        "WHERE event.run = $run AND closing.run = $run AND event.rank = kineto_span.rank "
        "AND event.event_id = id",
        {"run": context.run},
    )


def _merge_collectives(context: ReadContext) -> None:
    """Give the rows of spans in ``comm_event`` what their ends say."""
    con = context.con
    con.execute(
        "INSERT INTO comm_event (run, rank, event_id) SELECT c.run, c.rank, id FROM comm_event c "
        "JOIN kineto_span s ON s.rank = c.rank AND s.end_id = c.event_id WHERE c.run = $run AND id "
        "NOT IN (SELECT event_id FROM comm_event WHERE run = $run)",
        {"run": context.run},
    )
    taken = {
        column: f"CASE WHEN asks THEN c.{column} END AS {column}"
        if column in event_fields.SHAPE_COLUMNS
        else f"c.{column}"
        for column in event_fields.COMM_COLUMNS
    }
    sets = ", ".join(f"{name} = coalesce(closing.{name}, comm_event.{name})" for name in taken)
    con.execute(
        f"UPDATE comm_event SET {sets} FROM (SELECT s.rank, s.id, {', '.join(taken.values())} "
        "FROM comm_event c JOIN kineto_span s ON s.rank = c.rank AND s.end_id = c.event_id "
        "WHERE c.run = $run) AS closing "
        "WHERE comm_event.run = $run AND comm_event.rank = closing.rank "
        "AND comm_event.event_id = closing.id",
        {"run": context.run},
    )
    nothing = " AND ".join(f"{column} IS NULL" for column in event_fields.COMM_COLUMNS)
    con.execute(
        f"DELETE FROM comm_event WHERE run = ? AND {nothing} "
        "AND event_id IN (SELECT id FROM kineto_span)",
        [context.run],
    )
