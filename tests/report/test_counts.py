"""Every view counts rules and findings alike, also where findings are merged into their cause."""

from __future__ import annotations

import html
import json
from xml.etree import ElementTree as ET

from advisor.findings import FindingsReport, Outcome, OutcomeKind
from advisor.report import render
from tests.report.support import RUN, make_report

LINE = "2 findings · 1 check passed · 1 needs more data"


def merged_report() -> FindingsReport:
    report = make_report()
    first = report.findings[0].model_copy(update={"merged": ["exposed-communication (group 0)"]})
    effect = Outcome(run=RUN, rule="exposed-communication", outcome=OutcomeKind.FIRED)
    return report.model_copy(
        update={
            "findings": [first, *report.findings[1:]],
            "outcomes": [*report.outcomes, effect],
        }
    )


def test_all_views_give_the_same_counts_and_say_what_was_merged() -> None:
    report = merged_report()
    text = render(report, None, "text", width=200)
    assert LINE in text
    assert LINE in render(report, None, "markdown")
    assert LINE in html.unescape(render(report, None, "html"))
    suite = ET.fromstring(render(report, None, "junit"))[0]
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert LINE in (properties["rules"] or "")
    assert properties["findings"] == str(len(report.findings))
    document = json.loads(render(report, None, "json"))
    fired = [item["rule"] for item in document["outcomes"] if item["outcome"] == "fired"]
    assert len(fired) == 3
    assert len({item["rule"] for item in document["findings"]}) == 2
    assert suite.get("tests") == str(len(document["outcomes"]))


def test_junit_names_the_cause_of_a_rule_that_has_no_finding_of_its_own() -> None:
    report = merged_report()
    cases = {case.get("name"): case for case in ET.fromstring(render(report, None, "junit"))[0]}
    output = cases["exposed-communication"].findtext("system-out") or ""
    assert output == f"fired, and is explained by another finding: {report.findings[0].title}"
