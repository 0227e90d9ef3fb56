"""Whether it is a device's memory that makes a rank compute longer, rather than its work.

More tokens, lower clocks or another process lengthen matrix products as they lengthen all else;
a slow memory lengthens what it bounds (elementwise kernels, norms, the optimizer) alone. Names of
kernels tell that, without recorded shapes.
"""

from collections.abc import Sequence
from typing import Any

from advisor.metrics.lateness.per_step import MORE_OPERATORS
from advisor.metrics.timeline.content import MATRIX
from advisor.statistics import binomial_tail
from advisor.store.columns import rows

# The quickest quarter of a kernel's calls ran beside no transfer, which slows ranks that wait more.
_KERNELS = """
    WITH kernel AS (
      SELECT rank, name, regexp_matches(name, $3) AS matrix, count(*) AS calls,
        quantile_cont(dur_ns, 0.25) AS ns FROM event
      WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND class = 'compute'
        AND device IS NOT NULL GROUP BY ALL)
    SELECT own.matrix, own.calls * own.ns, own.calls * median(other.ns)
    FROM kernel own JOIN kernel other USING (name, calls)
    WHERE own.rank = $4 AND other.rank <> $4 GROUP BY own.matrix, name, own.calls, own.ns
"""
_CHANCE = 0.01


def memory_pace(con: Any, run: str, rank: int, peers: Sequence[int], needed: float) -> float | None:
    """How many times as long as on its peers a rank's kernels bound by memory take, in all.

    None unless its matrix products take as long as theirs, the others longer than those, and so
    many of the others by the share ``needed`` that chance does not do it. Kernels of one name and
    as many calls count.
    """
    found = rows(con, _KERNELS, [run, [rank, *peers], MATRIX, rank])
    products = [(own, usual) for matrix, own, usual in found if matrix]
    others = [(own, usual) for matrix, own, usual in found if not matrix]
    if not products or _ratio(products) > MORE_OPERATORS:
        return None
    if _ratio(others) <= MORE_OPERATORS * max(_ratio(products), 1.0):
        return None
    slower = sum(own >= (1 + needed) * usual for own, usual in others)
    by_chance = (len(peers) + 1) * binomial_tail(slower, len(others), 0.5)
    return round(_ratio(others), 2) if by_chance <= _CHANCE else None


def _ratio(kinds: Sequence[tuple[float, float]]) -> float:
    usual = sum(usual for _, usual in kinds)
    return sum(own for own, _ in kinds) / usual if usual else 1.0
