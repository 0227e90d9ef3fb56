"""A finding's own number in its own words: `advisor open {{ finding_number }} PATH`.

The number is the finding's place in the whole report, known only when all rules of all runs have
spoken. Until then a token with the finding's id stands for it.
"""

import re
from collections.abc import Mapping, Sequence

from advisor.findings import Finding, Verdict

_OPEN, _CLOSE = "\ue000", "\ue001"  # private use: in no text of a rule or trace
_TOKEN = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


def token(finding_id: str) -> str:
    """What a rule's ``{{ finding_number }}`` becomes until the findings are ranked."""
    return f"{_OPEN}{finding_id}{_CLOSE}"


def number_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The ranked findings of a report with their numbers, from 1, in their texts."""
    return [_numbered(finding, str(number)) for number, finding in enumerate(findings, 1)]


def number_verdict(verdict: Verdict, run: str, findings: Sequence[Finding]) -> Verdict:
    """``run``'s verdict with the numbers of the ``findings`` whose words it repeats."""
    numbers = {item.id: str(number) for number, item in enumerate(findings, 1) if item.run == run}
    return verdict.model_copy(
        update={
            "why": _filled(verdict.why, numbers),
            "next_steps": [_filled(text, numbers) for text in verdict.next_steps],
        }
    )


def _numbered(finding: Finding, number: str) -> Finding:
    texts = {
        "because": [_TOKEN.sub(number, text) for text in finding.because],
        "message": _TOKEN.sub(number, finding.message),
        "fix": [_TOKEN.sub(number, text) for text in finding.fix],
        "verify": _TOKEN.sub(number, finding.verify),
    }
    return finding.model_copy(update=texts)


def _filled(text: str, numbers: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda found: numbers.get(found[1], found[1]), text)
