"""Words about steps where the whole trace was taken as one."""

from __future__ import annotations

import re

from advisor.engine.notes import WHOLE_TRACE
from advisor.findings import Finding, RunSummary, Verdict

_OF_TRACE = (
    (re.compile(r"\bA step takes\b"), "The trace takes"),
    (re.compile(r"\b[Ee]very (\d[\d.,]*\s\S+) step\b"), r"the \1 trace"),
    (re.compile(r"\bof every (\d)"), r"of \1"),
    (re.compile(r"\bEach step\b"), "The trace"),
    (re.compile(r"\b(?:every|each|the|a) step\b"), "the trace"),
    (re.compile(r"\bper step\b"), "in the trace"),
    (re.compile(r" \(1 step\)"), ""),
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
