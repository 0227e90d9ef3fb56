"""How bad a verdict is: no milder than what it rests on, the loss or the findings beside it."""

from advisor.engine.verdict.choice import NOBODYS, Decision, idles_for
from advisor.engine.verdict.facts import LOST, Situation
from advisor.engine.verdict.next_steps import waits_in_turn
from advisor.findings import SEVERITY_ORDER, Finding, Severity, VerdictKind

ABOUT_FINDINGS = {VerdictKind.SURE, VerdictKind.PROBABLE, VerdictKind.UNKNOWN_COST}


def severity_of(decision: Decision, it: Situation) -> Severity:
    """That of the finding it is about; else of the worst one, and much that is lost without a
    known cause is never ``info``, whether the recording lets the cause be told or not. What ranks
    wait in turn is graded by its finding: it may be that of a few steps only."""
    if decision.finding is not None and decision.kind in ABOUT_FINDINGS:
        return decision.finding.severity
    if decision.kind is VerdictKind.HEALTHY:
        return Severity.INFO
    much = _loses_much(it, decision.finding) and not is_explained(decision, it)
    grades = [Severity.WARNING if much else Severity.INFO, *(item.severity for item in it.findings)]
    return min(grades, key=lambda grade: SEVERITY_ORDER[grade])


def _loses_much(it: Situation, found: Finding | None) -> bool:
    """What devices that were not recorded seem to idle is no loss, nor is what happens once."""
    if it.shares is None or it.instead:
        return False
    graded = (found.savings_ns or 0) / it.step_ns if found is not None and it.step_ns else 0.0
    rest = it.shares._replace(exposed=max(it.shares.exposed - graded, 0.0))
    return rest.lost >= LOST and not idles_for(it, it.shares, "loading", "start")


def is_explained(decision: Decision, it: Situation) -> bool:
    """Whether the work itself explains what is exposed: ranks that wait in turn, activations, a
    schedule, or transfers that are longer than, or followed by no, compute to hide them."""
    if decision.reason != "exposed" or (shares := it.shares) is None:
        return False
    return (
        waits_in_turn(it) is not None
        or has_no_room(it)
        or 2 * max(shares.activations, shares.schedule) >= shares.exposed > 0
        or (shares.wait_known and shares.moving > shares.beside(it.most_exposed))
    )


def has_no_room(it: Situation) -> bool:
    """Whether no compute is left that what is exposed could run under."""
    exposed = [item.evidence.facts for item in it.findings if item.rule in NOBODYS]
    most = max(exposed, key=lambda facts: facts.get("exposed_ns") or 0, default={})
    return most.get("room_ns") is not None and most.get("found_ns") is None
