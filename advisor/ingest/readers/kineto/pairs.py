"""Joins B and E events (begin and end of a span on one thread) into spans.

They nest like parentheses per (pid, tid). What has no partner is counted, a begin without an end at
the close of the trace too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.ingest.classes import class_sql
from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext


def pair_begin_end(traces: Sequence[Trace], context: ReadContext) -> None:
    """Turn begin markers into spans and remove end markers; see the module."""
    con = context.con
    marked = con.execute(
        "SELECT rank, event_id, class = ?, pid, tid, start_ns FROM event "
        "WHERE run = ? AND class IN (?, ?) ORDER BY rank, start_ns, event_id",
        [sql.BEGIN, context.run, sql.BEGIN, sql.END],
    ).fetchall()
    if not marked:
        return
    owners = {trace.number: trace for trace in traces}
    stacks: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    spans: list[tuple[int, int, int]] = []
    for rank, event_id, begins, pid, tid, start in marked:
        owner = owners[event_id // sql.IDS_PER_FILE]
        stack = stacks.setdefault((owner.number, rank, pid, tid), [])
        if begins:
            stack.append((event_id, start))
        elif stack:
            begun, since = stack.pop()
            spans.append((rank, begun, start - since))
        else:
            owner.dropped["end without begin"] += 1
    for (number, *_), stack in stacks.items():
        if stack:
            owners[number].dropped["begin without end"] += len(stack)
    con.execute("CREATE OR REPLACE TEMP TABLE kineto_span (rank INTEGER, id BIGINT, dur BIGINT)")
    if spans:
        con.executemany("INSERT INTO kineto_span VALUES (?, ?, ?)", spans)
    by_name = class_sql("category", "name", "stream IS NOT NULL")
    con.execute(
        f"UPDATE event SET dur_ns = dur, class = {by_name} FROM kineto_span "
        "WHERE event.run = ? AND event.rank = kineto_span.rank AND event_id = id",
        [context.run],
    )
    con.execute(
        "DELETE FROM comm_event WHERE run = $1 AND (rank, event_id) IN "
        "(SELECT (rank, event_id) FROM event WHERE run = $1 AND class = $2)",
        [context.run, sql.BEGIN],
    )
    con.execute(
        "DELETE FROM event WHERE run = ? AND class IN (?, ?)", [context.run, sql.BEGIN, sql.END]
    )
    con.execute("DROP TABLE kineto_span")
