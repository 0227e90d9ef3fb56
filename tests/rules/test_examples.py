"""What every shipped rule refers to is there, and its file can be read.

That it does what the examples inside its file say is checked by ``advisor rules --test`` (make
check).
"""

from __future__ import annotations

from advisor.config.paths import shipped
from advisor.engine import load_rule, recipes, rule_files


def test_references_exist() -> None:
    rules = [load_rule(path) for path in rule_files(shipped("rules"))]
    seen = {(rule.id, name) for rule in rules for name in rule.see}
    needed = {(rule.id, need.capture) for rule in rules for need in rule.needs if need.capture}
    known = {rule.id for rule in rules}.union(recipes())
    assert not [reference for reference in seen if reference[1] not in known]
    assert not [reference for reference in needed if reference[1] not in recipes()]
