"""Merges findings that share a cause: one slow rank is one finding, not twenty.

A rule's ``explains`` lists which other rules it causes. A finding is merged into the one that
explains it when both concern the same ranks or group, the cause is at least as severe (or a grade
less with nearly the same recoverable time), and it accounts for enough of the effect's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from advisor.engine.rule import Explains, Rule
from advisor.findings import SEVERITY_ORDER, Finding, Severity

# Grades have sharp bounds: a cause may fall just under one that its effect is just over.
_NEARLY = 0.8
# Gains that differ by less are no ground to prefer the setting that costs more.
_TIE = 0.8
LIKELY = 0.5


def merge(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Causes only, worst first; each lists in ``merged`` the findings that it explains."""
    ordered = rank_findings(findings, rules)
    parent = parents(ordered, rules)
    merged: dict[int, list[Finding]] = {}
    for index in parent:
        merged.setdefault(_root(index, parent), []).append(ordered[index])
    kept = []
    for index, finding in enumerate(ordered):
        if index in parent:
            continue
        effects = merged.get(index, [])
        kept.append(finding.model_copy(update={"merged": [_label(item) for item in effects]}))
    return _unique(kept)


def parents(ordered: Sequence[Finding], rules: Mapping[str, Rule]) -> dict[int, int]:
    """Which of the findings, worst first, is explained by which: index to index."""
    parent: dict[int, int] = {}
    for effect_index, effect in enumerate(ordered):
        for cause_index, cause in enumerate(ordered):
            if cause_index == effect_index or _root(cause_index, parent) == effect_index:
                continue
            claims = rules[cause.rule].explains if cause.rule in rules else []
            if any(_explains(claim, cause, effect) for claim in claims):
                parent[effect_index] = cause_index
                break
    return parent


def rank_findings(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Worst severity first, then recoverable time, then names (so that order is stable).

    Time counts by the geometric mean of its middle and the low end of its interval, times the
    probability of the cause: of two causes that may give back as much, the surer one comes first,
    then what more likely gives nothing, and last what has no gain. Where that is a tie too, a
    rule's ``first_in_ties`` decides.
    """
    ordered = sorted(
        findings,
        key=lambda item: (
            SEVERITY_ORDER[item.severity],
            (1 if is_option(item) else 0) if item.savings_ns else 2,
            -_sure_ns(item),
            -(item.savings_ns or 0),
            item.rule,
            item.where,
        ),
    )
    for finding in list(ordered):
        after = rules[finding.rule].first_in_ties if finding.rule in rules else []
        place = ordered.index(finding)
        ties = [
            number
            for number, other in enumerate(ordered[:place])
            if other.rule in after and _tie(finding, other)
        ]
        if ties:
            ordered.insert(ties[0], ordered.pop(place))
    return ordered


def _tie(one: Finding, other: Finding) -> bool:
    """Whether two findings on the same calls may give back as much, for all that is known."""
    return (
        (one.run, one.severity, one.process_group)
        == (other.run, other.severity, other.process_group)
        and _holds(one, other.savings_ns)
        and _holds(other, one.savings_ns)
        and _sure_ns(one) >= _TIE * _sure_ns(other)
    )


def _sure_ns(finding: Finding) -> float:
    middle = finding.savings_ns or 0
    low = middle if finding.savings_low_ns is None else finding.savings_low_ns
    return (finding.probability or 0.0) * math.sqrt(middle * max(low, 0))


def _holds(finding: Finding, gain_ns: int | None) -> bool:
    """Whether a gain is within the finding's interval."""
    low, high = finding.savings_low_ns, finding.savings_high_ns
    return None not in (low, high, gain_ns) and low <= gain_ns <= high  # type: ignore[operator]


def is_option(finding: Finding) -> bool:
    """Whether a change more likely gives nothing: worth a try, and no cause of a loss."""
    return (finding.probability or 0.0) < LIKELY


def expected_ns(finding: Finding) -> float:
    """What acting on a finding gains on average, ns per step: its probability times its middle."""
    return (finding.probability or 0.0) * (finding.savings_ns or 0)


def _explains(claim: Explains, cause: Finding, effect: Finding) -> bool:
    if claim.rule != effect.rule or cause.run != effect.run:
        return False
    # A cause that may give nothing is the same one as an effect of up to as much.
    gain_ns = cause.at_most_ns() or cause.savings_ns or 0
    if SEVERITY_ORDER[cause.severity] > SEVERITY_ORDER[effect.severity] and (
        cause.severity == Severity.INFO or gain_ns < _NEARLY * (effect.savings_ns or 0)
    ):
        return False
    if any(cause.evidence.facts.get(name) not in values for name, values in claim.when.items()):
        return False
    if (cause.savings_ns or 0) < claim.at_least * _size(effect):
        return False
    if claim.same == "group":
        groups = {cause.process_group, effect.process_group}
        return None in groups or len(groups) == 1
    if claim.same == "ranks":
        return not cause.ranks or not effect.ranks or bool({*cause.ranks} & {*effect.ranks})
    return True


def _size(effect: Finding) -> float:
    """What an effect is about, ns per step: of one whose gain nothing tells, the time it shows."""
    if effect.savings_ns is not None:
        return effect.savings_ns
    shown = effect.evidence.facts.get("exposed_ns")
    return float(shown) if isinstance(shown, (int, float)) else 0.0


def _root(index: int, parent: Mapping[int, int]) -> int:
    while index in parent:
        index = parent[index]
    return index


def _label(finding: Finding) -> str:
    return f"{finding.rule} ({finding.where})" if finding.where else finding.rule


def _unique(findings: Sequence[Finding]) -> list[Finding]:
    """Anchors must differ within a report."""
    seen: dict[str, int] = {}
    result = []
    for finding in findings:
        seen[finding.id] = seen.get(finding.id, 0) + 1
        count = seen[finding.id]
        result.append(
            finding if count == 1 else finding.model_copy(update={"id": f"{finding.id}-{count}"})
        )
    return result
