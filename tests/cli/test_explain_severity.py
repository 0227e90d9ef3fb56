"""`advisor explain` says by what a rule's severity is judged."""

from __future__ import annotations

import pytest

from advisor.cli.explain import explain_rule
from advisor.engine import load_catalogue

_RULES = {rule.id: rule for rule in load_catalogue()[0]}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("straggler-rank", "info where the low end of its interval is within noise"),
        ("idle-with-queued-work", "at most warning"),
        ("slow-ring-link", "its query may set another"),
        ("desync", "severity critical"),
    ],
)
def test_severity_is_told_as_it_is_judged(name: str, said: str) -> None:
    text = explain_rule(_RULES[name])
    assert said in " ".join(text.split())
    # Code is as it is typed, deeper than words.
    prose = [line for line in text.splitlines() if not line.startswith(" " * 6)]
    assert max(map(len, prose)) <= 80
