"""What every shipped rule refers to is there, and its file can be read.

That it does what the examples inside its file say is checked by ``advisor rules --test`` (make
check).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import load_rule, recipes, rule_files

FILES = rule_files(shipped("rules"))
by_file = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


@by_file
def test_references_exist(path: Path) -> None:
    rule = load_rule(path)
    known = {file.stem for file in FILES}
    assert set(rule.see) <= known | set(recipes())
    assert {need.capture for need in rule.needs if need.capture} <= set(recipes())
