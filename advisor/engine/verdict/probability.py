"""The probability that a finding's cause is real, from how often such findings were right.

The labs inject known faults, and calibration.json counts what was named and what of it rightly
(``python -m benchmarks.reliability --write``): by rule, of rules when no lab had tried them yet,
and of findings whose least cost shows little or nothing. A rule's rate is drawn towards that of
untried ones by as many cases as the rules' rates differ. A row may know better (``probability``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from advisor.engine.facts import Facts
from advisor.engine.rule import Rule
from advisor.findings import Basis


@dataclass(frozen=True)
class Calibration:
    """Counts of calibration.json as (said, right); ``weight`` in cases."""

    weight: float
    bases: Mapping[Basis, tuple[int, int]]
    rules: Mapping[str, tuple[int, int]]

    def rate(self, basis: Basis, rule: str) -> float | None:
        """How often findings of this basis are right; None where a log or dump states them."""
        if basis is Basis.RECORDED:
            return None
        if basis is not Basis.RULE:
            # Jeffreys' prior: half a case for each.
            said, right = self.bases[basis]
            return (right + 0.5) / (said + 1)
        said, right = self.rules[rule]
        untried = self.rate(Basis.UNTRIED, rule) or 0.0
        return (right + self.weight * untried) / (said + self.weight)


def judged(
    rule: Rule, row: Mapping[str, Any], facts: Facts, floor_ns: int
) -> tuple[Basis, float | None]:
    """What is known of the cause being real, and the probability that it is, 0 to 1.

    ``floor_ns`` is the least cost that this rule's evidence can show.
    """
    if row.get("probability") is not None:
        return Basis.EVIDENCE, float(row["probability"])
    known = calibration()
    basis = Basis(row["basis"]) if row.get("basis") else _basis(rule, row, facts, floor_ns)
    return basis, known.rate(basis, rule.id)


def _basis(rule: Rule, row: Mapping[str, Any], facts: Facts, floor_ns: int) -> Basis:
    low = row.get("savings_low_ns")
    if row.get("savings_ns") is None:
        return Basis.RECORDED
    if low is not None and low <= 0 and not row.get("is_counted"):
        return Basis.OPEN
    if low is not None and (low <= 0 or (facts.step_ns and low <= floor_ns)):
        return Basis.NOISY
    return Basis.RULE if rule.id in calibration().rules else Basis.UNTRIED


@cache
def calibration() -> Calibration:
    """What the labs counted."""
    text = resources.files("advisor.engine.verdict").joinpath("calibration.json").read_text("utf-8")
    found = json.loads(text)
    return Calibration(
        weight=found["weight"],
        bases={Basis(name): (n["said"], n["right"]) for name, n in found["bases"].items()},
        rules={name: (n["said"], n["right"]) for name, n in found["rules"].items()},
    )
