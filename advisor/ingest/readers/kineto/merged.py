"""Traces of several ranks in one file, as merging tools write them.

Two ways are in use: every event carries ``args.rank`` (AMD's TraceFuse; handled inside the INSERT),
or every rank has process ids of its own, named in ``process_name`` events ("Rank 3 ...").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

_RANK = re.compile(r"\brank[\s_:#-]*(\d{1,6})\b", re.IGNORECASE)


def split_by_process(traces: Sequence[Trace], context: ReadContext) -> None:
    """Give events the rank of their process where the names of processes tell several ranks."""
    con = context.con
    for trace in traces:
        if trace.merged or trace.info.rank_from == "distributedInfo":
            continue
        named = con.execute(
            "SELECT pid, category FROM event WHERE run = ? AND event_id BETWEEN ? AND ? "
            "AND class = ? AND name IN ('process_name', 'process_labels') "
            "AND pid IS NOT NULL AND category IS NOT NULL",
            [context.run, trace.first_id, trace.last_id, sql.METADATA],
        ).fetchall()
        ranks = {pid: int(match.group(1)) for pid, name in named if (match := _RANK.search(name))}
        if len(set(ranks.values())) < 2:
            continue
        for pid, rank in ranks.items():
            con.execute(
                "UPDATE event SET rank = ? WHERE run = ? AND event_id BETWEEN ? AND ? AND pid = ?",
                [rank, context.run, trace.first_id, trace.last_id, pid],
            )
        con.execute(
            "UPDATE comm_event SET rank = event.rank FROM event "
            "WHERE event.run = $run AND comm_event.run = $run "
            "AND event.event_id = comm_event.event_id "
            "AND event.event_id BETWEEN $first AND $last",
            {"run": context.run, "first": trace.first_id, "last": trace.last_id},
        )
        trace.merged = True
