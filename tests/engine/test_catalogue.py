"""Rule files: found, read, and every mistake named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.loader import load_model
from advisor.engine import load_catalogue, load_rule, recipes
from advisor.engine.reference import Bug, _Bugs, data_file, version_key
from advisor.errors import AdvisorError
from advisor.findings import OutcomeKind
from tests.engine.helpers import write_rule


def test_the_charter_rules_are_shipped() -> None:
    rules, broken = load_catalogue()
    assert not broken
    assert {
        "exposed-communication",
        "slow-ring-link",
        "small-buckets",
        "latency-bound-collectives",
    } <= {rule.id for rule in rules}


def test_all_mistakes_of_a_file_are_reported_with_lines(tmp_path: Path) -> None:
    path = write_rule(tmp_path, "broken", "SELECT 1 AS a")
    text = path.read_text()
    text = text.replace("category: user", "category: nonsense").replace("verify:", "verifi:")
    text = text.replace("unit: ns", "unitt: ns").replace("expect: fired", "expect: sometimes")
    # what a rule computes was not tried
    text = text.replace("confidence: modelled", "confidence: measured")
    path.write_text(text)
    with pytest.raises(AdvisorError) as caught:
        load_rule(path)
    message = str(caught.value)
    lines = text.splitlines()
    for word in ("nonsense", "verifi", "unitt", "sometimes", "confidence: measured"):
        line = next(number for number, line in enumerate(lines, 1) if word in line)
        assert f"{path}:{line}:" in message, word


def test_examples_are_required(tmp_path: Path) -> None:
    path = write_rule(tmp_path, "lonely", "SELECT 1 AS a")
    path.write_text(path.read_text().replace("look_alike: true", "look_alike: false"))
    with pytest.raises(AdvisorError, match="look-alike"):
        load_rule(path)


def test_an_unreadable_user_rule_is_an_error_outcome(tmp_path: Path) -> None:
    (tmp_path / "half.yaml").write_text("category: [")
    rules, broken = load_catalogue([tmp_path])
    assert [outcome.rule for outcome in broken] == ["half"]
    assert broken[0].outcome == OutcomeKind.ERROR
    assert len(rules) > 4


def test_a_user_rule_replaces_the_shipped_one(tmp_path: Path) -> None:
    write_rule(tmp_path, "small-buckets", "SELECT 1 AS a")
    rules, _ = load_catalogue([tmp_path], select=["small-buckets"])
    assert [rule.title for rule in rules] == ["slow calls"]


def test_select_and_ignore_know_their_names() -> None:
    rules, _ = load_catalogue(ignore=["small-buckets"])
    assert "small-buckets" not in {rule.id for rule in rules}
    with pytest.raises(AdvisorError, match="small-buckets"):
        load_catalogue(select=["small-bucket"])
    with pytest.raises(AdvisorError):
        load_catalogue([Path("/no/such/folder")])


def test_recipes_say_how() -> None:
    assert "NCCL_DEBUG" in recipes()["nccl-log"].how


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [("2.9.9", "2.10.3"), ("2.19.3+cuda12.4", "2.20"), ("2.7.0", "2.7.1"), ("1.13.1", "2.0.0")],
)
def test_versions_order(smaller: str, larger: str) -> None:
    assert version_key(smaller) < version_key(larger)


def test_every_bug_has_a_public_source_and_a_sane_range() -> None:
    bugs: list[Bug] = load_model(data_file("known-bugs.yaml"), _Bugs).bugs
    for bug in bugs:
        assert bug.source.startswith("https://github.com/")
        assert bug.fixed is None or version_key(bug.since) < version_key(bug.fixed)
    assert len({bug.id for bug in bugs}) == len(bugs)
