"""What slow places cost per step, as the findings count it: one number in every view."""

from __future__ import annotations

from advisor.report.tables import Row, rows
from advisor.store.store import Store

# As the rules' view slow_place: the replayed step where one was made, else what the calls alone
# give; its low end no lower than half of theirs, its high end no lower than theirs.
_COSTS = (
    "WITH gain AS (SELECT run, value, measured_step_ns - step_ns AS ns,"
    " coalesce(gain_low_ns, measured_step_ns - step_high_ns) AS low_ns,"
    " coalesce(gain_high_ns, measured_step_ns - step_low_ns) AS high_ns"
    " FROM whatif WHERE setting = 'restore-link' AND measured_step_ns IS NOT NULL),"
    " own AS (SELECT *, coalesce(excess_low_ns, excess_ns_per_step / 2)::BIGINT AS own_low_ns"
    " FROM link_excess WHERE run = ?)"
    " SELECT o.* EXCLUDE (own_low_ns, excess_ns_per_step, excess_low_ns, excess_high_ns),"
    " CASE WHEN w.ns IS NULL THEN excess_ns_per_step ELSE greatest(w.ns, 0) END"
    " AS excess_ns_per_step,"
    " CASE WHEN w.ns IS NULL THEN excess_low_ns ELSE"
    " greatest(w.low_ns, least(own_low_ns, excess_ns_per_step) // 2) END AS excess_low_ns,"
    " CASE WHEN w.ns IS NULL THEN excess_high_ns ELSE"
    " greatest(w.high_ns, excess_high_ns, excess_ns_per_step) END AS excess_high_ns"
    " FROM own o LEFT JOIN gain w ON w.run = o.run AND w.value = o.src::VARCHAR"
    " AND o.excess_ns_per_step IS NOT NULL AND o.expected_from IS DISTINCT FROM 'stalls'"
    " ORDER BY excess_ns_per_step DESC NULLS LAST, src, dst"
)


def link_costs(store: Store, run: str) -> list[Row]:
    """The rows of ``link_excess`` with a step's excess, ns, as a finding has it, the most first."""
    return rows(store, _COSTS, [run])
