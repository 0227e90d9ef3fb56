"""Copies by which a collective moves its data: NCCL's copy-engine collectives run no kernel.

Since 2.28 all-gathers, all-to-alls, scatters and gathers of registered buffers go over the copy
engines where ``NCCL_CTA_POLICY=2`` asks for it (NVIDIA/nccl src/ce_coll.cc). Kineto records copies
between devices; c10d's annotation, in which they are launched, says what they are.
"""

from __future__ import annotations

from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.source import ReadContext

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


def mark_collective_copies(context: ReadContext) -> None:
    """Make copies between devices that c10d launched in a collective communication."""
    found = context.con.execute(
        f"SELECT 1 FROM event WHERE run = ? AND {_PEER_COPY} LIMIT 1", [context.run]
    ).fetchone()
    if found is not None:
        context.con.execute(
            _OF_COLLECTIVES, {"run": context.run, "file": event_fields.IDS_PER_FILE}
        )
