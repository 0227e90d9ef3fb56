"""Whether a heavy stage of a pipeline has more to do, or takes longer for the same (METRICS 7)."""

import statistics
from collections.abc import Sequence
from typing import Any

from advisor.metrics.timeline.shapes import LAUNCHED_SHAPES
from advisor.store.columns import rows

# A kernel's quartiles say something from so many calls on.
_FEWEST = 3
# Ranks that are compared, of the stage and of the others: their median does not hang on one.
_MOST_RANKS = 8
# So much over the mean stage (of its compute) nobody asks for the reason.
_EVEN = 1.03
# Of the stage's compute, in kernels that the other stages run as well.
_LEAST_SHARE = 0.5

_SAME_KERNELS = f"""
WITH {LAUNCHED_SHAPES},
kernel AS (
  SELECT a.rank, name, coalesce(dims, input_dims) AS dims, median(a.end_ns - a.start_ns) AS ns,
    quantile_cont(a.end_ns - a.start_ns, 0.25) AS low_ns,
    quantile_cont(a.end_ns - a.start_ns, 0.75) AS high_ns, sum(a.end_ns - a.start_ns) AS total_ns
  FROM activity a JOIN event e USING (run, rank, event_id)
    LEFT JOIN comm_event USING (run, rank, event_id) LEFT JOIN shape USING (rank, external_id)
  WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND kind = 'compute' AND a.step IS NOT NULL
  GROUP BY ALL HAVING count(*) >= $4),
whole AS (
  SELECT rank, sum(end_ns - start_ns) AS ns FROM activity
  WHERE run = $1 AND list_contains($3::INTEGER[], rank) AND kind = 'compute' AND step IS NOT NULL
  GROUP BY rank),
beside AS (
  SELECT own.rank, own.total_ns, own.dims IS NOT NULL AS has_shapes,
    own.ns / median(other.ns) AS pace,
    own.low_ns / median(other.low_ns) AS low, own.high_ns / median(other.high_ns) AS high
  FROM kernel own JOIN kernel other
    ON own.name = other.name AND own.dims IS NOT DISTINCT FROM other.dims
  WHERE list_contains($3::INTEGER[], own.rank) AND NOT list_contains($3::INTEGER[], other.rank)
  GROUP BY own.rank, own.name, own.dims, own.total_ns, own.ns, own.low_ns, own.high_ns)
SELECT rank, sum(total_ns) / sum(total_ns / pace),
  sum(total_ns * has_shapes::INTEGER) > 0.5 * sum(total_ns)
FROM beside JOIN whole USING (rank)
-- One name may stand for several shapes: another mix of them moves the quartiles apart.
WHERE greatest(pace, low, high) <= $5 * least(pace, low, high) AND pace > 0
GROUP BY rank HAVING sum(total_ns) >= $6 * any_value(whole.ns)
"""
_ONE_FACTOR = 1.3


def add_stage_pace(con: Any, run: str, records: Sequence[dict[str, Any]]) -> None:
    """Set ``pace`` and ``same_shapes`` of rows of ``pipeline_stage``; None for other stages.

    That is of stages that compute longer than the mean. All stages compute the same micro-batches,
    so that a kernel of one name (and of equal shapes, where they were recorded: ``same_shapes``)
    does the same on each. ``pace`` is what these take on a rank over what they take on ranks of the
    other stages, weighted by time; None where less than half of its compute can be compared.
    """
    stages: dict[int, list[int]] = {}
    took: dict[int, list[float]] = {}
    for record in records:
        record |= {"pace": None, "same_shapes": None}
        stages.setdefault(record["stage"], []).append(record["rank"])
        took.setdefault(record["stage"], []).append(record["compute_ns"])
    median = {stage: statistics.median(own) for stage, own in took.items()}
    if len(median) < 2:
        return
    mean = statistics.fmean(median.values())
    for stage, own in stages.items():
        if max(took[stage]) <= _EVEN * mean:
            continue
        others = [rank for other, ranks in stages.items() if other != stage for rank in ranks]
        chosen = own[:_MOST_RANKS]
        ranks, bounds = [*chosen, *others[:_MOST_RANKS]], [_FEWEST, _ONE_FACTOR, _LEAST_SHARE]
        found = rows(con, _SAME_KERNELS, [run, ranks, chosen, *bounds])
        paces = {rank: {"pace": pace, "same_shapes": same} for rank, pace, same in found}
        for record in records:
            record.update(paces.get(record["rank"], {}))
