"""Merges findings that share a cause: one slow rank is one finding, not twenty.

A finding is an effect of another that claims most of the same time (claims.py) and says more of
it: why it is lost comes before who holds it up, and that before where it goes. The cause must be
at least as severe, or a grade less with nearly the same recoverable time.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from advisor.engine.calibration import calibration
from advisor.engine.claims import COVERED, Ledger, covered
from advisor.engine.machine import said_of_machine
from advisor.engine.rule import PAIRED_FLOOR, Rule
from advisor.findings import SEVERITY_ORDER, Basis, Effect, Finding, Severity
from advisor.messages import LOCATIONS, say

# Grades have sharp bounds: a cause may fall just under one that its effect is just over.
_NEARLY = 0.8
# Of what other programs take on the machine: what the job itself can change comes first.
MACHINES = frozenset({"no-free-core"})
_OF_LINKS = frozenset({"communication", "fabric"})
# What a rule says of the time it claims: where it goes, who holds it up, or why.
_DEPTH = {"where": 0, "who": 1, "why": 2}

MOST_COMPARED = 500
"""Findings that are held against each other, the worst ones: twice what our rules can say."""

Claimed = tuple[Finding, Ledger]
_Order = Callable[[Finding, Finding], bool]


def merge(found: Sequence[Claimed], rules: Mapping[str, Rule]) -> list[Claimed]:
    """Causes only, worst first; each lists in ``merged`` the findings that are its effects."""
    ledgers = {id(finding): ledger for finding, ledger in found}
    ordered = rank_findings([finding for finding, _ in found], rules)
    claimed = [(finding, ledgers[id(finding)]) for finding in ordered[:MOST_COMPARED]]
    parent = effects(claimed, rules)
    # The job can change what a machine explains only by way of something else.
    for index, via in [*parent.items()]:
        (item, _), root = claimed[index], claimed[_root(index, parent)]
        of_machine = root is not claimed[via] and root[0].rule in MACHINES
        if of_machine and item.savings_ns and not _share(claimed[index], root):
            del parent[index]
    merged: dict[int, list[Finding]] = {}
    for index in parent:
        merged.setdefault(_root(index, parent), []).append(ordered[index])
    kept = []
    for index, finding in enumerate(ordered):
        if index in parent:
            continue
        of_it = merged.get(index, [])
        update: dict[str, object] = {"merged": [Effect(rule=i.rule, where=i.where) for i in of_it]}
        own = (finding, ledgers[id(finding)])
        update |= said_of_machine(own, claimed)
        beside = [item for item in of_it if _is_beside((item, ledgers[id(item)]), own, rules)]
        if beside:
            others = {item.process_group for item in beside}
            ranks = sorted(ledgers[id(beside[0])].ranks or beside[0].ranks)
            update["where"] = say(
                LOCATIONS, "groups-beside",
                {"where": finding.where, "others": len(others), "ranks": ranks},
            )  # fmt: skip
        kept.append((finding.model_copy(update=update), ledgers[id(finding)]))
    return _unique(kept)


def effects(ordered: Sequence[Claimed], rules: Mapping[str, Rule]) -> dict[int, int]:
    """Which of the findings, worst first, is an effect of which: index to index.

    Among rules that say as much the worse finding is the cause. One that says where time goes is
    an effect of all that takes it away together, and listed under the first of these.
    """
    depth = [_DEPTH[rules[item.rule].says] if item.rule in rules else 2 for item, _ in ordered]
    parent: dict[int, int] = {}
    for index in sorted(range(len(ordered)), key=lambda index: (depth[index], -index)):
        (item, ledger), causes = ordered[index], []
        for other, (cause, theirs) in enumerate(ordered):
            if other == index or other in parent or cause.run != item.run or not depth[other]:
                continue
            if _uses_less(cause, item, rules):
                continue
            share = _share(ordered[index], ordered[other])
            if _is_beside(ordered[index], ordered[other], rules):
                share = 1.0
            sure = share * _sure_part(cause) >= COVERED
            as_deep = depth[other] == depth[index]
            # Of two at one place one stands under the other as far as that surely takes its gain.
            one_place = as_deep and cause.ranks == item.ranks and cause.links == item.links
            deeper = (
                (-depth[other], other) < (-depth[index], index)
                and (sure or not one_place)
                and not (depth[index] and _gives_surely_less(cause, item, as_deep=as_deep))
            )
            # A worse finding takes also what lies deeper: as far as its cost is sure, unless that
            # takes it in turn; and what is the same gain, which must not stand twice.
            mutual = share >= COVERED and _share(ordered[other], ordered[index]) >= COVERED
            # The interval of an option, from nothing on, holds every smaller gain.
            same = _holds(cause, item.savings_ns) or (
                not item.is_option() and _holds(item, cause.savings_ns)
            )
            worse = other < index and (same if mutual else sure)
            # What may give nothing takes the place of no other remedy.
            weighs = depth[index] < depth[other] or not cause.is_option() or cause.rule == item.rule
            if share and (deeper or worse) and weighs and _severe_enough(cause, item):
                causes.append((share, -other, theirs))
        together = not depth[index]
        best_ns = max((ordered[-place][0].most_ns() for _, place, _ in causes), default=0)
        if together and item.savings_low_ns and (item.savings_ns or 0) > best_ns:
            causes = []  # a remedy that gives more than each of them does at best
        taken = [theirs for _, _, theirs in causes] if together else []
        most, place, _ = max(causes, key=lambda cause: cause[:2], default=(0.0, 0, ledger))
        if causes and max(most, covered(ledger, taken)) >= COVERED:
            parent[index] = -place
        elif together and (first := _first_beside(index, ordered, parent, rules)) is not None:
            parent[index] = first
    return parent


def _uses_less(cause: Finding, effect: Finding, rules: Mapping[str, Rule]) -> bool:
    """Whether one says when calls run or what they carry, which is not why a place of the network
    is slow; a place that only may be, as far as it may give more than sending less over it."""
    change, place = rules.get(cause.rule), rules.get(effect.rule)
    if change is None or place is None or place.says != "who" or place.category not in _OF_LINKS:
        return False
    gives_more = (effect.savings_ns or 0) > (cause.savings_ns or 0)
    if effect.is_option():
        return change.category == "volume" and gives_more
    return change.category in ("overlap", "volume")


def _first_beside(
    index: int, ordered: Sequence[Claimed], parent: Mapping[int, int], rules: Mapping[str, Rule]
) -> int | None:
    """The worst finding that says the same of groups beside these, where nothing explains it."""
    item, _ = ordered[index]
    beside = (
        other
        for other, (worse, _) in enumerate(ordered[:index])
        if other not in parent
        and worse.run == item.run
        and _is_beside(ordered[index], ordered[other], rules)
        and _severe_enough(worse, item)
    )
    return next(beside, None)


def _is_beside(one: Claimed, two: Claimed, rules: Mapping[str, Rule]) -> bool:
    """Whether two say the same of groups side by side (replicas of a mesh), gained only once."""
    (item, ledger), (other, theirs) = one, two
    if item.rule != other.rule:
        return False
    rule = rules.get(item.rule)
    own, others = ledger.ranks or set(item.ranks), theirs.ranks or set(other.ranks)
    alike = _holds(other, item.savings_ns) if item.savings_ns else not other.savings_ns
    return (
        rule is not None
        and rule.savings.in_calls
        and None not in (item.process_group, other.process_group)
        and item.process_group != other.process_group
        and bool(own and others)
        and not own & others
        and alike
    )


def _share(effect: Claimed, cause: Claimed) -> float:
    """How much of what one claims goes with the other."""
    return covered(effect[1], [cause[1]], alike=effect[0].rule == cause[0].rule)


def _sure_part(finding: Finding) -> float:
    """The low end of a gain as a share of its middle."""
    middle, low = finding.savings_ns, finding.savings_low_ns
    return 1.0 if not middle or low is None else low / middle


def _gives_surely_less(cause: Finding, effect: Finding, *, as_deep: bool) -> bool:
    """What gives less than the low end of the other's gain is not why all of that is lost.

    Of why something is lost the high end counts. Two that say ``as_deep`` are two remedies: one
    that is expected to give less does not take the other's place. Of an option its middle is
    meant, what it gives where it gives anything.
    """
    most = cause.at_most_ns() or (cause.savings_ns if as_deep else cause.savings_high_ns)
    least = effect.savings_ns if effect.is_option() else effect.savings_low_ns
    return most is not None and least is not None and most < least


def _severe_enough(cause: Finding, effect: Finding) -> bool:
    """Nobody looks for a warning under a hint; what may give all of the effect is as severe."""
    gain_ns = cause.at_most_ns() or cause.savings_ns or 0
    return SEVERITY_ORDER[cause.severity] <= SEVERITY_ORDER[effect.severity] or (
        cause.severity != Severity.INFO
        and (gain_ns >= _NEARLY * (effect.savings_ns or 0) or _holds(cause, effect.savings_ns))
    )


def rank_findings(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Worst severity first, then recoverable time, then names (so that order is stable).

    Time counts by the geometric mean of its middle and its low end, times the probability: of two
    causes that may give back as much the surer one comes first, last what has no gain. In ties a
    rule's ``first_in_ties`` decides, and among its own findings its ``keeps_order``.
    """
    as_found = {rule.id for rule in rules.values() if rule.keeps_order}
    ordered = sorted(
        findings,
        key=lambda item: (
            SEVERITY_ORDER[item.severity],
            (1 if item.is_option() else 0) if _can_be_shown(item) else 2,
            -_sure_ns(item),
            -(item.savings_ns or 0),
            item.rule,
            "" if item.rule in as_found else item.where,
        ),
    )
    first = {rule.id: rule.first_in_ties for rule in rules.values()}
    return _in_ties(ordered, lambda one, other: other.rule in first.get(one.rule, ()))


