"""What a row of a rule is worth: savings within the step and above the noise, and how bad it is."""

import math
from collections.abc import Mapping
from typing import Any

from advisor.engine.facts import Facts
from advisor.engine.rule import PAIRED_FLOOR, Rule
from advisor.engine.savings_bounds import bounded
from advisor.findings import CRITICAL_SHARE, SEVERITY_ORDER, WARNING_SHARE, Severity

# Of so much of the step the loss itself is worth a warning, whatever the noise leaves of its cause.
LOST_SHARE = 0.2

_LEAVES_COMPUTE = {"transfer", "wait", "exposed", "idle", "queued", "memory"}


def floor_of(rule: Rule, facts: Facts) -> int:
    """The smallest recoverable time, ns per step, that this rule's kind of evidence can show.

    Steps of a run differ, so a claim that rests on their length needs the run's noise floor. What
    ranks or calls of the same steps differ by is not blurred by that; what stays is the least that
    an A/B of practical length resolves.
    """
    return paired_floor(facts) if rule.paired else facts.noise_ns or 0


def paired_floor(facts: Facts) -> int:
    return round(PAIRED_FLOOR * (facts.step_ns or 0))


def above_noise(
    rule: Rule, rows: list[dict[str, Any]], facts: Facts
) -> tuple[list[dict[str, Any]], int | None]:
    """Instances worth reporting, best first, and the largest gain that was not measurable."""
    ordered = sorted(rows, key=lambda row: -(row.get("savings_ns") or 0))
    if not rule.noise_floor:
        return ordered, None
    floor = floor_of(rule, facts)
    kept: list[dict[str, Any]] = []
    dropped: list[int] = []
    for row in ordered:
        gain = row.get("savings_ns")
        if gain is None or gain > floor:
            kept.append(row)
        else:
            dropped.append(int(gain))
    return kept, max(dropped, default=None)


def severity_of(rule: Rule, row: Mapping[str, Any], facts: Facts) -> Severity:
    """Critical from 10 %, warning from 3 % of the step (:func:`step_of`), else info.

    A warning must be sure: when the low end of the interval is under the noise floor, the finding
    is info, unless it costs something for sure and a fifth of the step or more, or its cause is
    counted (partly_read.py). A column
    ``severity`` of the rule's SQL comes first: for evidence that has no time per step, such as a
    setting found in a log.
    """
    if row.get("severity"):
        return Severity(row["severity"])
    if rule.severity != "by-savings":
        return Severity(rule.severity)
    savings, low = row.get("savings_ns") or 0, row.get("savings_low_ns")
    graded = Severity.INFO
    step_ns = step_of(row, facts)
    counted = bool(row.get("is_counted"))
    if savings and step_ns and (counted or low is None or low > floor_of(rule, facts)):
        share = savings / step_ns
        if share >= CRITICAL_SHARE:
            graded = Severity.CRITICAL
        elif share >= WARNING_SHARE:
            graded = Severity.WARNING
    elif low is not None and low > 0 and savings >= LOST_SHARE * (step_ns or math.inf):
        graded = Severity.WARNING
    ceiling = Severity.WARNING if counted else Severity(rule.at_most)
    return graded if SEVERITY_ORDER[graded] >= SEVERITY_ORDER[ceiling] else ceiling


def step_of(row: Mapping[str, Any], facts: Facts) -> int | None:
    """The step that savings are of: the typical one, or a column ``of_step_ns`` of the rule's SQL.

    What happens in some steps only is paid for by their mean.
    """
    given = row.get("of_step_ns")
    return facts.step_ns if given is None else max(int(given), facts.step_ns or 0)


def savings_of(
    rule: Rule, facts: Facts, row: dict[str, Any], step_ns: int | None
) -> dict[str, int | None]:
    """The row's savings within the step, ns. Compute beside which nothing runs stays whatever the
    rule's fix gives, unless the rule is about compute itself; what the profiler adds is nobody's
    to save. A rule that claims no time knows both."""
    parts = {claim.part for claim in rule.claims}
    if not parts:
        return bounded(row, step_ns)[0]
    if not parts <= _LEAVES_COMPUTE:
        return bounded(row, step_ns, own_share=facts.own_share)[0]
    of_step = facts.compute_alone_ns, facts.running_share, facts.own_share
    return bounded(row, step_ns, *of_step)[0]
