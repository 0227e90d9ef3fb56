"""What hosts' clocks leave open: a slow link that an estimated offset may have taken away.

Hosts never read one clock exactly. Where the order in which ranks leave a ring is the evidence of a
slow link, an offset that was estimated from the same order may have hidden the link. So without a
finding what is exposed between hosts may be the link's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from advisor.engine.facts import Facts
from advisor.engine.sandbox import Sandbox
from advisor.findings import Finding, Severity
from advisor.vocabulary.operations import SYNCHRONISING

_LEAST_EXPOSED = 0.03  # of the step: less that is exposed between hosts is nobody's loss
# Offsets and ends that differ by less are within how ranks wake up, not clocks or links.
_LEAST_NS = 200_000
# Ends that differ by less of a call's time are within what rings of healthy links show.
_LEAST_SHARE = 0.1
# Calls of this share of others' length show what a link adds to those.
_LIKE = 0.5
# An offset is clear from so many times on what its fit leaves open; below it may be none at all.
_CLEAR = 10
# A slow link of a ring adds at most so many times as much to a call as it sets the ends apart:
# 2(n-1)/(n-2) hops of n >= 3 ranks. Two ranks leave together however slow their link is.
_PER_STAGGER = 4
# Backends whose links are judged by the order of ends; others' by groups and probes.
_BACKEND = "gloo"
_LINK_RULE = "slow-ring-link"

_OFFSETS = (
    "SELECT host, quantile_disc(clock_offset_ns, 0.5) AS offset_ns, "
    "max(coalesce(clock_residual_ns, 0)) AS residual_ns FROM rank "
    "WHERE host IS NOT NULL AND clock_offset_ns IS NOT NULL GROUP BY host ORDER BY min(rank)"
)
# Calls of at least two hosts that all wait for each other, by group and operation.
_ENDS = (
    "WITH told AS (SELECT c.call_id, c.process_group, c.op, c.rank, r.host, c.transfer_ns, "
    "c.end_ns + coalesce(r.clock_offset_ns, 0) AS end_ns, c.exposed_transfer_ns "
    "FROM call c JOIN rank r USING (rank) "
    "WHERE c.op NOT IN ('send', 'recv') AND c.matched_ranks > 1), "
    "late AS (SELECT *, end_ns - min(end_ns) OVER (PARTITION BY call_id) AS late_ns FROM told), "
    "typical AS (SELECT process_group, op, rank, host, median(late_ns) AS late_ns, "
    "median(transfer_ns) AS transfer_ns, sum(exposed_transfer_ns) AS exposed_ns "
    "FROM late GROUP BY ALL) "
    "SELECT process_group, op, list(DISTINCT host ORDER BY host) AS hosts, "
    "max(late_ns) - min(late_ns) AS apart_ns, max(transfer_ns) AS transfer_ns, "
    "sum(exposed_ns) AS exposed_ns FROM typical GROUP BY process_group, op "
    "HAVING count(DISTINCT host) > 1 ORDER BY exposed_ns DESC"
)
# The same calls' exposed transfer, of each call as much as a link may have added to it that set
# its ends apart by $apart_ns.
_HIDDEN = (
    "WITH told AS (SELECT c.call_id, c.exposed_transfer_ns, c.matched_ranks, r.host "
    "FROM call c JOIN rank r USING (rank) "
    "WHERE c.op NOT IN ('send', 'recv') AND c.matched_ranks > 1), "
    "across AS (SELECT call_id FROM told GROUP BY call_id HAVING count(DISTINCT host) > 1) "
    "SELECT coalesce(sum(CASE WHEN matched_ranks > 2 THEN least(exposed_transfer_ns, "
    "$times::BIGINT * $apart_ns) ELSE exposed_transfer_ns END), 0)::DOUBLE AS ns "
    "FROM told JOIN across USING (call_id)"
)


class Clocks(NamedTuple):
    """Transfer between hosts that may be a slow link's; ns are per step.

    ``differ_ns``: by how much the hosts' offsets differ; 0 where clocks were taken as recorded.
    ``apart_ns``: how far apart ranks leave the same calls all the same. ``hidden_ns``: what a link
    can have added whose sign the clocks took away; 0 where the offsets are no clearer than what
    their fit leaves open.
    """

    exposed_ns: float
    share: float
    differ_ns: int
    apart_ns: int
    hidden_ns: float
    hosts: Sequence[str]


def read_clocks(findings: Sequence[Finding], sandbox: Sandbox, facts: Facts) -> Clocks | None:
    """What a slow link and clocks that differ leave open; None where they leave nothing.

    That is where little transfer between hosts is exposed, where a probe measured the links, and
    where all hosts' clocks were taken as they are and the ranks leave their calls together, or
    something else is found that sets them apart.
    """
    if facts.backend != _BACKEND or not facts.steps or not facts.step_ns or _probed(sandbox):
        return None
    rings = sandbox.records(_ENDS)
    per_rank_step = facts.ranks_read * facts.steps
    exposed_ns = sum(int(row["exposed_ns"] or 0) for row in rings) / per_rank_step
    if exposed_ns < _LEAST_EXPOSED * facts.step_ns:
        return None
    clocks = sandbox.records(_OFFSETS)
    offsets = [int(row["offset_ns"]) for row in clocks]
    differ = max(offsets) - min(offsets) if offsets else 0
    apart = 0
    explained = any(item.rule == _LINK_RULE or item.severity != Severity.INFO for item in findings)
    if not explained:
        signs = [row for row in rings if _staggered(row) and not _by_nature(row, rings)]
        apart = max((int(row["apart_ns"]) for row in signs), default=0)
    if differ < _LEAST_NS and not apart:
        return None
    hidden_ns = 0.0
    residual = max((int(row["residual_ns"]) for row in clocks), default=0)
    if differ >= max(_LEAST_NS, _CLEAR * residual):
        (hidden,) = sandbox.records(_HIDDEN, {"apart_ns": differ, "times": _PER_STAGGER})
        hidden_ns = hidden["ns"] / per_rank_step
    return Clocks(
        exposed_ns=exposed_ns,
        share=exposed_ns / facts.step_ns,
        differ_ns=differ,
        apart_ns=apart,
        hidden_ns=hidden_ns,
        hosts=sorted({host for row in rings for host in row["hosts"]}),
    )


def _staggered(row: dict[str, Any]) -> bool:
    """Whether ranks leave the calls further apart than those of healthy rings do."""
    least = max(_LEAST_NS, _LEAST_SHARE * (row["transfer_ns"] or 0))
    return int(row["apart_ns"]) >= least


def _by_nature(row: dict[str, Any], rings: Sequence[dict[str, Any]]) -> bool:
    """Whether ranks leave these calls apart because of what the operation is.

    A broadcast's root is done before those that its tree reaches last. A slow link between the
    same hosts would set calls that end together apart as well, if they are not much shorter.
    """
    if row["op"] in SYNCHRONISING:
        return False
    least = _LIKE * (row["transfer_ns"] or 0)
    return any(
        other["op"] in SYNCHRONISING
        and set(row["hosts"]) <= set(other["hosts"])
        and (other["transfer_ns"] or 0) >= least
        and not _staggered(other)
        for other in rings
    )


def _probed(sandbox: Sandbox) -> bool:
    """Whether the links of all these hosts were measured, enough of them to compare."""
    return bool(
        sandbox.records(
            "SELECT 1 AS one FROM topology WHERE kind = 'probe-use' AND name = 'all' LIMIT 1"
        )
    )
