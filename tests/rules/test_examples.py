"""Every shipped rule does what the examples inside its file say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import Sandbox, check_examples, load_rule, recipes, rule_files

FILES = rule_files(shipped("rules"))
by_file = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    # A machine that runs ten other things takes long over little: no limit is tested here.
    with Sandbox(None, "example", timeout_s=300) as made:
        yield made


@by_file
def test_examples(path: Path, sandbox: Sandbox) -> None:
    problems = [result for result in check_examples(load_rule(path), sandbox) if result.problem]
    assert not problems


@by_file
def test_references_exist(path: Path) -> None:
    rule = load_rule(path)
    known = {file.stem for file in FILES}
    assert set(rule.see) <= known | set(recipes())
    assert {need.capture for need in rule.needs if need.capture} <= set(recipes())


@by_file
def test_lines_can_be_read(path: Path) -> None:
    long = [
        number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 110
    ]
    assert not long
