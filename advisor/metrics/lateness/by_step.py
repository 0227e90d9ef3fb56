"""For whom the others wait, step by step: the rank that came last in a call has its waiting."""

from __future__ import annotations

from typing import Any

# A rank's exposed waiting of a step goes to those it waited for, in proportion to how long: calls
# of one rank may run at once, so that their waits do not add up.
_SQL = """
WITH waited AS (
  SELECT rank, step, last_rank, sum(wait_ns) AS ns FROM collective
  WHERE run = $run AND step IS NOT NULL AND wait_ns > 0 AND rank <> last_rank
  GROUP BY rank, step, last_rank),
shared AS (
  SELECT last_rank AS rank, step,
    sum(b.exposed_wait_ns * w.ns / total) / greatest(any_value(ranks) - 1, 1) AS ns
  FROM (SELECT *, sum(ns) OVER (PARTITION BY rank, step) AS total FROM waited) w
  JOIN (SELECT *, count(DISTINCT rank) OVER () AS ranks FROM step_breakdown
    WHERE run = $run AND used) b USING (rank, step)
  GROUP BY last_rank, step)
SELECT b.rank, b.step, coalesce(s.ns, 0) FROM step_breakdown b LEFT JOIN shared s USING (rank, step)
WHERE b.run = $run AND b.used ORDER BY b.rank, b.step
"""


def waited_for(con: Any, run: str) -> dict[int, dict[int, float]]:
    """By rank and used step, what each other rank waited for it on average, exposed, ns."""
    found: dict[int, dict[int, float]] = {}
    for rank, step, ns in con.execute(_SQL, {"run": run}).fetchall():
        found.setdefault(rank, {})[step] = float(ns)
    return found
