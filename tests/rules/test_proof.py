"""What each rule says it was seen firing on is true; where there is nothing, the reason stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import load_rule, rule_files

ROOT = Path(__file__).parents[2]
FILES = rule_files(shipped("rules"))


def lab_alarms() -> set[str]:
    """Rules that were first, or among the warnings, on a fault of their own in the lab."""
    cases = json.loads((ROOT / "benchmarks/lab/results.json").read_text())["cases"]
    return {alarm.split(" (")[0] for case in cases for alarm in case["alarms"]}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_proof_is_given_or_its_absence_explained(path: Path) -> None:
    proof = load_rule(path).proof
    if proof.startswith("examples only"):
        assert len(proof) > len("examples only: ") + 20
        return
    for name in re.findall(r"fixtures/[\w./-]+", proof):
        assert (ROOT / name).exists(), name
    own = "fixtures/" in proof or "(as info)" in proof
    if "lab recordings" in proof and not own:
        assert path.stem in lab_alarms()


def test_most_rules_were_seen_on_a_real_run() -> None:
    seen = [path for path in FILES if not load_rule(path).proof.startswith("examples only")]
    assert len(seen) >= len(FILES) // 2
