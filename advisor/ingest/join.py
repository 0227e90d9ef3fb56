"""Joins what different files of one run say of the same rank.

Traces give events, logs and dumps give hosts, devices and NCCL's version. Facts of logs only fill
what a trace left open, and only where both are of a job of the same size: a log of another job must
not name hosts here. A run without traces gets its ranks from the log or the dumps.
"""

import json
from typing import Any

from advisor.ingest.source import ReadContext

_NO_RANKS = "SELECT count(*) = 0 FROM rank WHERE run = $run"

_RANKS_FROM_LOGS = """
INSERT INTO rank (run, rank, backend, timeline, events_read, events_dropped, complete)
SELECT $run, rank, 'nccl', 'device', 0, 0, true
FROM (
  SELECT rank FROM topology WHERE run = $run AND kind = 'rank' AND rank IS NOT NULL
  UNION SELECT rank FROM flight WHERE run = $run AND rank IS NOT NULL
)
ORDER BY rank
"""

_WORLD = """
SELECT max(CASE WHEN kind = 'communicator'
    THEN try_cast(json_extract_string(value, '$.ranks') AS INTEGER) END),
  count(*) FILTER (kind = 'version') > 0
FROM topology WHERE run = $run
"""

_FILL_HOSTS = """
UPDATE rank SET
  host = coalesce(rank.host, told.host),
  device = coalesce(rank.device, told.device),
  world_size = coalesce(rank.world_size, $world)
FROM (
  SELECT rank, min(host) AS host,
    min(try_cast(json_extract_string(value, '$.cuda_device') AS INTEGER)) AS device
  FROM topology WHERE run = $run AND kind = 'rank' AND rank IS NOT NULL
  GROUP BY rank HAVING count(DISTINCT host) <= 1
) told
WHERE rank.run = $run AND rank.rank = told.rank AND coalesce(rank.world_size, $world) = $world
"""

_FILL_VERSIONS = """
UPDATE rank SET nccl_version = coalesce(
  (SELECT min(value) FROM topology t WHERE t.run = $run AND t.kind = 'version' AND t.name = 'nccl'
    AND t.rank = rank.rank HAVING count(DISTINCT value) = 1),
  (SELECT min(value) FROM topology t WHERE t.run = $run AND t.kind = 'version' AND t.name = 'nccl'
    AND t.host = rank.host HAVING count(DISTINCT value) = 1),
  (SELECT min(value) FROM topology t WHERE t.run = $run AND t.kind = 'version' AND t.name = 'nccl'
    HAVING count(DISTINCT value) = 1)
)
WHERE rank.run = $run AND rank.nccl_version IS NULL AND coalesce(rank.backend, 'nccl') LIKE '%nccl%'
"""

_WRITE_RANKS = ("kineto", "nsys", "op-table", "nccl-inspector")
"""Readers that count what a rank lost in its row themselves."""

_LOSSES = f"""
SELECT s.rank, s.format, s.drop_reasons, r.drop_reasons
FROM source s JOIN rank r ON r.run = s.run AND r.rank = s.rank
WHERE s.run = $run AND s.events_dropped > 0 AND s.format NOT IN {_WRITE_RANKS}
ORDER BY s.source_id
"""


def join_sources(context: ReadContext) -> None:
    """Fill ``rank`` from ``topology``, ``flight`` and ``source``, after all readers."""
    con, run = context.con, context.run
    (empty,) = con.execute(_NO_RANKS, {"run": run}).fetchone()
    if empty:
        con.execute(_RANKS_FROM_LOGS, {"run": run})
    world, tells_versions = con.execute(_WORLD, {"run": run}).fetchone()
    if world is not None:
        con.execute(_FILL_HOSTS, {"run": run, "world": world})
    if tells_versions:
        con.execute(_FILL_VERSIONS, {"run": run})
    _fill_losses(con, run)


def _fill_losses(con: Any, run: str) -> None:
    """What other files of a rank lost, by reason, each with its format before it.

    A count replaces the one under the same name: rows that were joined before stay as they are.
    """
    lost: dict[int, dict[str, int]] = {}
    for rank, format_name, of_source, of_rank in con.execute(_LOSSES, {"run": run}).fetchall():
        reasons = lost.setdefault(rank, json.loads(of_rank or "{}"))
        for reason, count in json.loads(of_source).items():
            reasons[f"{format_name}: {reason}"] = count
    for rank, reasons in lost.items():
        con.execute(
            "UPDATE rank SET events_dropped = ?, drop_reasons = ? WHERE run = ? AND rank = ?",
            [sum(reasons.values()), json.dumps(reasons, sort_keys=True), run, rank],
        )
