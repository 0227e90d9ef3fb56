"""What a rule's candidates leave out, its SQL does not find either."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import api
from advisor.engine.catalogue import load_catalogue
from advisor.engine.sandbox import Sandbox
from tests.support.marks import long

FIXTURES = Path(__file__).parents[2] / "fixtures"
RULES = [rule for rule in load_catalogue()[0] if rule.candidates]


@pytest.mark.slow
@pytest.mark.parametrize(
    "recording",
    ["gpt2-tiny-ddp-2-slow-rank", "lab-ddp-unused-parameter-scan", "lab-zero1-pauses"],
)
@pytest.mark.parametrize("ease", [1.0, *long(0.01)])
def test_nothing_is_found_where_there_is_no_candidate(recording: str, ease: float) -> None:
    left_out = 0
    with api.load(FIXTURES / recording) as run, Sandbox(run.store, "run") as sandbox:
        for rule in RULES:
            assert rule.candidates is not None
            # Lower limits let more through, in the candidates and in the SQL alike.
            values = {
                name: param.default * ease
                if name.startswith("min_") and isinstance(param.default, float)
                else param.default
                for name, param in rule.params.items()
            }
            few = rule.candidates
            if not sandbox.holds(few.table, few.where, values):
                left_out += 1
                assert sandbox.records(rule.sql, values) == [], rule.id
    assert left_out
