"""No rule promises the impossible: its interval is ordered, holds its value and fits in the step.

Looked at are the rows of a rule's SQL, before the engine bounds them, on the rule's own examples
with all their times stretched and its sizes scaled by chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.config.paths import shipped
from advisor.engine import Sandbox, load_rule, rule_files
from advisor.engine.examples import fill
from advisor.engine.facts import Facts, read_facts
from advisor.engine.rule import Example, Rule
from tests.support.marks import thinned

FILES = [path for path in rule_files(shipped("rules")) if "savings_low_ns" in load_rule(path).sql]
VARIANTS = 1
ROUNDING_NS = 2


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(None, "example") as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("path", thinned(FILES, 6), ids=[path.stem for path in FILES])
def test_rows_promise_nothing_impossible(path: Path, sandbox: Sandbox) -> None:
    rule = load_rule(path)
    chance = random.Random(path.stem)  # the same numbers in every run
    seen = 0
    for example in rule.examples:
        if example.expect != "fired":
            continue
        for factor in (1.0, *(chance.uniform(0.2, 3.0) for _ in range(VARIANTS))):
            fill(sandbox, scaled(example, factor))
            facts = read_facts(sandbox)
            values = {name: param.default for name, param in rule.params.items()}
            for row in sandbox.records(rule.sql, values):
                check(row, facts, rule)
                seen += 1
    assert seen


def scaled(example: Example, factor: float) -> Example:
    """The example with other message sizes: what fits and replays say of them stays."""
    tables = {
        table: [{name: resized(name, value, factor) for name, value in row.items()} for row in rows]
        for table, rows in example.tables.items()
    }
    return example.model_copy(update={"tables": tables})


def resized(name: str, value: Any, factor: float) -> Any:
    if name in ("bytes", "largest_bytes", "n_star_bytes") and isinstance(value, int):
        return max(1, round(value * factor))
    return value


def check(row: dict[str, Any], facts: Facts, rule: Rule) -> None:
    value, low, high = (row.get(f"savings{name}_ns") for name in ("", "_low", "_high"))
    if value is None:
        return
    assert low is None or low <= value + ROUNDING_NS, (rule.id, row)
    assert high is None or value <= high + ROUNDING_NS, (rule.id, row)
    # What comes in some steps only is paid by the mean step, which the rule then names.
    most_ns = row.get("of_step_ns") or facts.step_ns
    assert most_ns is None or value <= most_ns, (rule.id, row)
