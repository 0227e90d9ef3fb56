"""How often what a rule says was right in the labs; ``benchmarks.reliability --write`` counts."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple


class Calibration(NamedTuple):
    """Counts of calibration.json as (said, right); ``weight`` in cases."""

    weight: float
    untried: tuple[int, int]
    rules: Mapping[str, tuple[int, int]]

    def rate(self, rule: str) -> float:
        """How often findings of this rule are right."""
        said, right = self.untried
        untried = (right + 0.5) / (said + 1)  # Jeffreys' prior
        said, right = self.rules.get(rule, (0, 0))
        return (right + self.weight * untried) / (said + self.weight)


@cache
def calibration() -> Calibration:
    """What the labs counted."""
    text = resources.files("advisor.engine.verdict").joinpath("calibration.json").read_text("utf-8")
    found = json.loads(text)
    return Calibration(
        weight=found["weight"],
        untried=(found["untried"]["said"], found["untried"]["right"]),
        rules={name: (n["said"], n["right"]) for name, n in found["rules"].items()},
    )
