"""The decision table: rows in order, the first whose condition holds makes the verdict.

Findings compete by expected gain, the probability that their cause is real times the middle of
what it costs, however they are graded; a job that is broken comes before them. What would make
every gain doubtful (nothing recorded, ranks missing, clocks that may hide a link) stands between
the gains that are large and those that are small.
"""

from collections.abc import Callable
from typing import NamedTuple

from advisor.engine.causes import expected_ns
from advisor.engine.verdict.choice import (
    LARGE,
    NOBODYS,
    SMALL,
    Decision,
    about,
    best,
    hides_more,
    idles_for,
    inconclusive,
    mostly,
)
from advisor.engine.verdict.facts import LOST, Shares, Situation
from advisor.engine.verdict.missing_ranks import (
    groups_missing,
    host_works,
    missing_peers,
    nobody_to_compare,
    ranks_missing,
)
from advisor.engine.verdict.next_steps import look_at
from advisor.findings import Finding, Severity, VerdictKind

LEAST_COVERED = 0.9  # of the device's busy time, to call a run healthy
_LEAST_STEPS = 2  # one step alone does not show what is lost every time
_NO_OPTIMIZER = {"inference", "forward"}


class Row(NamedTuple):
    """``choose`` gives a decision where the row's condition holds, else None."""

    name: str
    choose: Callable[[Situation, Shares], Decision | None]


def decide(situation: Situation) -> Decision:
    """The verdict's shape by the first row that holds."""
    if situation.strangers:
        return inconclusive("never-met")
    broken = _without_gain(situation, {Severity.CRITICAL})
    if broken is not None:
        return Decision(VerdictKind.SURE, "broken", broken)
    if situation.instead:
        return inconclusive("no-device")
    if situation.shares is None:
        return _without_steps(situation)
    for row in TABLE:
        found = row.choose(situation, situation.shares)
        if found is not None:
            return found
    raise AssertionError("the last row of the table always holds")


def _damaged(it: Situation, _: Shares) -> Decision | None:
    """What was left out is in no figure of a step."""
    return None if it.lost < LOST else inconclusive("damaged")


def _captured(it: Situation, shares: Shares) -> Decision | None:
    """What a device does beside a capture is no part of what the graph does later."""
    if not idles_for(it, shares, "graph-capture"):
        return None
    return inconclusive("captured")


def _first_use(it: Situation, shares: Shares) -> Decision | None:
    """What a program loads once says nothing of its other steps, nor does what is left of this.

    Where communication takes more of the step than that, it is what the verdict is about.
    """
    first = shares.idle >= shares.exposed and idles_for(it, shares, "loading", "start")
    return Decision(VerdictKind.LOSSY, "idle") if first else None


def _best(it: Situation, least: float) -> Decision | None:
    """The best, unless transfers of unknown size take longer."""
    found = best(it, least)
    hidden = found is not None and found.finding is not None and hides_more(it, found.finding)
    return None if hidden else found


def _large(it: Situation, shares: Shares) -> Decision | None:
    found = _best(it, LARGE)
    if found is None or found.finding is None:
        return found
    if found.kind is VerdictKind.SURE:
        return found
    # What is itself but probable does not stand before what would give more than its high end, nor
    # at an uncertain cost before a host that is seen to do something else for longer.
    most_ns = found.finding.most_ns()
    longer = it.idling.get("idle_ns", 0) > most_ns and not mostly(found.finding, "idle", "queued")
    own = host_works(it, shares) if longer and found.finding.severity is Severity.INFO else None
    probable = found.kind is VerdictKind.PROBABLE
    return (_if_possible(it, shares, most_ns) if probable else None) or own or found


def _small(it: Situation, shares: Shares) -> Decision | None:
    found = _best(it, SMALL)
    if found is None or found.finding is None:
        return found
    # It does not stand before what is only possible, before waiting that is worth a warning, nor
    # itself too small for one before what a healthy run is told to look at, where that gives more.
    most_ns = found.finding.most_ns()
    look = look_at(it) if found.finding.severity is Severity.INFO else None
    if look is not None and look.most_ns() > most_ns:
        return None
    warned = (item for item in it.findings if item.severity is not Severity.INFO)
    larger = (item for item in warned if item.rule in NOBODYS and expected_ns(item) > most_ns)
    if (loss := next(larger, None)) is not None:
        return about(loss)
    return _if_possible(it, shares, expected_ns(found.finding)) or found


def _if_possible(it: Situation, shares: Shares, than_ns: float) -> Decision | None:
    """The loss as a whole, where something that is only possible would give more."""
    more = any((item.savings_ns or 0) > than_ns for item in _possible(it))
    return _lossy(it, shares) if more else None


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
        return inconclusive("clocks")
    return None


