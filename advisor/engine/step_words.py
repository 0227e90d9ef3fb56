"""What is said of the steps beside a verdict: how they were told apart, what is in none."""

from __future__ import annotations

import re

from advisor.engine.facts import Facts, probe_notes
from advisor.engine.sandbox import Sandbox
from advisor.engine.text import duration, percent
from advisor.engine.unread import not_read
from advisor.findings import Finding, RunSummary, Verdict

WHOLE_TRACE = "whole-trace"
_SHARE = 0.01  # of a rank's communication: less in no step changes no figure
_OF_TRACE = (
    (re.compile(r"\bA step takes\b"), "The trace takes"),
    (re.compile(r"\b[Ee]very (\d[\d.,]*\s\S+) step\b"), r"the \1 trace"),
    (re.compile(r"\bof every (\d)"), r"of \1"),
    (re.compile(r"\bEach step\b"), "The trace"),
    (re.compile(r"\b(?:every|each|the|a) step\b"), "the trace"),
    (re.compile(r"\bper step\b"), "in the trace"),
    (re.compile(r" \(1 step\)"), ""),
)


def caveats(sandbox: Sandbox, facts: Facts, source: str) -> list[str]:
    """Sentences without a full stop: where steps come from, unless the profiler marked them, and
    how much communication is in none of them, which ranks are missing, and what a probe is not
    used for."""
    of_steps = (_source(facts, source), _outside(sandbox), _not_read(sandbox, facts))
    return [*(words for words in of_steps if words), *probe_notes(sandbox)]


def _not_read(sandbox: Sandbox, facts: Facts) -> str:
    """Which ranks of the job are missing: everything may wait for one of them."""
    missing = not_read(sandbox, facts)
    if not missing or not facts.steps:
        return ""
    one = facts.world_size == facts.ranks_read + 1
    read = f"{facts.ranks_read} of {facts.world_size} {'was' if facts.ranks_read == 1 else 'were'}"
    return (
        f"{missing} {'was' if one else 'were'} not read ({read}): waiting for "
        f"{'it' if one else 'them'} counts as communication"
    )


def _source(facts: Facts, source: str) -> str:
    if source == WHOLE_TRACE:
        return (
            "no step annotations: the whole trace is taken as one step; figures are per trace, "
            "those called per step too"
        )
    number = f"{facts.steps} of {duration(facts.step_ns)}" if facts.step_ns else "none complete"
    if source == "collective-period":
        return (
            f"no step annotations: a repeating pattern was taken as the step: {number}, "
            "may be a micro-batch"
        )
    if source == "optimizer-step":
        return (
            "no step annotations: from one optimizer step to the next was taken as the step: "
            f"{number}"
        )
    return ""


def _outside(sandbox: Sandbox) -> str:
    """Communication outside the windows of all steps, on the rank where it is most."""
    rows = sandbox.records(
        "SELECT r.rank, r.comm_ns AS all_ns, r.comm_ns - s.comm_ns AS outside_ns, "
        "(SELECT count(*) FROM collective c WHERE c.rank = r.rank) AS calls, "
        "(SELECT count(*) FROM collective c WHERE c.rank = r.rank AND c.step IS NULL) AS stray "
        "FROM run_breakdown r JOIN "
        "(SELECT rank, sum(comm_ns) AS comm_ns FROM step_breakdown GROUP BY rank) s USING (rank) "
        f"WHERE r.comm_ns - s.comm_ns > {_SHARE} * r.comm_ns ORDER BY outside_ns DESC, rank LIMIT 1"
    )
    if not rows:
        return ""
    (row,) = rows
    calls = f", {row['stray']} of {row['calls']} calls" if row["stray"] else ""
    return (
        f"{duration(row['outside_ns'])} of communication on rank {row['rank']} "
        f"({percent(row['outside_ns'] / row['all_ns'])} of it{calls}) belong to no step and are "
        "in no figure per step: launched outside all steps, or before the recording"
    )


def of_trace(text: str) -> str:
    """``text`` about a step, where the whole trace was taken as the step."""
    for pattern, words in _OF_TRACE:
        text = pattern.sub(words, text)
    return text


def word_for_trace(run: RunSummary, verdict: Verdict, findings: list[Finding]) -> Verdict:
    """The verdict, and in place the findings of ``run``, so that none speaks of every step where
    the whole trace was taken as one; unchanged where steps were told apart."""
    if run.step_source != WHOLE_TRACE:
        return verdict
    for item in findings:
        item.title, item.message = of_trace(item.title), of_trace(item.message)
        item.where, item.assumes = of_trace(item.where), of_trace(item.assumes)
    return verdict.model_copy(
        update={"title": of_trace(verdict.title), "why": of_trace(verdict.why)}
    )
