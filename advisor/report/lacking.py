"""What was not recorded: which rules it keeps from looking, and how to record it."""

from collections import Counter

from advisor.findings import FindingsReport, OutcomeKind

_MOST = 2
_LONGEST = 36  # characters of two kinds of evidence: of longer ones the first alone


def lacking_evidence(report: FindingsReport) -> set[str]:
    """The rules that could not look."""
    return {name for _, _, names in missing_evidence(report) for name in names}


def most_lacked(report: FindingsReport) -> list[str]:
    """The one or two kinds of evidence that most rules lack, in a few words each."""
    lacking: Counter[str] = Counter()
    for lacks, _rule in {
        (outcome.lacks, outcome.rule)
        for outcome in report.outcomes
        if outcome.outcome is OutcomeKind.NOT_APPLICABLE and not outcome.not_in_the_job
    }:
        lacking[lacks] += bool(lacks)
    most, *others = [*sorted(+lacking, key=lambda lacks: (-lacking[lacks], lacks)), ""][:_MOST]
    short = [name for name in others if name and len(most + name) <= _LONGEST]
    return [name for name in (most, *short) if name]


def missing_evidence(report: FindingsReport) -> list[tuple[str, str, list[str]]]:
    """What was not there and how to capture it: (reason, how, rules), most rules first.

    Without what the job itself has nothing of: no recording would change that.
    """
    rules: dict[tuple[str, str], list[str]] = {}
    for outcome in report.outcomes:
        if outcome.outcome is OutcomeKind.NOT_APPLICABLE and not outcome.not_in_the_job:
            names = rules.setdefault((outcome.reason, outcome.how_to_capture), [])
            if outcome.rule not in names:
                names.append(outcome.rule)
    ordered = sorted(rules.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(reason, how, names) for (reason, how), names in ordered]