def _setting(it: Situation, _: Shares) -> Decision | None:
    found = _without_gain(it, {Severity.CRITICAL, Severity.WARNING})
    return None if found is None else Decision(VerdictKind.SURE, "setting", found)


def _blind(it: Situation, shares: Shares) -> Decision | None:
    """The recording does not hold what a verdict speaks of, or nobody knows what it holds."""
    if it.empty_ranks:
        return inconclusive("nothing-recorded")
    if it.facts.world_size != 1 and not it.communicates:
        return inconclusive("no-communication")
    if it.coverage is None or it.coverage.share >= LEAST_COVERED:
        return None
    unknown = (1 - it.coverage.share) * shares.compute  # of the step: what is not known computes
    return inconclusive("unrecognised") if unknown >= SMALL else None


def _one_step(it: Situation, shares: Shares) -> Decision | None:
    if shares.exposed < LARGE or it.facts.steps >= _LEAST_STEPS:
        return None
    return inconclusive("one-step")


def _clocks(it: Situation, _: Shares) -> Decision | None:
    if it.clocks is None or it.clocks.share < LOST:
        return None
    return inconclusive("clocks")


def _lossy(it: Situation, shares: Shares) -> Decision | None:
    """Much is lost, or something pays for sure: what may be a cause if it is one, or a replayed
    change that no finding is about."""
    if shares.lost < LOST and not _possible(it) and it.replay_saves_ns < LARGE * it.step_ns:
        return None
    return Decision(VerdictKind.LOSSY, "idle" if shares.idle > shares.exposed else "exposed")


def _waiting(it: Situation, _: Shares) -> Decision | None:
    """Waiting that nobody is behind, and yet is worth a warning of its own: so is the run."""
    worth = (item for item in it.findings if item.rule in NOBODYS and not item.is_option())
    loss = next(
        (item for item in worth if item.savings_ns and item.severity != Severity.INFO), None
    )
    return None if loss is None else about(loss)


def _possible(it: Situation) -> list[Finding]:
    """Options that are graded as losses: where they are the cause their whole interval pays."""
    return [item for item in it.findings if item.is_option() and item.severity is not Severity.INFO]


def _unmarked(it: Situation, shares: Shares) -> Decision | None:
    """Of a training step without marks nothing tells what the optimizer's part of it exposes."""
    lost = min(shares.exposed, shares.lost)
    if not it.facts.by_pattern or it.facts.purpose in _NO_OPTIMIZER or lost < LARGE:
        return None
    return inconclusive("unmarked")


def _before(it: Situation, _: Shares) -> Decision | None:
    """What a host did before the one pass that was recorded is a part of every pass, or of none."""
    return inconclusive("before") if it.before_ns >= LOST * it.step_ns else None


def _healthy(_: Situation, __: Shares) -> Decision | None:
    return Decision(VerdictKind.HEALTHY, "healthy")


TABLE = (
    Row("much of the recording is damaged", _damaged),
    Row("a graph was captured", _captured),
    Row("most of the idle time is first use", _first_use),
    Row("clocks may hide more than any finding gives", _hidden_link),
    Row("missing ranks may explain more than any finding gives", missing_peers),
    Row("a large expected gain", _large),
    Row("a setting or fault that a log shows", _setting),
    Row("the recording holds no work to judge", _blind),
    Row("most of the idle time the host does something else", host_works),
    Row("ranks are missing", ranks_missing),
    Row("process groups are missing", groups_missing),
    Row("one step is too little", _one_step),
    Row("a small expected gain", _small),
    Row("clocks may hide a link", _clocks),
    Row("time is lost without a known cause", _lossy),
    Row("waiting that is worth a warning", _waiting),
    Row("no rank to compare with", nobody_to_compare),
    Row("no mark tells what part of the step is exposed", _unmarked),
    Row("what comes before the one pass recorded may be of each", _before),
    Row("healthy", _healthy),
)
"""Rows of runs with steps, in order; README of the table: docs/reading.md."""


def _without_steps(it: Situation) -> Decision:
    warned = _without_gain(it, {Severity.WARNING})
    if warned is not None:
        return Decision(VerdictKind.SURE, "setting", warned)
    if it.steps_seen:
        return inconclusive("no-complete-step")
    if it.benchmark is not None:
        return inconclusive("benchmark")
    if it.events and it.formats & {"kineto", "nsys"} and not it.findings:
        return inconclusive("no-work")
    return inconclusive("no-trace")


def _without_gain(it: Situation, severities: set[Severity]) -> Finding | None:
    """The first finding of these severities whose cost per step nothing tells."""
    return next(
        (item for item in it.findings if item.severity in severities and not item.savings_ns), None
    )
