"""The report where a notebook shows a run: verdict, what to do first, and a row per finding."""

from collections.abc import Sequence
from html import escape

from advisor.findings import FindingsReport
from advisor.report import summary
from advisor.report.commands import step_code


def render(report: FindingsReport) -> str:
    """A fragment of HTML, everything in it escaped."""
    verdict = report.verdict
    steps = "".join(f"<li>{step_code(step)}</li>" for step in verdict.next_steps)
    rows = [
        _cells("td", [number, f.severity.value, summary.sure(f), summary.per_step(f),
                      summary.cause(f, report), f.rule, summary.place(f)])
        for number, f in enumerate(report.findings, 1)
    ]  # fmt: skip
    head = _cells("th", ["#", "severity", "sure", summary.per(report), "finding", "rule", "where"])
    table = f"<table>{head}{''.join(rows)}</table>" if rows else ""
    said = map(escape, [summary.state(report), verdict.why])
    html = f"<p><b>{escape(verdict.headline())}</b><br>{'<br>'.join(said)}</p>"
    return html + (f"<ol>{steps}</ol>" if steps else "") + table


def _cells(tag: str, values: Sequence[object]) -> str:
    inside = "".join(
        f'<{tag} style="text-align:left">{escape(str(value))}</{tag}>' for value in values
    )
    return f"<tr>{inside}</tr>"
