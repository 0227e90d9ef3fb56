"""What each rule says it was seen firing on is true; where there is nothing, the reason stands."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import load_rule, rule_files
from advisor.findings import Severity
from tests.rules.test_real import report_of
from tests.support.marks import thinned

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILES = rule_files(shipped("rules"))


def lab_alarms() -> set[str]:
    """Rules that were first, or among the warnings, on a fault of their own in the lab."""
    cases = json.loads((ROOT / "benchmarks/lab/results.json").read_text())["cases"]
    return {alarm.split(" (")[0] for case in cases for alarm in case["alarms"]}


def test_proof_is_given_or_its_absence_explained() -> None:
    alarms = lab_alarms()
    for rule in map(load_rule, FILES):
        if rule.proof.startswith("examples only"):
            assert len(rule.proof) > len("examples only: ") + 20, rule.id
            continue
        for name in re.findall(r"fixtures/[\w./-]+", rule.proof):
            assert (ROOT / name).exists(), (rule.id, name)
        own = "fixtures/" in rule.proof or "(as info)" in rule.proof
        if "lab recordings" in rule.proof and not own:
            assert rule.id in alarms


POINTERS = [
    (path.stem, name)
    for path in FILES
    for name in re.findall(r"fixtures/[\w./-]*[\w-]", load_rule(path).proof)
]
FOLDERS = {
    path.stem: name
    for path in FILES
    for name in re.findall(r"\b[a-z]+_\d+x\w+|\b\w+_metadata\b", load_rule(path).proof)
}


@cache
def found_on(path: Path) -> dict[str, bool]:
    """The rules of the findings, and of what was merged under them; whether a finding of its own
    is a warning or worse."""
    report = report_of(path)
    merged = {effect.rule: False for item in report.findings for effect in item.merged}
    own: dict[str, bool] = {}
    for item in report.findings:
        own[item.rule] = own.get(item.rule, False) or item.severity != Severity.INFO
    return {**merged, **own}


@pytest.mark.parametrize(("rule", "name"), thinned(POINTERS, 3))
def test_a_rule_fires_on_the_fixture_that_it_names(rule: str, name: str) -> None:
    found = found_on(ROOT / name)
    assert rule in found
    proof = load_rule(shipped("rules") / f"{rule}.yaml").proof
    if "(as info)" not in proof and "merged under" not in proof:
        assert found[rule]


@pytest.mark.parametrize(("rule", "name"), sorted(FOLDERS.items()))
def test_a_rule_fires_on_the_shared_recording_that_it_names(
    shared_data: Path, rule: str, name: str
) -> None:
    assert rule in found_on(shared_data / name)


def test_most_rules_were_seen_on_a_real_run() -> None:
    seen = [path for path in FILES if not load_rule(path).proof.startswith("examples only")]
    assert len(seen) >= len(FILES) // 2
