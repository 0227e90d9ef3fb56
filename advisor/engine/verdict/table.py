"""The decision table: rows in order, the first whose condition holds makes the verdict.

Findings compete by expected gain, the probability that their cause is real times the middle of
what it costs, however they are graded; a job that is broken comes before them. What would make
every gain doubtful (nothing recorded, ranks missing, clocks that may hide a link) stands between
the gains that are large and those that are small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from advisor.engine.causes import COVERED, expected_ns, is_option
from advisor.engine.verdict.facts import Shares, Situation
from advisor.findings import WARNING_SHARE, Finding, Severity, VerdictKind

LARGE = WARNING_SHARE  # expected
SMALL = 0.01  # below, nobody's afternoon
LOST = 0.10  # of the step, exposed or idle: not healthy, whether a cause is known or not; of events
LEAST_KNOWN = 0.8  # of the device's busy time: below, no cause is sure
LEAST_COVERED = 0.9  # of the device's busy time, to call a run healthy
_LEAST_STEPS = 2  # one step alone does not show what is lost every time
# What a host does by itself while its device idles: kinds of gaps.
_HOSTS_OWN = frozenset({"pause", "data-loading", "garbage-collection", "allocator"})
UNCOUNTED = frozenset({"plain-fp32-matmul"})  # what compute itself could do faster, without a gain
_OF_SURE_CAUSE = frozenset({VerdictKind.SURE, VerdictKind.UNKNOWN_COST})
# Waiting or exposed time itself, with nobody behind it: a loss, not a cause.
NOBODYS = frozenset({"jitter", "exposed-communication"})


class Decision(NamedTuple):
    """The shape, why it was chosen, and the finding it is about if any."""

    kind: VerdictKind
    reason: str
    finding: Finding | None = None


class Row(NamedTuple):
    """``choose`` gives a decision where the row's condition holds, else None."""

    name: str
    choose: Callable[[Situation, Shares], Decision | None]


def decide(situation: Situation) -> Decision:
    """The verdict's shape by the first row that holds."""
    if situation.strangers:
        return Decision(VerdictKind.INCONCLUSIVE, "never-met")
    broken = _without_gain(situation, {Severity.CRITICAL})
    if broken is not None:
        return Decision(VerdictKind.SURE, "broken", broken)
    if situation.instead:
        return Decision(VerdictKind.INCONCLUSIVE, "no-device")
    if situation.shares is None:
        return _without_steps(situation)
    for row in TABLE:
        found = row.choose(situation, situation.shares)
        if found is not None:
            return found
    raise AssertionError("the last row of the table always holds")


def _damaged(it: Situation, _: Shares) -> Decision | None:
    """What was left out is in no figure of a step."""
    return None if it.lost < LOST else Decision(VerdictKind.INCONCLUSIVE, "damaged")


def _captured(it: Situation, shares: Shares) -> Decision | None:
    """What a device does beside a capture is no part of what the graph does later."""
    if not _idles_for(it, shares, "graph-capture"):
        return None
    return Decision(VerdictKind.INCONCLUSIVE, "captured")


def _first_use(it: Situation, shares: Shares) -> Decision | None:
    """What a program loads once says nothing of its other steps, nor does what is left of this.

    Where communication takes more of the step than that, it is what the verdict is about.
    """
    first = shares.idle >= shares.exposed and _idles_for(it, shares, "loading")
    return Decision(VerdictKind.LOSSY, "idle") if first else None


def _idles_for(it: Situation, shares: Shares, kind: str) -> bool:
    """Whether most of what the devices idle, a tenth of the step or more, is of one kind."""
    idle_ns = it.idling.get("idle_ns", 0) if it.idling.get("kind") == kind else 0
    return shares.idle >= LOST and 2 * idle_ns >= shares.idle * it.step_ns


def _large(it: Situation, shares: Shares) -> Decision | None:
    found = _best(it, LARGE)
    if found is None or found.finding is None or found.kind is VerdictKind.SURE:
        return found
    # What is itself but probable does not stand before what would give more than its high end.
    return _if_possible(it, shares, found.finding.most_ns()) or found


def _small(it: Situation, shares: Shares) -> Decision | None:
    found = _best(it, SMALL)
    if found is None or found.finding is None:
        return found
    # It does not stand before what is only possible, nor before waiting that is worth a warning,
    # where either would give more.
    most_ns = found.finding.most_ns()
    warned = (item for item in it.findings if item.severity is not Severity.INFO)
    larger = (item for item in warned if item.rule in NOBODYS and expected_ns(item) > most_ns)
    if (loss := next(larger, None)) is not None:
        return about(loss)
    return _if_possible(it, shares, expected_ns(found.finding)) or found