def as_listed(ranked: Sequence[Finding]) -> list[Finding]:
    """The ranking as readers see it: what ends a job, what the job loses, its machine, then hints.

    What is worth a warning or more stands by its expected gain, however it is graded, but of what
    may give back as much by the ranking; hints by the size written beside them, of an interval its
    high end: how likely they are is a column.
    """
    rank = {id(item): place for place, item in enumerate(ranked)}
    return _in_ties(
        sorted(ranked, key=_listed),
        lambda one, other: rank[id(one)] < rank[id(other)] and _listed(one)[0] == 1,
    )


def _in_ties(ordered: Sequence[Finding], precedes: _Order) -> list[Finding]:
    """The order, but of those that may give back as much the one that precedes the others."""
    result: list[Finding] = []
    for item in ordered:
        ties = (n for n, other in enumerate(result) if precedes(item, other) and _tie(item, other))
        result.insert(next(ties, len(result)), item)
    return result


def _listed(item: Finding) -> tuple[int, float]:
    if item.severity is Severity.INFO:
        by_interval = item.at_most_ns() or item.is_of_unknown_cost()
        return 3, -(item.most_ns() if by_interval else item.savings_ns or 0)
    if item.severity is Severity.CRITICAL and not item.savings_ns:
        return 0, 0
    expected = expected_ns(item)
    return (1 if expected and item.rule not in MACHINES else 2), -expected


