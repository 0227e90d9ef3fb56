"""What a finding about the job's code says of a machine that may be slow instead.

A recording cannot tell a smaller machine from a slow one, so that such findings are options without
a probability. To measure the machine takes minutes, to write code anew takes days.
"""

from collections.abc import Sequence

from advisor.engine.claims import COVERED, Ledger, covered
from advisor.findings import Finding
from advisor.messages import STEPS, say

_MACHINE = "fabric"
"""The category of rules about the machine."""


def said_of_machine(
    own: tuple[Finding, Ledger], every: Sequence[tuple[Finding, Ledger]]
) -> dict[str, object]:
    """The evidence and the fixes of ``own`` beside the worst finding that a slow machine may
    explain its time as well; nothing where its own fixes measure that already."""
    finding, ledger = own
    if finding.category == _MACHINE or finding.is_option() or not finding.fix:
        return {}
    own_fixes = "\n".join(finding.fix)
    for option, theirs in every:
        if (
            option.category == _MACHINE
            and option.run == finding.run
            and option.is_option()
            and option.savings_ns
            and option.fix
            and option.fix[0].splitlines()[-1] not in own_fixes
            and covered(ledger, [theirs]) >= COVERED
        ):
            says = say(STEPS, "of-machine", {"title": option.title.rstrip(".")})
            check = say(STEPS, "rule-out", {"fix": option.fix[0]})
            return {
                "because": [*finding.because[:1], says],
                "fix": [finding.fix[0], check, *finding.fix[1:]],
            }
    return {}
