"""Markdown for pull requests and chat: the verdict, the table, then each finding folded up."""

import re
from collections.abc import Iterator

from advisor.findings import Finding, FindingsReport, Table
from advisor.messages import SUMMARY, say
from advisor.report import humanise, summary
from advisor.report.clean import one_line, printable
from advisor.report.commands import code_spans
from advisor.report.options import Options
from advisor.store.store import Store

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@!&])")
_MAX_ROWS = 20


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """GitHub-flavoured Markdown; everything from the trace is escaped."""
    del store, options
    lines = [f"## {_with_code(report.verdict.headline())}", "", _escape(summary.state(report)), ""]
    if report.verdict.why:
        lines += [_with_code(report.verdict.why), ""]
    for text in summary.caveats(report):
        lines += [_with_code(f"Note: {text}"), ""]
    if report.verdict.next_steps:
        for index, step in enumerate(report.verdict.next_steps, 1):
            lines += _typed(f"{index}. ", step)
        lines.append("")
    if report.findings:
        lines += [
            f"| # | severity | sure | {summary.per(report)} | finding | rule | where |",
            "|--:|---|---|---|---|---|---|",
        ]
        for number, item in summary.numbered(report)[: summary.SHOWN]:
            cells = [summary.sure(item), summary.per_step(item), summary.cause(item, report)]
            row = " | ".join(_escape(text) for text in [*cells, item.rule, summary.place(item)])
            lines.append(f"| {number} | {item.severity} | {row} |")
        lines.append("")
        if (folded := len(report.findings) - summary.SHOWN) > 0:
            words = say(SUMMARY, "more-findings", {"more": folded, "how": "below"})
            lines += [_escape(words), ""]
        for number, finding in enumerate(report.findings, 1):
            lines += _details(number, finding, report)
    for text in summary.left_out(report):
        lines += [_escape(text), ""]
    lines.append(summary.rules_line(report))
    return "\n".join(lines) + "\n"


def _details(number: int, finding: Finding, report: FindingsReport) -> Iterator[str]:
    title = _escape(summary.cause(finding, report))
    yield from (f"<details><summary>{number}. {title}</summary>", "")
    yield from (_with_code(summary.words(finding)), "")
    sure = summary.confidence(finding)
    gain = summary.gain(finding, summary.per(report))
    yield f"**Gives** {_escape(gain)}{f' ({_escape(sure)})' if sure else ''}."
    yield ""
    for table in finding.evidence.tables:
        yield from _table(table, summary.per(report))
    if finding.fix:
        yield from ("**Fix**", "")
        for index, step in enumerate(finding.fix, 1):
            yield from _typed(f"{index}. ", step)
        yield ""
    if finding.verify:
        yield from (*_typed("**Verify** ", finding.verify), "")
    if finding.wrong_if:
        yield from (f"**Wrong if** {_escape('; '.join(finding.wrong_if))}", "")
    yield from ("</details>", "")


def _table(table: Table, per_step: str) -> Iterator[str]:
    yield from (f"*{_escape(table.title)}*", "")
    columns, rows = humanise.table(table.columns, table.rows[:_MAX_ROWS], per_step)
    yield "| " + " | ".join(_escape(name) for name in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(_escape(text) for text in row) + " |"
    if len(table.rows) > _MAX_ROWS:
        yield from ("", f"{len(table.rows) - _MAX_ROWS} more rows in findings.json")
    yield ""


def _typed(lead: str, text: str) -> Iterator[str]:
    """A text, and below it what to type in a block of code."""
    head, *code = text.splitlines()
    yield f"{lead}{_with_code(head)}"
    if code:
        margin = " " * 3 if lead[0].isdigit() else ""
        lines = [f"{margin}{printable(line).replace('```', '` ` `')}" for line in code]
        yield from (f"{margin}```", *lines, f"{margin}```")


def _with_code(text: str) -> str:
    """Escaped, but code as the page has it stands between backticks, where nothing is markup."""
    return "".join(
        f"`{part}`" if is_code and part.strip() else _SPECIAL.sub(r"\\\1", part)
        for part, is_code in code_spans(one_line(text))
    )


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(printable(text)))
