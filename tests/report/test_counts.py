"""Every view counts rules and findings alike, also where findings are merged into their cause."""

from __future__ import annotations

import html
import json
from xml.etree import ElementTree as ET

from advisor.findings import Effect, FindingsReport, Outcome, OutcomeKind
from advisor.messages import SOURCES, say
from advisor.report import pasted, render, summary
from advisor.report.lacking import most_lacked
from tests.report.support import RUN, make_report

LINE = "2 findings · 1 check passed · 1 needs more data"


def merged_report() -> FindingsReport:
    report = make_report()
    first = report.findings[0].model_copy(
        update={"merged": [Effect(rule="exposed-communication", where="group 0")]}
    )
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


def test_what_most_checks_lack_is_named_and_a_rule_counts_once() -> None:
    """GIVEN three rules without a log (one of them in two runs), one without ranks, one of a job
    that has none THEN the log comes first and what no recording holds is not named."""
    lacking = [("a", "log"), ("b", "log"), ("b", "log"), ("c", "ranks"), ("d", "ranks"),
               ("e", "steps"), ("f", "")]  # fmt: skip
    outcomes = [
        Outcome(run=RUN, rule=rule, outcome=OutcomeKind.NOT_APPLICABLE, lacks=lacks)
        for rule, lacks in [*lacking, ("g", "log")]
    ]
    hopeless = Outcome(run=RUN, rule="h", outcome=OutcomeKind.NOT_APPLICABLE, lacks="memory",
                       not_in_the_job=True)  # fmt: skip
    report = make_report().model_copy(update={"outcomes": [*outcomes, hopeless]})
    assert most_lacked(report) == ["log", "ranks"]


def test_the_page_s_command_makes_it_again_wherever_it_was_written_to() -> None:
    made = "advisor diagnose jobs/a log.txt --format html -o /tmp/x/report.html --force -q"
    report = make_report().model_copy(update={"command": made})
    assert pasted.made_by(report) == "advisor diagnose jobs/a log.txt --format html -q"


def test_what_holds_no_events_was_read_from_dumps_or_logs() -> None:
    report = make_report()
    (run,) = report.runs
    logs = report.model_copy(update={"runs": [run.model_copy(update={"events_read": 0})]})
    assert summary.source(report, RUN) != summary.source(logs, RUN)
    assert summary.source(logs, "") == say(SOURCES, "logs", {})
