"""Words for a run without steps: its whole trace was taken as one, so nothing is "per step"."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

from advisor.report.charts.scene import DataTable, Text
from advisor.report.sections.section import Section

WHOLE_TRACE = "whole-trace"
"""Of ``RunSummary.step_source``: no steps are marked."""

_WORDS = (
    (re.compile(r"^Where does the step go\?"), "Where does the time go?"),
    (re.compile(r"^What a step sends$"), "What is sent"),
    (re.compile(r" \(mean of 1 used step\)"), ""),
    (re.compile(r" \(times are per step too\)"), ""),
    (re.compile(r", unless they say per step"), ""),
    (re.compile(r"^per step$"), "in the trace"),
    (re.compile(r"\b(ms|calls),? per step\b"), r"\1"),
    (re.compile(r", per step\b"), ""),
    (re.compile(r"\bper step\b"), "in the trace"),
    (re.compile(r"\bA step takes\b"), "The trace takes"),
    (re.compile(r"\bthese steps\b"), "this trace"),
    (re.compile(r"\b(?:the|a) step\b"), "the trace"),
    (re.compile(r"\brank's step\b"), "rank's trace"),
)


def of_trace(section: Section) -> Section:
    """``section`` with every title, note, head and axis about the trace; names and numbers stay."""
    return replace(section, title=_reworded(section.title), data=_walk(section.data))


def _reworded(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return _reworded(value)
    if isinstance(value, dict):
        return {key: _walk(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_walk(item) for item in value])
    if isinstance(value, DataTable):
        # Cells may hold names from a trace.
        return replace(value, columns=_walk(value.columns), note=_walk(value.note))
    if isinstance(value, Text):
        return replace(value, text=_walk(value.text)) if value.kind == "axis-title" else value
    if is_dataclass(value) and not isinstance(value, type):
        known = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{n: _walk(v) for n, v in known.items() if not isinstance(v, str)},
                       **{n: _walk(known[n]) for n in _SPOKEN if n in known})  # fmt: skip
    return value


# Fields of figures, scenes and findings that speak to the reader; others are ids, kinds and names.
_SPOKEN = ("title", "description", "note", "amount")
