"""What a verdict says where a probe and the recording disagree about which place is slow."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.engine.facts import Facts
from advisor.engine.notes import note
from advisor.findings import Finding, Note, Verdict
from advisor.vocabulary.words import duration, lower_first

_RULE = "slow-ring-link"
# The finding's fact ``probe``: the place is as fast as the others in it; only the probe has it.
_DENIES, _NAMES = "denies", "names"


def is_denied(finding: Finding) -> bool:
    """Whether a probe finds the place of this finding as fast as the others."""
    return finding.rule == _RULE and finding.evidence.facts.get("probe") == _DENIES


def denied(finding: Finding, facts: Facts, numbers: str) -> Verdict:
    """The verdict on a place that was slow in the recording and is not in a probe.

    ``numbers`` says in words where the step's time goes.
    """
    other = finding.evidence.facts.get("probe_names")
    slow = f"; it finds slow instead: {other}" if other else ""
    return Verdict(
        title=f"Suspected, not sure: {lower_first(finding.title.rstrip('.'))}{slow}. In the "
        f"recording it costs perhaps {duration(finding.savings_ns or 0)} of every "
        f"{duration(facts.step_ns or 0)} step.",
        cause="unknown",
        savings_ns=None,
        why="The two were measured at different times: the place was slow only while this was "
        f"recorded, or the probe took another path than the job. {numbers}",
        next_steps=[
            *finding.fix[:1],
            *([f"check what the probe finds slow: {other}"] if other else []),
            *([f"prove it: {finding.verify}"] if finding.verify else []),
        ],
    )


def probe_caveats(findings: Sequence[Finding], verdict: Verdict) -> list[Note]:
    """What a probe says against the recording and the verdict does
    not. ``findings`` are all of a run's, also those that count as effects of others."""
    own = [item for item in findings if item.rule == _RULE]
    against = [item for item in own if item.evidence.facts.get("probe") in (_DENIES, _NAMES)]
    said = verdict.title.lower()
    return [
        note("probe", words=item.title.rstrip("."))
        for item in against
        if lower_first(item.title.rstrip(".")).lower() not in said and not _named_in(item, said)
    ]


def _named_in(item: Finding, said: str) -> bool:
    """Whether a place that only the probe finds slow stands in the verdict already."""
    place = item.evidence.facts.get("place_words")
    return bool(place) and str(place).lower() in said
