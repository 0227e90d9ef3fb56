"""Pages that are generated for the site say what ``advisor explain`` says."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import load_rule, rule_files
from advisor.engine.views import views

pytest.importorskip("mkdocs")


@cache
def pages() -> dict[str, str]:
    path = Path(__file__).parent.parent / "docs" / "_generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.pages())


@pytest.mark.long
@pytest.mark.slow
def test_each_rule_says_what_it_was_seen_firing_on() -> None:
    made = pages()
    index = made["rules/index.md"]
    unproven = 0
    for path in rule_files(shipped("rules")):
        rule = load_rule(path)
        page = made[f"rules/{rule.id}.md"]
        match = re.search(r"^## Seen firing on\n\n(.+)\n", page, re.MULTILINE)
        assert match, rule.id
        assert match[1] == " ".join(rule.proof.split()).replace("|", "\\|")
        examples = page.split("## Examples")[1]
        assert all(f"- {example.name}: {example.expect}" in examples for example in rule.examples)
        only = rule.proof.startswith("examples only")
        unproven += only
        (line,) = re.findall(rf"^\| \[{rule.id}\].*$", index, re.MULTILINE)
        assert line.endswith("| examples only |" if only else "| real runs |")
    assert unproven
    assert f"The other {unproven} fire on their examples only" in index


@pytest.mark.slow
def test_each_view_and_each_column_of_it_is_explained() -> None:
    page = pages()["views.md"]
    sections = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert sections.keys() == views().keys()
    for name, section in sections.items():
        about, table = section.split("| column | type | |", 1)
        assert len(about.split()) >= 3, name
        assert not re.findall(r"^\| `(\w+)` \| [^|]+ \|  \|$", table, re.MULTILINE), name
    assert "[small-buckets](rules/small-buckets.md)" in sections["larger_bucket"]
