"""``--lean``: the events that the analysis rests on stay; the others go once all is linked.

What may go cannot be told while a trace is read: a driver call matters if it launched work on the
device, an operator if there is no device and it is the work itself. So everything is read, and then
``event`` is written again without the rest, and the counts of what was kept with it.
"""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from advisor.ingest.classes import enqueue_sql, literal
from advisor.ingest.readers.kineto.event_fields import IDS_PER_FILE
from advisor.ingest.source import ReadContext
from advisor.metrics.collectives.spans import TELLS_PHASE
from advisor.metrics.host.activity import OWN_WORK_NS, TELLING
from advisor.metrics.timeline.timeline import LAUNCH_PREFIXES, timelines
from advisor.store.events import Events

_KEPT = "event_kept"
_NAMES = (
    TELLS_PHASE,
    enqueue_sql("name"),
    "starts_with(name, 'aten::_foreach_')",
    *(f"regexp_matches(name, {literal(pattern)})" for pattern in TELLING),
    *(f"starts_with(name, {literal(prefix)})" for prefix in LAUNCH_PREFIXES),
)

# Device events, annotations and collectives; what tells of a collective; calls that launched a
# device event, operators that launched a kernel; names that explain a phase or a pause; the
# operators that are the work where there is no device, and each thread's last one, which tells how
# far its recording goes.
_LEAN = f"""
SELECT e.* FROM event e
LEFT JOIN (SELECT DISTINCT rank, event_id, true AS kept FROM comm_event WHERE run = $run) c
  ON c.rank = e.rank AND c.event_id = e.event_id
LEFT JOIN (SELECT DISTINCT rank, correlation, true AS kept FROM event
    WHERE run = $run AND device IS NOT NULL AND correlation > 0) d
  ON d.rank = e.rank AND d.correlation = e.correlation AND e.class = 'runtime'
LEFT JOIN (SELECT name, true AS kept FROM (SELECT DISTINCT name FROM event WHERE run = $run)
    WHERE {" OR ".join(_NAMES)}) n ON n.name = e.name
LEFT JOIN (SELECT *, true AS kept FROM lean_work) w
  ON w.rank = e.rank AND w.event_id = e.event_id
LEFT JOIN (SELECT DISTINCT rank, external_id, true AS kept FROM event
    WHERE run = $run AND class = 'compute' AND device IS NOT NULL AND external_id > 0) o
  ON o.rank = e.rank AND o.external_id = e.external_id AND e.class = 'cpu_op'
LEFT JOIN (SELECT l.rank, arg_max(event_id, start_ns) AS event_id, true AS kept
    FROM event l JOIN rank r ON r.run = l.run AND r.rank = l.rank
    WHERE l.run = $run AND r.timeline = 'host' AND l.class = 'cpu_op' GROUP BY l.rank, l.tid) t
  ON t.rank = e.rank AND t.event_id = e.event_id
WHERE e.run IS DISTINCT FROM $run OR e.device IS NOT NULL
  OR e.class NOT IN ('cpu_op', 'runtime', 'python')
  OR e.class = 'cpu_op' AND e.dur_ns >= {OWN_WORK_NS}
  OR coalesce(c.kept, d.kept, n.kept, w.kept, t.kept, o.kept, false)
"""


def make_lean(context: ReadContext) -> None:
    """Rewrite ``event`` with what the analysis needs of this run; other runs stay as they are."""
    con = context.con
    before = _counts(con, context.run)
    con.register("lean_work", _work_without_device(con, context.run))
    try:
        _replace_events(con, context.run)
    finally:
        con.unregister("lean_work")
    before.subtract(_counts(con, context.run))
    _count_kept(con, context.run, before)


def _counts(con: Any, run: str) -> Counter[tuple[int, int]]:
    """Events by rank and number of the trace's file."""
    rows = con.execute(
        "SELECT rank, event_id // ?, count(*) FROM event WHERE run = ? GROUP BY ALL",
        [IDS_PER_FILE, run],
    ).fetchall()
    return Counter({(rank, number): count for rank, number, count in rows})


def _count_kept(con: Any, run: str, gone: Counter[tuple[int, int]]) -> None:
    """Take what went off the counts of ranks and of files."""
    by_rank, by_number = Counter[int](), Counter[int]()
    for (rank, number), count in gone.items():
        by_rank[rank] += count
        by_number[number] += count
    for rank, count in by_rank.items():
        con.execute(
            "UPDATE rank SET events_read = events_read - ? WHERE run = ? AND rank = ?",
            [count, run, rank],
        )
    traces = con.execute(
        "SELECT source_id, format, rank FROM source WHERE run = ? AND format IN ('kineto', 'nsys') "
        "AND events_read > 0 ORDER BY source_id",
        [run],
    ).fetchall()
    files = con.execute(
        "SELECT source_id FROM source WHERE run = ? AND format = 'kineto' ORDER BY source_id", [run]
    ).fetchall()
    numbers = {source: number for number, (source,) in enumerate(files)}
    for source, kind, rank in traces:
        if len(traces) == 1:
            count = gone.total()
        elif kind == "kineto" and len(numbers) >= len(traces):
            count = by_number[numbers[source]]  # they number their files, in this order
        else:
            count = by_rank[rank]
        con.execute(
            "UPDATE source SET events_read = events_read - ? WHERE run = ? AND source_id = ?",
            [count, run, source],
        )


def _replace_events(con: Any, run: str) -> None:
    (definition,) = con.execute(
        "SELECT sql FROM duckdb_tables() WHERE table_name = 'event'"
    ).fetchone()
    con.execute("BEGIN")
    try:
        con.execute(f"CREATE TABLE {_KEPT} ({definition.partition('(')[2]}")
        con.execute(f"INSERT INTO {_KEPT} {_LEAN}", {"run": run})
        con.execute("DROP TABLE event")
        con.execute(f"ALTER TABLE {_KEPT} RENAME TO event")
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise


def _work_without_device(con: Any, run: str) -> pa.Table:
    """(rank, event_id) of what the timeline of each CPU-only rank is made of."""
    lines = [line for line in timelines(Events(con, run)) if not line.on_device]
    ranks = [np.full(len(line), line.rank, dtype=np.int32) for line in lines]
    events = [line.event_id for line in lines]
    return pa.table(
        {
            "rank": np.concatenate([np.empty(0, dtype=np.int32), *ranks]),
            "event_id": np.concatenate([np.empty(0, dtype=np.int64), *events]),
        }
    )
