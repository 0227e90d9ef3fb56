"""Sentences and counts that several formats share, so that they cannot disagree."""

import math
import re
from collections import Counter

from advisor.findings import (
    WARNING_SHARE,
    Basis,
    Finding,
    FindingsReport,
    OutcomeKind,
    Severity,
    VerdictKind,
)
from advisor.messages import CONFIDENCES, SOURCES, STATES, SUMMARY, say
from advisor.report import lacking, numbers
from advisor.report.clean import one_line
from advisor.vocabulary.words import (
    about,
    certainty,
    estimate,
    lower_first,
    named_ranks,
    span,
    unit_words,
)

SHOWN = 5
"""Findings of a first view: the page's first screen, the terminal, the table of Markdown."""
_ABOUT_FINDINGS = {VerdictKind.SURE, VerdictKind.PROBABLE, VerdictKind.UNKNOWN_COST}
_MOST_LEFT_OUT = 5
_WORD = re.compile(r"\w+")
# Kineto writes times to the nanosecond, but of microsecond clocks.
_LEAST_SHOWN_NS = 1_000


def outcome_counts(report: FindingsReport) -> dict[OutcomeKind, int]:
    """How many rules ended in each way, over all runs."""
    found = Counter(outcome.outcome for outcome in report.outcomes)
    return {kind: found.get(kind, 0) for kind in OutcomeKind}


def explained(report: FindingsReport) -> dict[tuple[str, str], list[Finding]]:
    """(run, rule) of each rule that fired, but has its finding merged into those of its cause."""
    own = {(finding.run, finding.rule) for finding in report.findings}
    fired = [(o.run, o.rule) for o in report.outcomes if o.outcome is OutcomeKind.FIRED]
    return {
        (run, rule): [
            finding
            for finding in report.findings
            if finding.run == run and any(effect.rule == rule for effect in finding.merged)
        ]
        for run, rule in fired
        if (run, rule) not in own
    }


def rules_line(report: FindingsReport, why_not: str = "", run: str | None = None) -> str:
    """How the checks ended: findings, rules that passed, and those that lack evidence.

    ``why_not`` stands beside those that need more data. What the job itself has nothing of is
    neither: no recording would change that.
    """
    if run is not None:
        own = [outcome for outcome in report.outcomes if outcome.run == run]
        findings = [item for item in report.findings if item.run == run]
        report = report.model_copy(update={"outcomes": own, "findings": findings})
    counts = outcome_counts(report)
    values = {
        "findings": len(report.findings),
        "passed": counts[OutcomeKind.PASSED],
        "lacking": len(lacking.lacking_evidence(report)),
        "most_lacked": lacking.most_lacked(report),
        "failed": counts[OutcomeKind.ERROR],
        "why_not": why_not,
    }
    return say(SUMMARY, "checks", values)


def caveats(report: FindingsReport) -> list[str]:
    """What must be known of the steps of each run, as sentences; runs are named where several."""
    several = len(report.runs) > 1
    return [
        f"{run.run}: {text}." if several else f"{text[:1].upper()}{text[1:]}."
        for run in report.runs
        for text in (note.text for note in run.caveats)
    ]


def left_out(report: FindingsReport) -> list[str]:
    """The files that should be in a recording and are in none, and why."""
    left_out = [
        f"{note.text[:1].upper()}{note.text[1:]}"
        for run in report.runs
        for note in run.notes
        if note.code == "file-not-read"
    ]
    more = len(left_out) - _MOST_LEFT_OUT
    return left_out[:_MOST_LEFT_OUT] + [say(SUMMARY, "more-files", {"more": more})] * (more > 0)


def unit(report: FindingsReport) -> dict[str, str]:
    """What texts say of a step (vocabulary.words) where all runs are of one kind."""
    whole = bool(report.runs) and all(run.step_source == "whole-trace" for run in report.runs)
    return unit_words(whole)


def per(report: FindingsReport) -> str:
    """What times of findings are: 'per step', or 'in all' of whole traces."""
    return unit(report)["per_step"]


def of_verdict(report: FindingsReport) -> Finding | None:
    """The finding that the verdict is about."""
    about = report.verdict.finding
    return next((item for item in report.findings if about and item.id == about), None)


def numbered(report: FindingsReport) -> list[tuple[int, Finding]]:
    """The findings with their numbers; the verdict's own is among the first :data:`SHOWN`."""
    found = [*enumerate(report.findings, 1)]
    late = next((it for it in found[SHOWN:] if it[1].id == report.verdict.finding), None)
    if late is not None:
        found.remove(late)
        found.insert(SHOWN - 1, late)
    return found


def state(report: FindingsReport) -> str:
    """How bad and how sure the verdict is, and where: 'Critical · 97 % sure'; beside its title.

    The location stands there where the title does not name it.
    """
    verdict = report.verdict
    optional = bool(verdict.next_steps)
    if verdict.cause in STATES:
        return say(STATES, verdict.cause, {"optional": optional})
    found = of_verdict(report)
    sure = found.probability if found is not None else None
    values = verdict.values | {
        "probability": sure,
        "perhaps_one": found is not None
        and any(found.evidence.facts.get(known) for known in ("few_calls", "mostly")),
        "possible": verdict.values.get("possible"),
        "seen": verdict.values.get("host_explains", False),
        "explained": verdict.values.get("explained", False),
        "optional": optional,
        "source": source(report, verdict.run),
    }
    words = say(STATES, verdict.kind.value, values)
    if verdict.kind not in _ABOUT_FINDINGS and verdict.kind is not VerdictKind.LOSSY:
        return words
    grade = verdict.severity.value.capitalize()
    if verdict.severity is Severity.INFO and found is not None:
        grade = say(STATES, "info", {"cost": _cost(found)})
    where = place_beside(found, verdict.title) if found is not None else ""
    return " · ".join(filter(None, (grade, lower_first(words), where)))


