"""What one run has and another lacks: the finding behind most of the difference of their steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.findings import Basis, Finding
from advisor.metrics.compare.changes import MOST_OF

# What may give nothing, and time that is lost with nobody behind it, are no causes.
_NO_CAUSE = frozenset({Basis.OPTION, Basis.LOSS})
_OF_BOTH = 0.5
"""Of the difference: what both runs have, in one of them more, is not why where it is less."""


@dataclass(frozen=True)
class NewFinding:
    """A cause that costs ``more_ns`` per step more in its run than in the other.

    ``is_new``: the other run does not have it at all.
    """

    finding: Finding
    more_ns: float
    is_new: bool


def new_finding(
    findings: Sequence[Finding], faster: str, slower: str, difference_ns: float
) -> NewFinding | None:
    """The cause in ``slower`` that ``faster`` lacks, or has less of; None where none is the why.

    It must cost much of the difference of the two steps; of several the one expected to cost most.
    """
    before = {_cause(item): item.savings_ns or 0 for item in findings if item.run == faster}
    found = []
    for item in findings:
        if item.run != slower or item.savings_ns is None or item.basis in _NO_CAUSE:
            continue
        is_new = _cause(item) not in before
        more_ns = item.savings_ns - before.get(_cause(item), 0)
        if more_ns >= (MOST_OF if is_new else _OF_BOTH) * difference_ns > 0:
            found.append(NewFinding(item, more_ns, is_new))
    return max(found, key=_expected_ns, default=None)


def _expected_ns(found: NewFinding) -> float:
    probability = found.finding.probability
    return found.more_ns * (1.0 if probability is None else probability)


def _cause(item: Finding) -> tuple[str, tuple[int, ...], tuple[str, ...], str | None]:
    return item.rule, tuple(item.ranks), tuple(item.links), item.process_group
