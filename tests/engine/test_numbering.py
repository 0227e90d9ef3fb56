"""A finding that names itself in a command names its own place in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor import api
from advisor.engine.numbering import number_verdict, token
from advisor.findings import Verdict, VerdictKind
from advisor.report.perfetto import finding_trace
from tests.report.support import make_report

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.mark.slow
def test_a_fix_names_the_findings_own_number_in_every_format() -> None:
    """GIVEN a report whose finding on unsteady steps is not the first."""
    with api.load(FIXTURES / "lab-fsdp2-slow-link") as run:
        report = run.report
        number = [item.rule for item in report.findings].index("unsteady-steps") + 1
        formats = [run.render(name) for name in ("html", "json", "markdown")]
        crop = finding_trace(run.store, report.findings[number - 1])
    assert number > 1
    assert any(f"advisor open {number} PATH" in fix for fix in report.findings[number - 1].fix)
    for text in [*formats, crop.text]:
        assert "\ue000" not in text
        assert "\\ue000" not in text
    assert f"advisor open {number} PATH" in formats[0]
    assert f"advisor open {number} PATH" in json.dumps(json.loads(crop.text))


def test_a_verdict_repeats_the_number_of_its_own_runs_finding() -> None:
    findings = make_report().findings
    second = findings[1]
    verdict = Verdict(
        kind=VerdictKind.SURE,
        title="",
        cause="x",
        next_steps=[f"advisor open {token(second.id)} PATH"],
    )
    named = number_verdict(verdict, second.run, findings)
    assert named.next_steps == ["advisor open 2 PATH"]
