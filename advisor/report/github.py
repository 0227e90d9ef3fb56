"""GitHub workflow commands: each finding becomes an annotation of the run.

Format and escaping:
https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from advisor.findings import FindingsReport, OutcomeKind, Severity
from advisor.report import summary
from advisor.report.clean import one_line, printable
from advisor.report.options import Options
from advisor.store.store import Store

_COMMAND = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """One ``::error``, ``::warning`` or ``::notice`` line per finding, then the verdict."""
    del store, options
    lines = []
    for finding in report.findings:
        body = [
            summary.words(finding) or summary.title(finding),
            f"{summary.per(report).capitalize()}: {summary.per_step(finding)}",
        ]
        body += [f"Sure: {sure}"] if (sure := summary.sure(finding)) else []
        body += [f"Fix: {step}" for step in finding.fix[:3]]
        run = summary.run_of(finding, report)
        whose = f"{run}: " if run else ""
        title = _property(one_line(f"{whose}{finding.rule}: {summary.title(finding)}"))
        lines.append(f"::{_COMMAND[finding.severity]} title={title}::{_data(chr(10).join(body))}")
    for outcome in report.outcomes:
        if outcome.outcome is OutcomeKind.ERROR:
            title = _property(one_line(f"rule {outcome.rule} failed"))
            lines.append(f"::warning title={title}::{_data(outcome.reason)}")
    lines.append(f"::notice title=advisor::{_data(report.verdict.headline())}")
    lines += [f"::notice title=advisor::{_data(text)}" for text in summary.caveats(report)]
    lines += [f"::notice title=advisor::{_data(text)}" for text in summary.left_out(report)]
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
