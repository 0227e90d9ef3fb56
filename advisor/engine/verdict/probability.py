"""The probability that a finding's cause is real, from how often such findings were right.

The labs inject a known fault and count what is named: calibration.json holds, by rule, how often
it was named at warning or above and how often rightly (``python -m benchmarks.reliability``). A
rule's rate is drawn towards what is assumed of a rule that no lab has tried, by ``WEIGHT`` cases.
A row may know better: a column ``probability`` of the rule's SQL comes first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from advisor.engine.facts import Facts
from advisor.engine.rule import Rule

WEIGHT = 4
"""Cases that the assumption counts for: a rule with three of three right just passes 0.9."""
READ = 0.95
"""A setting or fault that a log or dump states: its reading is exact, its matter may be wanted."""
UNTRIED = 0.85
"""A rule's finding whose least cost stands out of the noise."""
NOISY = 0.7
"""One whose least cost does not, or whose cause was counted on most of the ranks: it is real more
often than not."""
OPEN = 0.4
"""One that may cost nothing: an option to try."""


def probability_of(rule: Rule, row: Mapping[str, Any], facts: Facts, floor_ns: int) -> float:
    """Between 0 and 1; ``floor_ns`` is the least cost that this rule's evidence can show."""
    if row.get("probability") is not None:
        return float(row["probability"])
    cost, low = row.get("savings_ns"), row.get("savings_low_ns")
    if cost is None:
        return READ
    if low is not None and low <= 0:
        return NOISY if row.get("is_counted") else OPEN
    if facts.step_ns and low is not None and low <= floor_ns:
        return NOISY
    said, right = _lab().get(rule.id, (0, 0))
    return (right + WEIGHT * UNTRIED) / (said + WEIGHT)


@cache
def _lab() -> dict[str, tuple[int, int]]:
    text = resources.files("advisor.engine.verdict").joinpath("calibration.json").read_text("utf-8")
    found: dict[str, dict[str, int]] = json.loads(text)["rules"]
    return {rule: (count["said"], count["right"]) for rule, count in found.items()}
