"""Whether ranks met: recordings of two runs are no ranks of one.

No call of a collective ends on one rank before it began on another. Each call so bounds by how much
two clocks differ, from below and from above; where no difference satisfies the calls, the ranks did
not make them together.
"""

from __future__ import annotations

from advisor.engine.sandbox import Sandbox

# Beyond what clocks drift (parts per million) and calls that were paired wrongly add.
_LEAST_NS, _DRIFT = 1_000_000, 1e-3
_FEWEST_CALLS = 5

_APART = """
WITH first AS (
  SELECT call_id, arg_min(rank, rank) AS rank, arg_min(start_ns, rank) AS start_ns,
    arg_min(end_ns, rank) AS end_ns
  FROM call WHERE op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'barrier')
    AND matched_ranks > 1 GROUP BY call_id)
SELECT c.rank, quantile_disc(c.start_ns - f.end_ns, 0.95) AS least_ns,
  quantile_disc(c.end_ns - f.start_ns, 0.05) AS most_ns, max(c.end_ns) - min(c.start_ns) AS span_ns
FROM first f JOIN call c ON c.call_id = f.call_id AND c.rank <> f.rank
GROUP BY f.rank, c.rank HAVING count(*) >= $fewest ORDER BY c.rank
"""


def strangers(sandbox: Sandbox) -> list[int]:
    """Ranks that cannot have been in calls with the lowest rank of their groups."""
    rows = sandbox.records(_APART, {"fewest": _FEWEST_CALLS})
    return sorted(
        {
            int(row["rank"])
            for row in rows
            if row["least_ns"] - row["most_ns"] > max(_LEAST_NS, _DRIFT * row["span_ns"])
        }
    )