def source(report: FindingsReport, run: str) -> str:
    """What a run (''  is the only one) was read from: 'recording', or 'dumps or logs'."""
    traced = any(item.events_read for item in report.runs if run in ("", item.run))
    return say(SOURCES, "trace" if traced else "logs", {})


def _cost(finding: Finding | None) -> str:
    """Why what is sure is no warning: its cost is small, or not known well enough."""
    if finding is None or not finding.savings_share:
        return ""
    large = finding.savings_share >= WARNING_SHARE
    return "uncertain" if large or finding.is_of_unknown_cost() else "small"


def sure(finding: Finding) -> str:
    """The probability that the cause is real, '97 %', or 'maybe' of an option; '' where a log or
    dump states it."""
    if finding.basis is Basis.OPTION:
        return say(STATES, "option", {})
    return "" if finding.probability is None else certainty(finding.probability)


def cause(finding: Finding, report: FindingsReport) -> str:
    """What is wrong, with the run that it is in where there are several."""
    run = run_of(finding, report)
    return f"{run}: {title(finding)}" if run else title(finding)


def title(finding: Finding) -> str:
    """What is wrong, and whether it is only probable, as a verdict on it says."""
    return say(SUMMARY, "cause", {"probable": finding.is_probable(), "title": finding.title})


def words(finding: Finding) -> str:
    """What the finding rests on, as every view says it: its reasons, else its message."""
    return " ".join(finding.because) or finding.message


def details(finding: Finding) -> str:
    """What its message adds to :func:`words`, for who looks at the evidence."""
    said = finding.message
    for text in finding.because or [said]:
        said = said.replace(text, "")
    return " ".join(said.split())


def per_step(finding: Finding) -> str:
    """The recoverable time per step with its interval; a dash where that is nothing or not known.

    'up to 12 ms' where the interval reaches down to nothing; no more than the interval where the
    cost is not known.
    """
    if finding.savings_ns is None or is_nothing(finding):
        return "–"
    if (most := finding.at_most_ns()) is not None:
        return f"up to {about(most)}"
    gain_ns, low_ns, high_ns = finding.savings_ns, finding.savings_low_ns, finding.savings_high_ns
    part = finding.savings_share
    step_ns = round(gain_ns / part) if gain_ns and part else math.inf
    if finding.is_of_unknown_cost():
        return span(low_ns or 0, high_ns or 0, step_ns)
    return estimate(gain_ns, low_ns, high_ns, step_ns)


def is_nothing(finding: Finding) -> bool:
    """Whether even the high end of a known gain is below all that a clock shows."""
    return finding.savings_ns is not None and finding.most_ns() < _LEAST_SHOWN_NS


def share(finding: Finding) -> str:
    """The share of the step that :func:`per_step` is, '' where it is not known or nothing."""
    fraction, most = finding.savings_share, finding.at_most_ns()
    if fraction is None or is_nothing(finding):
        return ""
    if most is None and finding.is_of_unknown_cost():
        return ""
    if most is None:
        return numbers.share(fraction)
    gain = finding.savings_ns
    return f"up to {numbers.share(fraction * most / gain)}" if gain else ""


def gain(finding: Finding, per: str = "per step") -> str:
    """The recoverable time in words that also fit when there is no estimate."""
    if finding.savings_ns is None:
        return say(SUMMARY, "no-estimate", {})
    if is_nothing(finding):
        return say(SUMMARY, "gives-nothing", {})
    return f"{per_step(finding)} {per}"


def confidence(finding: Finding) -> str:
    """How sure the cause is and how its gain was found out; '' where no gain is claimed."""
    if finding.savings_ns is None:
        return ""
    how = CONFIDENCES[finding.confidence.value]
    if finding.probability is None:
        return how
    return say(SUMMARY, "confidence", {"probability": finding.probability, "how": how})


def place(finding: Finding) -> str:
    """Where a finding is, in a few words."""
    if finding.where:
        return finding.where
    if finding.links:
        return ", ".join(finding.links)
    if finding.hosts:
        return "host " + ", ".join(finding.hosts)
    if finding.ranks:
        return named_ranks(finding.ranks)
    return ""


def place_beside(finding: Finding, title: str) -> str:
    """:func:`place`, or '' where ``title`` names all of it."""
    where = one_line(place(finding))
    said = _named(title)
    return "" if said.issuperset(_named(where)) else where


def _named(text: str) -> set[str]:
    """The words of a location: 'ranks 4 and 5' are rank 4 and rank 5."""
    words = set(_WORD.findall(text.lower())) - {"to", "and"}
    return words - {"ranks"} | {"rank"} if "ranks" in words else words


def run_of(finding: Finding, report: FindingsReport) -> str:
    """Whose a finding is, for ranks and steps of several runs have the same names; '' of one."""
    return finding.run if len(report.runs) > 1 else ""
