"""Traces of several ranks in one file, as merging tools write them.

Two ways are in use: every event carries ``args.rank`` (AMD's TraceFuse; read with the events of
files that do not state their rank), or every rank has process ids of its own, named in
``process_name`` events ("Rank 3 ...").
"""

import re
from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

_FEW = 0.01
"""Of a file's events: if fewer name another rank than the file's, it is not a file of several."""
_RANK = re.compile(r"\brank[\s_:#-]*(\d{1,6})\b", re.IGNORECASE)


def find_ranks_of_events(traces: Sequence[Trace], context: ReadContext) -> None:
    """Which files turned out to hold other ranks than the one they were given."""
    asked = {trace.number: trace for trace in traces if trace.asks_events and not trace.merged}
    if not asked:
        return
    rows = context.con.execute(
        "SELECT event_id // ?, rank, count(*) FROM event WHERE run = ? AND class NOT IN (?, ?) "
        "GROUP BY ALL ORDER BY ALL",
        [event_fields.IDS_PER_FILE, context.run, event_fields.METADATA, event_fields.NO_RANK],
    ).fetchall()
    found: dict[int, dict[int, int]] = {}
    for number, rank, count in rows:
        found.setdefault(number, {})[rank] = count
    for number, trace in asked.items():
        counts = found.get(number, {})
        others = sum(count for rank, count in counts.items() if rank != trace.rank)
        if not others:
            continue
        if others < _FEW * sum(counts.values()):
            trace.notes.append(
                f"args.rank names another rank in {others:,} of {sum(counts.values()):,} events: "
                "too few to go by"
            )
            set_rank(trace, context)
            continue
        trace.guessed = ""
        if len(counts) == 1:
            trace.rank = next(iter(counts))
            trace.notes.append(f"rank {trace.rank} from its events (args.rank)")
            set_rank(trace, context)
        else:
            trace.merged = True


def refuse_crowds(traces: Sequence[Trace], context: ReadContext) -> None:
    """Refuse files that name more ranks than they can hold work of. Raises for what was named."""
    merged = {trace.number: trace for trace in traces if trace.merged}
    if not merged:
        return
    rows = context.con.execute(
        "SELECT event_id // ?, count(DISTINCT rank) FROM event WHERE run = ? AND class <> ? "
        "GROUP BY 1",
        [event_fields.IDS_PER_FILE, context.run, event_fields.METADATA],
    ).fetchall()
    for number, ranks in rows:
        if number in merged:
            source = merged[number].source
            try:
                source.require_room_for(ranks)
            except AdvisorError as error:
                merged[number].refused = source.refused(error)


def set_rank(trace: Trace, context: ReadContext) -> None:
    """All of a file's events are of its rank."""
    for table in ("event", "comm_event"):
        context.con.execute(
            f"UPDATE {table} SET rank = ? WHERE run = ? AND event_id BETWEEN ? AND ? AND rank <> ?",
            [trace.rank, context.run, trace.first_id, trace.last_id, trace.rank],
        )


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
            [context.run, trace.first_id, trace.last_id, event_fields.METADATA],
        ).fetchall()
        ranks = {pid: int(match.group(1)) for pid, name in named if (match := _RANK.search(name))}
        if len(set(ranks.values())) < 2:
            continue
        con.execute(
            "UPDATE event SET rank = named.rank "
            "FROM (SELECT unnest($pids) AS pid, unnest($ranks) AS rank) AS named "
            "WHERE event.pid = named.pid AND run = $run AND event_id BETWEEN $first AND $last",
            {"pids": list(ranks), "ranks": list(ranks.values()),
             "run": context.run, "first": trace.first_id, "last": trace.last_id},
        )  # fmt: skip
        con.execute(
            "UPDATE comm_event SET rank = event.rank FROM event "
            "WHERE event.run = $run AND comm_event.run = $run "
            "AND event.event_id = comm_event.event_id "
            "AND event.event_id BETWEEN $first AND $last",
            {"run": context.run, "first": trace.first_id, "last": trace.last_id},
        )
        trace.merged = True
