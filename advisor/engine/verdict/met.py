"""Whether ranks met: recordings of two runs are no ranks of one.

No call of a collective ends on one rank before it began on another. Each call so bounds by how much
two clocks differ, from below and from above; where no difference satisfies the calls, the ranks did
not make them together. Nor did ranks of one host that share no moment.
"""

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

# One host has one clock: what has ended there before a rank began cannot have met it, though two
# runs of one script have calls of the same numbers.
_NEVER_BESIDE = """
WITH own AS (
  SELECT rank, process_group, any_value(host) AS host, min(start_ns) AS begin_ns,
    max(end_ns) AS end_ns
  FROM call JOIN rank USING (rank) WHERE process_group IS NOT NULL
  GROUP BY rank, process_group
  HAVING max(coalesce(matched_ranks, 1)) <= 1 OR bool_and(coalesce(has_base_time, false)))
SELECT DISTINCT b.rank FROM own a JOIN own b ON a.host = b.host AND a.rank < b.rank
  AND a.process_group = b.process_group AND (a.end_ns < b.begin_ns OR b.end_ns < a.begin_ns)
"""


def strangers(sandbox: Sandbox) -> list[int]:
    """Ranks that cannot have been in calls with the lowest rank of their groups."""
    apart = {int(row["rank"]) for row in sandbox.records(_NEVER_BESIDE, of=["call"])}
    rows = sandbox.records(_APART, {"fewest": _FEWEST_CALLS}, of=["call"])
    return sorted(
        apart
        | {
            int(row["rank"])
            for row in rows
            if row["least_ns"] - row["most_ns"] > max(_LEAST_NS, _DRIFT * row["span_ns"])
        }
    )
