"""How bad a verdict is: no milder than what it rests on, the loss or the findings beside it."""

from __future__ import annotations

from advisor.engine.verdict.choice import Decision
from advisor.engine.verdict.facts import LOST, Situation
from advisor.findings import SEVERITY_ORDER, Severity, VerdictKind

ABOUT_FINDINGS = {VerdictKind.SURE, VerdictKind.PROBABLE, VerdictKind.UNKNOWN_COST}


def severity_of(decision: Decision, it: Situation) -> Severity:
    """That of the finding it is about; else of the worst one, and much that is lost without a
    known cause is never ``info``, whether the recording lets the cause be told or not."""
    if decision.finding is not None and decision.kind in ABOUT_FINDINGS:
        return decision.finding.severity
    if decision.kind is VerdictKind.HEALTHY:
        return Severity.INFO
    # What devices that were not recorded seem to idle is no loss.
    lost = it.shares.lost if it.shares is not None and not it.instead else 0.0
    much = lost >= LOST or decision.kind is VerdictKind.LOSSY
    grades = [Severity.WARNING if much else Severity.INFO, *(item.severity for item in it.findings)]
    return min(grades, key=lambda grade: SEVERITY_ORDER[grade])
