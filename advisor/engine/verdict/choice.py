"""What a verdict may be about: the shape that a finding gives, and the finding that gives most."""

from typing import NamedTuple

from advisor.engine.causes import MACHINES, as_listed, expected_ns
from advisor.engine.claims import COVERED
from advisor.engine.verdict.facts import LOST, Shares, Situation
from advisor.findings import WARNING_SHARE, Finding, Severity, VerdictKind

LARGE = WARNING_SHARE  # expected
SMALL = 0.01  # below, nobody's afternoon
LEAST_KNOWN = 0.8  # of the device's busy time: below, no cause is sure
# Without a gain that is sure: what compute buys memory with, and what comes once in a recording.
UNCOUNTED = frozenset({"activation-recompute", "all-ranks-pause", "one-rank-pauses"})
# Waiting or exposed time itself, with nobody behind it: a loss, not a cause.
NOBODYS = frozenset({"jitter", "exposed-communication"})


class Decision(NamedTuple):
    """The shape, why it was chosen, and the finding it is about if any."""

    kind: VerdictKind
    reason: str
    finding: Finding | None = None


def inconclusive(reason: str) -> Decision:
    return Decision(VerdictKind.INCONCLUSIVE, reason)


def best(it: Situation, least: float) -> Decision | None:
    """About what is expected to give most, and at least the share ``least`` of the step."""
    worth = [
        item
        for item in it.findings
        if not item.is_option()
        and expected_ns(item) >= least * it.step_ns
        # Some waiting is normal anywhere, unless a recording tells what or whom ranks wait for.
        and (
            item.rule not in NOBODYS
            or (item.savings_ns or 0) >= LOST * it.step_ns
            or (item.evidence.facts.get("is_told") and _surely(item, LARGE * it.step_ns))
        )
    ]
    # While others take no more of a machine than is usual, nothing is to change.
    usual = [item for item in worth if item.rule in MACHINES and item.severity is Severity.INFO]
    likely = [item for item in worth if item not in usual]
    if not likely:
        return _shared(it, usual[0]) if usual else None
    # A cause comes before the bare loss that it is a part of, unless it is a small one.
    losses = [item for item in likely if item.rule in NOBODYS]
    least_ns = COVERED * max(map(expected_ns, losses), default=0.0)
    causes = [item for item in likely if item not in losses and expected_ns(item) >= least_ns]
    # What a probe finds sound by now leads only where nothing else is likely.
    led = [item for item in causes or losses if not _is_denied(item)] or causes or losses
    found = about(next(item for item in as_listed(it.findings) if item in led))
    unknown = it.coverage is not None and it.coverage.share < LEAST_KNOWN
    if unknown and found.kind is VerdictKind.SURE:
        return found._replace(kind=VerdictKind.PROBABLE)
    return found


def _surely(finding: Finding, least_ns: float) -> bool:
    """Whether the low end of its gain is as large."""
    return (finding.savings_low_ns or 0) >= least_ns


def _shared(it: Situation, finding: Finding) -> Decision:
    """What a shared machine usually takes: nothing to change, where it is most of what is lost."""
    lost = it.shares.lost if it.shares is not None else 0.0
    if lost * it.step_ns - (finding.savings_ns or 0) >= LOST * it.step_ns:
        return about(finding)
    return Decision(VerdictKind.HEALTHY, "shared", finding)


def about(finding: Finding) -> Decision:
    """The shape of a verdict on this finding."""
    if finding.rule in NOBODYS:
        return Decision(VerdictKind.LOSSY, finding.rule, finding)
    if _is_denied(finding):
        return Decision(VerdictKind.INCONCLUSIVE, "probe-denies", finding)
    if not finding.is_sure():
        return Decision(VerdictKind.PROBABLE, "finding", finding)
    if finding.is_of_unknown_cost():
        return Decision(VerdictKind.UNKNOWN_COST, "finding", finding)
    return Decision(VerdictKind.SURE, "finding", finding)


def _is_denied(finding: Finding) -> bool:
    """Whether a probe found sound what a recording shows as slow."""
    return finding.evidence.facts.get("probe") == "denies"


def mostly(finding: Finding, *kinds: str) -> bool:
    """Whether most of the time that a finding is about is of these kinds."""
    claimed = sum(finding.claims.get(kind, 0) for kind in kinds)
    return 2 * claimed > sum(finding.claims.values())


def unsized_ns(it: Situation) -> int:
    """Exposed transfers of collectives without a recorded size, per step: no rule tells whether a
    link, a network or too many bytes take that long."""
    return sum(
        item.claims.get("transfer", 0)
        for item in it.findings
        if item.rule == "exposed-communication"
        and item.evidence.facts.get("wait_known")
        and not item.evidence.facts.get("is_message")
        and item.evidence.facts.get("median_bytes") is None
    )


def hides_more(it: Situation, finding: Finding) -> bool:
    """Whether such transfers, a loss by themselves, take longer than a small finding of something
    else gives at most."""
    most_ns, lost_ns = finding.most_ns(), LOST * it.step_ns
    of_ranks = mostly(finding, "transfer", "wait", "exposed")
    return not of_ranks and max(most_ns, lost_ns) < unsized_ns(it) and most_ns < lost_ns


def idles_for(it: Situation, shares: Shares, *kinds: str) -> bool:
    """Whether most of what the devices idle, a tenth of the step or more, is of one kind."""
    idle_ns = it.idling.get("idle_ns", 0) if it.idling.get("kind") in kinds else 0
    return shares.idle >= LOST and 2 * idle_ns >= shares.idle * it.step_ns
