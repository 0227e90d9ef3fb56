"""Every shipped rule does what the examples inside its file say."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import check_examples, load_rule, recipes, rule_files

FILES = rule_files(shipped("rules"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_examples(path: Path) -> None:
    problems = [result for result in check_examples(load_rule(path)) if result.problem]
    assert not problems


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_references_exist(path: Path) -> None:
    rule = load_rule(path)
    known = {file.stem for file in FILES}
    assert set(rule.see) <= known | set(recipes())
    assert {claim.rule for claim in rule.explains} <= known
    assert {need.capture for need in rule.needs if need.capture} <= set(recipes())