def _if_possible(it: Situation, shares: Shares, than_ns: float) -> Decision | None:
    """The loss as a whole, where something that is only possible would give more."""
    more = any((item.savings_ns or 0) > than_ns for item in _possible(it))
    return _lossy(it, shares) if more else None


def _best(it: Situation, least: float) -> Decision | None:
    likely = [
        item
        for item in it.findings
        if not is_option(item)
        and expected_ns(item) >= least * it.step_ns
        # Some waiting is normal on any machine.
        and (item.rule not in NOBODYS or (item.savings_ns or 0) >= LOST * it.step_ns)
    ]
    if not likely:
        return None
    # A cause comes before the bare loss that it is a part of, unless it is a small one.
    losses = [item for item in likely if item.rule in NOBODYS]
    least_ns = COVERED * max(map(expected_ns, losses), default=0.0)
    causes = [item for item in likely if item not in losses and expected_ns(item) >= least_ns]
    # What a probe finds sound by now leads only where nothing else is likely.
    found = about(max(causes or losses, key=lambda item: (not _is_denied(item), expected_ns(item))))
    unknown = it.coverage is not None and it.coverage.share < LEAST_KNOWN
    if unknown and found.kind is VerdictKind.SURE:
        return found._replace(kind=VerdictKind.PROBABLE)
    return found


def _is_denied(finding: Finding) -> bool:
    """Whether a probe found sound what a recording shows as slow."""
    return finding.evidence.facts.get("probe") == "denies"


def about(finding: Finding) -> Decision:
    """The shape of a verdict on this finding; of a rule that no lab has tried none is sure."""
    if finding.rule in NOBODYS:
        return Decision(VerdictKind.LOSSY, finding.rule, finding)
    if _is_denied(finding):
        return Decision(VerdictKind.INCONCLUSIVE, "probe-denies", finding)
    if not finding.is_sure():
        return Decision(VerdictKind.PROBABLE, "finding", finding)
    if finding.is_of_unknown_cost():
        return Decision(VerdictKind.UNKNOWN_COST, "finding", finding)
    return Decision(VerdictKind.SURE, "finding", finding)


def _hidden_link(it: Situation, _: Shares) -> Decision | None:
    """Clocks that may hide a link which costs more than every finding gives."""
    if it.clocks is None or any(item.rule == "slow-ring-link" for item in it.findings):
        return None
    top = next((item for item in it.findings if item.severity != Severity.INFO), None)
    if top is None:
        return None
    # What the finding gives may be in the same calls: the doubt is about what is left of them.
    gain_ns = top.savings_ns or 0
    left_ns = it.clocks.hidden_ns - max(gain_ns, top.savings_high_ns or 0)
    if left_ns >= max(LOST * it.step_ns, gain_ns):
        return Decision(VerdictKind.INCONCLUSIVE, "clocks")
    return None


def _missing_peers(it: Situation, shares: Shares) -> Decision | None:
    """Communication larger than any finding gives, of which nothing tells what is waiting.

    A likely cause in these very calls need give back half of it only: the rest may be waiting.
    """
    if shares.wait_known or it.facts.all_ranks or shares.exposed < LOST:
        return None
    if _idles_by_itself(it, shares):
        return None
    top = next((item for item in it.findings if item.savings_ns), None)
    if top is not None:
        in_them = not is_option(top) and (
            top.savings_low_ns == 0  # partly_read.py
            or (top.is_sure() and mostly(top, "wait", "transfer"))
        )
        needed = 0.5 if in_them else 1.0
        # Causes beside each other count together: none of them is an effect of another.
        likely = sum(item.savings_ns or 0 for item in it.findings if not is_option(item))
        if max(top.savings_ns or 0, likely) >= needed * shares.exposed * it.step_ns:
            return None
    return _host_works(it, shares) or _ranks_missing(it, shares)


def _idles_by_itself(it: Situation, shares: Shares) -> bool:
    """Whether a sure cause is about idling, and gives more than all that is exposed: missing ranks
    have no part in it."""
    best = _best(it, LARGE)
    if best is None or best.finding is None or best.kind not in _OF_SURE_CAUSE:
        return False
    gives_ns = best.finding.savings_ns or 0
    return gives_ns >= shares.exposed * it.step_ns and mostly(best.finding, "idle")


def mostly(finding: Finding, *kinds: str) -> bool:
    """Whether most of the time that a finding is about is of these kinds."""
    claimed = sum(finding.claims.get(kind, 0) for kind in kinds)
    return 2 * claimed > sum(finding.claims.values())


def _setting(it: Situation, _: Shares) -> Decision | None:
    found = _without_gain(it, {Severity.CRITICAL, Severity.WARNING})
    return None if found is None else Decision(VerdictKind.SURE, "setting", found)


