"""Facts, then the table, then the words: the one way to a verdict."""

from collections.abc import Sequence

from advisor.engine.facts import Facts
from advisor.engine.notes import note
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.facts import read_situation
from advisor.engine.verdict.table import decide
from advisor.engine.verdict.words import in_words
from advisor.findings import Finding, Note, Verdict

# Verdicts that speak of the clocks themselves.
_OF_CLOCKS = ("clocks", "never-met")


def verdict_of(
    findings: Sequence[Finding], sandbox: Sandbox, facts: Facts, notes: Sequence[Note]
) -> tuple[Verdict, list[Note]]:
    """What the run's reader sees first, and what it leaves open.

    ``findings`` are causes, ranked; ``notes`` are of inputs.
    """
    situation = read_situation(findings, sandbox, facts, notes)
    decision = decide(situation)
    open_ = []
    if (clocks := situation.clocks) is not None and decision.reason not in _OF_CLOCKS:
        hidden = {name: getattr(clocks, name) for name in ("differ_ns", "apart_ns", "exposed_ns")}
        open_.append(note("link-may-hide", **hidden, per_step=facts.words()["per_step"]))
    return in_words(decision, situation, sandbox), open_
