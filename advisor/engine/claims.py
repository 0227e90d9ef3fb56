"""The ledger of claims: which nanoseconds of which calls or idling a finding says it saves.

Findings whose claims lie on the same time are about the same loss, so that what one of them covers
of another says which is merged into which, with no rule naming another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from advisor.findings import Finding

# A finding is an effect of another that takes away this part of the time it claims.
COVERED = 0.5
# What a rule says of the time it claims: where it goes, who holds it up, or why.
_DEPTH = {"where": 0, "who": 1, "why": 2}


@dataclass(frozen=True)
class Share:
    """A finding claims ``part`` (0 to 1) of ``ns``, over all used steps."""

    ns: float
    part: float


# By rank, what of its time, and which call, gap or step.
Ledger = Mapping[tuple[int, str, int], Share]

_SELECT = {
    "transfer": "SELECT rank, 'transfer' AS part, call_id AS span, exposed_transfer_ns AS ns "
    "FROM call",
    "wait": "SELECT rank, 'wait' AS part, call_id AS span, "
    "exposed_all_ns - exposed_transfer_ns AS ns FROM call",
    "idle": "SELECT rank, 'idle' AS part, start_ns AS span, idle_ns AS ns "
    "FROM (FROM host_gap SEMI JOIN used_step USING (step))",
    "compute": "SELECT rank, 'compute' AS part, step AS span, compute_ns AS ns FROM rank_step",
}
_PARTS = {"exposed": ("transfer", "wait")}


def claims_of(rule: Rule, sandbox: Sandbox, known: Mapping[str, Any]) -> Ledger:
    """What one row of a rule (``known``, with the rule's parameters) claims.

    A rule that says why or who claims as much of all it selects as it would save: a setting that
    saves a tenth of some calls claims a tenth of each. One that says where time goes claims all.
    Raises RuleSqlError for conditions that do not run.
    """
    found: dict[tuple[int, str, int], Share] = {}
    for claim in rule.claims:
        rows = [
            row
            for part in _PARTS.get(claim.part, (claim.part,))
            for row in sandbox.select(f"{_SELECT[part]} WHERE {claim.of}", known)[1]
            if row[3] and row[3] > 0
        ]
        total = sum(float(row[3]) for row in rows)
        gain = known.get("savings_ns")
        share = 1.0
        if gain is not None and rule.says != "where" and total:
            ranks = len({row[0] for row in rows})
            share = min(1.0, float(gain) * ranks * (known.get("used_steps") or 1) / total)
        found |= {(int(row[0]), row[1], int(row[2])): Share(float(row[3]), share) for row in rows}
    return found


def covered(effect: Ledger, cause: Ledger) -> float:
    """The part of what ``effect`` claims that goes when what ``cause`` claims is gone.

    Of one call both claim shares, and nothing says that these are the same nanoseconds: a cause
    that takes away a third of the call takes away a third of whatever else is claimed of it.
    0 where the effect claims nothing.
    """
    total = sum(share.ns * share.part for share in effect.values())
    both = sum(
        share.ns * share.part * cause[key].part for key, share in effect.items() if key in cause
    )
    return both / total if total else 0.0


def effects(ordered: Sequence[tuple[Finding, Ledger]], rules: Mapping[str, Rule]) -> dict[int, int]:
    """Which of the findings, worst first, is an effect of which: index to index.

    What says why comes before who, and who before where time goes. Among rules of a kind the worse
    finding is the cause; one that covers nothing of another never takes it.
    """
    depth = [_DEPTH[rules[item.rule].says] if item.rule in rules else 2 for item, _ in ordered]
    parent: dict[int, int] = {}
    for index, (item, ledger) in enumerate(ordered):
        best, most = None, COVERED
        for other, (cause, theirs) in enumerate(ordered):
            if other == index or other in parent or cause.run != item.run or not depth[other]:
                continue
            before = (-depth[other], other) < (-depth[index], index)
            if (share := covered(ledger, theirs)) < most:
                continue
            # A worse finding takes also what lies deeper, unless that explains it in turn.
            if before or (other < index and covered(theirs, ledger) < COVERED):
                best, most = other, share
        if best is not None:
            parent[index] = best
    return parent
