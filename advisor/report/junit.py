"""JUnit XML: one test case per rule and run, so that a CI system shows findings as failures."""

from collections import defaultdict
from xml.etree import ElementTree as ET

from advisor.findings import SEVERITY_ORDER, Finding, FindingsReport, OutcomeKind, Severity
from advisor.messages import SUMMARY, say
from advisor.report import summary
from advisor.report.clean import printable
from advisor.report.options import Options
from advisor.store.store import Store


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """One suite per run, with the number of its findings as a property. A rule that fired at
    ``options.fail_on`` or worse is a failure, a broken rule an error, a rule without its evidence
    skipped; milder findings pass with their text, and a rule whose finding is merged into that of
    its cause passes with the cause's name.
    """
    del store
    limit = SEVERITY_ORDER[Severity(options.fail_on)]
    merged = summary.explained(report)
    of_rule: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        of_rule[finding.run, finding.rule].append(finding)
    root = ET.Element("testsuites", name="advisor")
    for run in dict.fromkeys(outcome.run for outcome in report.outcomes):
        suite = ET.SubElement(root, "testsuite", name=printable(run))
        properties = ET.SubElement(suite, "properties")
        verdict = printable(report.verdict.headline())
        ET.SubElement(properties, "property", name="verdict", value=verdict)
        for text in summary.caveats(report):
            ET.SubElement(properties, "property", name="note", value=printable(text))
        number = sum(finding.run == run for finding in report.findings)
        ET.SubElement(properties, "property", name="findings", value=str(number))
        rules = summary.rules_line(report, run=run)
        ET.SubElement(properties, "property", name="rules", value=rules)
        tally = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        for outcome in report.outcomes:
            if outcome.run != run:
                continue
            tally["tests"] += 1
            case = ET.SubElement(
                suite, "testcase", classname="advisor.rules", name=printable(outcome.rule)
            )
            found = of_rule[run, outcome.rule]
            grave = [f for f in found if SEVERITY_ORDER[f.severity] <= limit]
            if outcome.outcome is OutcomeKind.ERROR:
                tally["errors"] += 1
                ET.SubElement(case, "error", message=printable(outcome.reason))
            elif outcome.outcome is OutcomeKind.NOT_APPLICABLE:
                tally["skipped"] += 1
                ET.SubElement(case, "skipped", message=printable(outcome.reason))
            elif grave:
                tally["failures"] += 1
                failure = ET.SubElement(
                    case,
                    "failure",
                    message=printable(summary.title(grave[0])),
                    type=grave[0].severity.value,
                )
                failure.text = "\n\n".join(_text(finding, report) for finding in found)
            elif found:
                output = ET.SubElement(case, "system-out")
                output.text = "\n\n".join(_text(finding, report) for finding in found)
            elif (run, outcome.rule) in merged:
                causes = [summary.title(finding) for finding in merged[run, outcome.rule]]
                output = ET.SubElement(case, "system-out")
                output.text = printable(say(SUMMARY, "explained", {"causes": causes}))
        suite.attrib.update({key: str(value) for key, value in tally.items()})
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _text(finding: Finding, report: FindingsReport) -> str:
    lines = [
        summary.title(finding),
        summary.words(finding),
        f"{summary.per(report)}: {summary.per_step(finding)}",
    ]
    if share := summary.share(finding):
        lines[-1] += f" ({share})"
    if sure := summary.sure(finding):
        lines.append(f"sure: {sure}")
    lines += [f"fix: {step}" for step in finding.fix]
    if finding.verify:
        lines.append(f"verify: {finding.verify}")
    return printable("\n".join(lines))
