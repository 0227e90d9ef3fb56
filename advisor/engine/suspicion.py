"""What a verdict says where a gain is suspected, but the recording cannot show it.

A finding of severity info whose low end is worth having, but lies in the noise, is neither a cause
nor nothing: one sentence says what it may give, why that is not sure, and which recording would
tell. One whose interval reaches down to nothing is an option to try, in a healthy run as well.
Ranks that wait for one another, and for none in particular, do so on any busy machine: no setting
of the communication ends it, and a verdict states it beside what the communication gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.engine.facts import Facts
from advisor.engine.probe_words import denied, is_denied
from advisor.engine.recording import more_steps
from advisor.engine.sandbox import Sandbox
from advisor.findings import Finding, Severity, Verdict
from advisor.vocabulary.words import duration, lower_first, percent

# Less than a percent of the step is not worth anybody's afternoon.
WORTH_A_TRY = 0.01
# Of the waits in too few calls for a test, one rank may cause this share and not be suspected.
_NOBODYS = 2 / 3
# Beyond this a longer recording is no answer; a quieter machine is.
_MOST_STEPS = 100


def suspected(
    findings: Sequence[Finding], sandbox: Sandbox, facts: Facts, numbers: str
) -> Verdict | None:
    """The verdict for the first gain that is not sure; None where no finding has a gain to try.

    ``findings`` are in the report's order, in which the surer of two comes first; ``numbers`` says
    in words where the step's time goes.
    """
    worth = _worth_a_try(findings, facts)
    likely = [item for item in worth if _surely_something(item, facts)]
    if not likely or not facts.step_ns:
        return None
    first = likely[0]
    if is_denied(first):
        return denied(first, facts, numbers)
    worth = [first, *(item for item in worth if item is not first)]
    gain = first.savings_ns or 0
    noise = facts.noise_ns or 0
    steps = None
    if gain <= noise:
        # The noise floor is a standard error: it falls with the root of the number of steps.
        steps = 10 * math.ceil(facts.steps * (noise / gain) ** 2 / 10)
        enough = steps <= _MOST_STEPS
        doubt = f"recordings like this differ by {duration(noise)}"
        tells = f"about {steps} steps" if enough else "a quieter machine"
        more = more_steps(sandbox, steps if enough else None, quiet=True)
    else:
        doubt = f"the estimate reaches down to {duration(first.savings_low_ns or 0)}"
        tells = "a recording with the change"
        more = ""
    lead = lower_first(first.title.rstrip("."))
    tries = [
        f"{'or try' if more else 'try'}, for about {duration(item.savings_ns or 0)} per step: "
        f"{item.fix[0]}"
        for item in worth
        if item.fix
    ][:2]
    return Verdict(
        title=f"Suspected, not sure: {lead}, for perhaps {duration(gain)} of every "
        f"{duration(facts.step_ns)} step; {doubt}, and {tells} would tell.",
        cause="unknown",
        savings_ns=None,
        why=numbers,
        next_steps=[
            *([more] if more else []),
            *tries,
            # A longer recording comes first where one would tell; there is nothing to prove yet.
            *([f"prove it: {first.verify}"] if first.verify and not more else []),
        ],
    )


def options(findings: Sequence[Finding], facts: Facts) -> tuple[int, list[str]]:
    """What may be tried although it may give nothing: the most it gives, ns, and how, if any."""
    worth = _worth_a_try(findings, facts)
    most = max((item.savings_high_ns or item.savings_ns or 0 for item in worth), default=0)
    how = [
        f"to try, for up to {duration(item.savings_high_ns or item.savings_ns or 0)} per step and "
        f"perhaps hardly any: {item.fix[0]}"
        for item in worth
        if item.fix
    ]
    return most, how[:2]


def waits_for_nobody(findings: Sequence[Finding]) -> Finding | None:
    """Ranks' waits for one another that no rank is behind and that may be chance; None without.

    In calls too few for a test of the ranks, only where none causes most of them: there a late
    rank is as likely.
    """
    for item in findings:
        if item.rule == "jitter" and item.severity is Severity.INFO:
            told = item.evidence.facts
            if not told.get("few_calls") or float(told.get("of_one") or 1.0) <= _NOBODYS:
                return item
    return None


def in_words(waits: Finding, facts: Facts) -> str:
    """The waits as a clause of the verdict's title, with their length per step."""
    told = waits.evidence.facts
    who = "with no rank to blame"
    if told.get("few_calls"):
        who = f"no rank behind more than {percent(float(told['of_one']))} of it"
    return (
        f"ranks wait {duration(waits.savings_ns or 0)} of every {duration(facts.step_ns or 0)} "
        f"step for one another, {who}, as on a busy machine"
    )


def _worth_a_try(findings: Sequence[Finding], facts: Facts) -> list[Finding]:
    least = WORTH_A_TRY * (facts.step_ns or 0)
    return [item for item in findings if item.savings_ns and item.savings_ns >= least]


def _surely_something(item: Finding, facts: Facts) -> bool:
    """Whether even the low end is worth having: below that a finding is no ground for suspicion."""
    return (item.savings_low_ns or 0) >= WORTH_A_TRY * (facts.step_ns or 0)