def _blind(it: Situation, _: Shares) -> Decision | None:
    """The recording does not hold what a verdict speaks of."""
    if it.empty_ranks:
        return Decision(VerdictKind.INCONCLUSIVE, "nothing-recorded")
    if it.facts.world_size != 1 and not it.communicates:
        return Decision(VerdictKind.INCONCLUSIVE, "no-communication")
    needed = LEAST_KNOWN if it.facts.world_size == 1 else LEAST_COVERED
    if it.coverage is not None and it.coverage.share < needed:
        return Decision(VerdictKind.INCONCLUSIVE, "unrecognised")
    return None


def _host_works(it: Situation, shares: Shares) -> Decision | None:
    """What a host does while its device idles is seen without the other ranks, and in one step."""
    own = shares.idle >= shares.exposed and any(_idles_for(it, shares, kind) for kind in _HOSTS_OWN)
    return Decision(VerdictKind.LOSSY, "idle") if own else None


def _ranks_missing(it: Situation, shares: Shares) -> Decision | None:
    if shares.exposed < LARGE:
        return None
    if it.cut_ranks:
        return Decision(VerdictKind.INCONCLUSIVE, "ranks-cut")
    # Of a job that was read whole, calls that were not matched lack no rank.
    unknown = not it.facts.all_ranks and (not shares.wait_known or it.partly_read >= LARGE)
    return Decision(VerdictKind.INCONCLUSIVE, "ranks-missing") if unknown else None


def _groups_missing(it: Situation, shares: Shares) -> Decision | None:
    if shares.exposed < LARGE or it.groups_known:
        return None
    return Decision(VerdictKind.INCONCLUSIVE, "groups-missing")


def _one_step(it: Situation, shares: Shares) -> Decision | None:
    if shares.exposed < LARGE or it.facts.steps >= _LEAST_STEPS:
        return None
    return Decision(VerdictKind.INCONCLUSIVE, "one-step")


def _clocks(it: Situation, _: Shares) -> Decision | None:
    if it.clocks is None or it.clocks.share < LOST:
        return None
    return Decision(VerdictKind.INCONCLUSIVE, "clocks")


def _lossy(it: Situation, shares: Shares) -> Decision | None:
    """Much is lost, or something pays for sure: what may be a cause if it is one, or a replayed
    change that no finding is about."""
    if shares.lost < LOST and not _possible(it) and it.replay_saves_ns < LARGE * it.step_ns:
        return None
    return Decision(VerdictKind.LOSSY, "idle" if shares.idle > shares.exposed else "exposed")


def _possible(it: Situation) -> list[Finding]:
    """Options that are graded as losses: where they are the cause their whole interval pays."""
    return [item for item in it.findings if is_option(item) and item.severity is not Severity.INFO]


def _nobody_to_compare(it: Situation, _: Shares) -> Decision | None:
    """Who never waits may be the one that all others wait for."""
    if not it.alone_ranks:
        return None
    return Decision(VerdictKind.INCONCLUSIVE, "ranks-alone")


def _healthy(_: Situation, __: Shares) -> Decision | None:
    return Decision(VerdictKind.HEALTHY, "healthy")


TABLE = (
    Row("much of the recording is damaged", _damaged),
    Row("a graph was captured", _captured),
    Row("most of the idle time is first use", _first_use),
    Row("clocks may hide more than any finding gives", _hidden_link),
    Row("missing ranks may explain more than any finding gives", _missing_peers),
    Row("a large expected gain", _large),
    Row("a setting or fault that a log shows", _setting),
    Row("the recording holds no work to judge", _blind),
    Row("most of the idle time the host does something else", _host_works),
    Row("ranks are missing", _ranks_missing),
    Row("process groups are missing", _groups_missing),
    Row("one step is too little", _one_step),
    Row("a small expected gain", _small),
    Row("clocks may hide a link", _clocks),
    Row("time is lost without a known cause", _lossy),
    Row("no rank to compare with", _nobody_to_compare),
    Row("healthy", _healthy),
)
"""Rows of runs with steps, in order; README of the table: docs/reading.md."""


def _without_steps(it: Situation) -> Decision:
    warned = _without_gain(it, {Severity.WARNING})
    if warned is not None:
        return Decision(VerdictKind.SURE, "setting", warned)
    if it.steps_seen:
        return Decision(VerdictKind.INCONCLUSIVE, "no-complete-step")
    if it.benchmark is not None:
        return Decision(VerdictKind.INCONCLUSIVE, "benchmark")
    if it.events and it.formats & {"kineto", "nsys"} and not it.findings:
        return Decision(VerdictKind.INCONCLUSIVE, "no-work")
    return Decision(VerdictKind.INCONCLUSIVE, "no-trace")


def _without_gain(it: Situation, severities: set[Severity]) -> Finding | None:
    """The first finding of these severities whose cost per step nothing tells."""
    return next(
        (item for item in it.findings if item.severity in severities and not item.savings_ns), None
    )
