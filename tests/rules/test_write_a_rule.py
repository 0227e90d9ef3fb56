"""The page that shows how to write a rule shows one that works, from its text alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor import api
from advisor.engine import load_rule
from advisor.engine.examples import check_examples

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "write-a-rule.md").read_text(encoding="utf-8")


def written(folder: Path) -> Path:
    """The rule of the page, in the file that its text names."""
    match = re.search(r"Write `([\w./-]+)`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert match
    path = folder / match[1]
    path.parent.mkdir()
    path.write_text(match[2], encoding="utf-8")
    return path


def test_its_examples_pass(tmp_path: Path) -> None:
    results = check_examples(load_rule(written(tmp_path)))
    assert len(results) == 3
    assert not [result.problem for result in results if result.problem]


@pytest.mark.slow
def test_it_finds_the_broadcasts_of_a_real_run(tmp_path: Path) -> None:
    path = written(tmp_path)
    recording = re.search(r"advisor diagnose (\S+) --rules", PAGE)
    assert recording
    with api.load(ROOT / recording[1]) as run:
        report = run.diagnose(rule_dirs=[path.parent], select=[path.stem])
        (finding,) = report.findings
        exposed = run.arrow("SELECT max(exposed_comm_ns) AS ns FROM step_breakdown WHERE used")
    assert finding.rule == "exposed-broadcasts"
    assert 0 < (finding.savings_ns or 0) <= exposed["ns"][0].as_py()