def _can_be_shown(finding: Finding) -> bool:
    """Whether there is a gain that an A/B of practical length could tell from none."""
    share = finding.savings_share
    return bool(finding.savings_ns) and (share is None or share >= PAIRED_FLOOR)


def _tie(one: Finding, other: Finding) -> bool:
    """Whether two findings on the same calls may give back as much, for all that is known.

    What has no group is of the calls of all of them.
    """
    groups = {one.process_group, other.process_group} - {None}
    return (
        (one.run, one.severity) == (other.run, other.severity)
        and len(groups) < 2
        and (
            (_holds(one, other.savings_ns) and _holds(other, one.savings_ns))
            or one.savings_ns is other.savings_ns is None
        )
    )


def _sure_ns(finding: Finding) -> float:
    middle = finding.savings_ns or 0
    low = middle if finding.savings_low_ns is None else finding.savings_low_ns
    return _weight(finding) * math.sqrt(middle * max(low, 0))


def _holds(finding: Finding, gain_ns: int | None) -> bool:
    """Whether a gain is within the finding's interval."""
    low, high = finding.savings_low_ns, finding.savings_high_ns
    return None not in (low, high, gain_ns) and low <= gain_ns <= high  # type: ignore[operator]


def expected_ns(finding: Finding) -> float:
    """What a fix gains on average, ns per step; 0 of an option, whose probability is unknown."""
    return _weight(finding) * (finding.savings_ns or 0)


def _weight(finding: Finding) -> float:
    """The probability of its cause; a bare loss counts as what no lab tried: a part comes back."""
    if finding.basis is Basis.LOSS:
        return calibration().rate(finding.rule)
    return finding.probability or 0.0


def _root(index: int, parent: Mapping[int, int]) -> int:
    while index in parent:
        index = parent[index]
    return index


def _unique(kept: Sequence[Claimed]) -> list[Claimed]:
    """Anchors must differ within a report."""
    seen: dict[str, int] = {}
    result = []
    for finding, ledger in kept:
        seen[finding.id] = seen.get(finding.id, 0) + 1
        if (count := seen[finding.id]) > 1:
            finding = finding.model_copy(update={"id": f"{finding.id}-{count}"})
        result.append((finding, ledger))
    return result
