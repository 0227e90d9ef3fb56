"""The terminal's view: verdict, why and next in ten lines, then one line per finding.

Works at 80 columns, without colour and in CI logs: words carry the severity, colour repeats it.
"""

import textwrap
from collections.abc import Iterator

from advisor.findings import Finding, FindingsReport, OutcomeKind, Severity, VerdictKind
from advisor.messages import SUMMARY, on_page, say
from advisor.report import benchmark, lacking, numbers, pasted, summary
from advisor.report.clean import one_line, printable, shorten
from advisor.report.options import Options
from advisor.report.text_table import text_table
from advisor.store.store import Store
from advisor.vocabulary.words import plural

_LABEL = 9
_ANSI = {Severity.CRITICAL: "31;1", Severity.WARNING: "33", Severity.INFO: "36"}
_MAX_PLACE = 120
_LEAST_CAUSE = 16


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """The terminal block; ``options.verbose`` adds the evidence of every finding."""
    lines = [*_head(report, options), ""]
    for run in report.runs:
        fitted = (
            benchmark.fits(store, run.run) if store is not None and not run.ranks_read else None
        )
        if fitted is not None:
            lines += [*text_table(fitted, options.width), ""]
    if report.findings:
        lines += _findings_table(report, options)
    if options.verbose:
        for number, finding in enumerate(report.findings, 1):
            lines += ["", *_details(number, finding, report, options)]
        lines.append("")
    lines += _tail(report, options)
    return "\n".join(lines) + "\n"


def _head(report: FindingsReport, options: Options) -> Iterator[str]:
    verdict = report.verdict
    ansi = "32;1" if verdict.kind is VerdictKind.HEALTHY else _ANSI[verdict.severity]
    yield from _labelled("VERDICT", verdict.headline(), options, ansi=ansi)
    yield from _labelled("", summary.state(report), options)
    if verdict.why:
        yield from _labelled("WHY", verdict.why, options, ansi="1")
    many = len(verdict.next_steps) > 1
    for index, step in enumerate(verdict.next_steps):
        head, *code = step.splitlines()
        lead = f"{index + 1}. " if many else ""
        label = "NEXT" if index == 0 else ""
        yield from _labelled(label, head, options, ansi="1", lead=lead)
        yield from (f"{'':{_LABEL + len(lead)}}{printable(line)}" for line in code)
    for index, text in enumerate(summary.caveats(report)):
        yield from _labelled("" if index else "NOTE", text, options, ansi="1")
    yield from _runs(report, options)


def _runs(report: FindingsReport, options: Options) -> Iterator[str]:
    """The verdict of every run, whole: of several recordings each is diagnosed by itself."""
    several = [(run, run.verdict) for run in report.runs if run.verdict is not None]
    if not several:
        return
    head = say(SUMMARY, "recordings", {"recordings": len(several)})
    yield from _labelled("RUNS", head, options, ansi="1")
    for run, verdict in several:
        ranks = f" ({plural(run.ranks_read, 'rank')})" if run.ranks_read else ""
        above = report.verdict.run == run.run
        text = f"{run.run}{ranks}: {'see above' if above else verdict.title}"
        yield from _labelled("", text, options)


def _labelled(
    label: str, text: str, options: Options, *, ansi: str = "", lead: str = ""
) -> Iterator[str]:
    left = _LABEL + len(lead)
    wrapped = _wrap(text, options.width - left) or [""]
    head = _style(label, ansi, options) + " " * (_LABEL - len(label)) + lead
    yield (head + wrapped[0]).rstrip()
    yield from (" " * left + line for line in wrapped[1:])


def _findings_table(report: FindingsReport, options: Options) -> Iterator[str]:
    """The rows of the page: severity, how sure, gain and cause, below it its rule and location."""
    rows = summary.numbered(report)
    if not options.verbose:
        rows = rows[: summary.SHOWN]
    amounts = [summary.per_step(finding) for _, finding in rows]
    per = summary.per(report)
    width = max(len(per), *(len(amount) for amount in amounts))
    left = len(f" #  severity  sure   {'':{width}}  ")
    room = max(options.width - left, _LEAST_CAUSE)
    yield f" #  severity  sure   {per:<{width}}  finding"
    for (number, finding), amount in zip(rows, amounts, strict=True):
        severity = _style(f"{finding.severity:<8}", _ANSI[finding.severity], options)
        line = f"{number:>2}  {severity}  {summary.sure(finding):<5}  {amount:<{width}}  "
        # Folded, not cut: what stands last (a group, an operator) tells two findings apart.
        where = shorten(summary.place_beside(finding, finding.title), _MAX_PLACE)
        below = " · ".join(filter(None, (one_line(finding.rule), where)))
        first, *more = [*_wrap(summary.cause(finding, report), room), *_wrap(below, room)]
        yield f"{line}{first}".rstrip()
        yield from (" " * left + part for part in more)
    if folded := len(report.findings) - len(rows):
        yield " " * left + say(SUMMARY, "more-findings", {"more": folded, "how": "-v"})


def _tail(report: FindingsReport, options: Options) -> Iterator[str]:
    missing = lacking.missing_evidence(report)
    why_not = "" if options.verbose else "-v"
    for text in summary.left_out(report):
        yield from _wrap(text, options.width)
    yield from _wrap(summary.rules_line(report, why_not), options.width)
    if options.verbose:
        yield from _how_to_capture(missing, options)
    for outcome in report.outcomes:
        if outcome.outcome is OutcomeKind.ERROR:
            yield from _wrap(f"rule {outcome.rule} failed: {outcome.reason}", options.width)
    wrote = f"Wrote {options.wrote}" if options.wrote else ""
    follow = _follow_up(report)
    together = "Next: " + "    ".join(follow) if follow else ""
    if wrote and together and len(wrote) + len(together) + 4 <= options.width:
        yield f"{wrote:<{options.width - len(together)}}{together}"
        return
    if wrote:
        yield wrote
    if len(together) <= options.width:
        yield from filter(None, [together])
    else:
        for index, command in enumerate(follow):
            yield from _command("Next: " if index == 0 else "      ", command, options.width)


def _how_to_capture(missing: list[tuple[str, str, list[str]]], options: Options) -> Iterator[str]:
    """Each way to record more once, and under it the rules that lack it."""
    ways: dict[str, list[str]] = {}
    for reason, how, rules in missing:
        ways.setdefault(how, []).append(f"{', '.join(rules)}: {reason or 'evidence missing'}")
    for how, lacks in sorted(ways.items(), key=lambda way: (not way[0], -len(way[1]))):
        yield ""
        yield from _wrap(how or f"{on_page('no-way')}:", options.width)
        for lack in lacks:
            first, *more = _wrap(lack, options.width - 4)
            yield f"  - {first}"
            yield from (f"    {line}" for line in more)
    if ways:
        yield ""


def _follow_up(report: FindingsReport) -> list[str]:
    if not report.findings:
        return []
    first = report.findings[0]
    given = pasted.given(report, first.run)
    commands = [f"advisor explain {first.rule}"]
    if first.evidence.window is not None:
        commands.insert(0, f"advisor open 1 {given}")
    return commands


def _command(lead: str, command: str, width: int) -> Iterator[str]:
    """A command to paste: folded at a space with a backslash where it is wider than the line."""
    line = lead
    for index, word in enumerate(command.split(" ")):
        if index and len(line) + len(word) + 3 > width and line.strip():
            yield f"{line} \\"
            line = " " * (len(lead) + 2) + word
        else:
            line += f" {word}" if index else word
    yield line


def _details(
    number: int, finding: Finding, report: FindingsReport, options: Options
) -> Iterator[str]:
    title = f"{number}  {finding.severity.upper()}  {one_line(summary.cause(finding, report))}"
    for index, line in enumerate(_wrap(title, options.width - 3)):
        yield _style(f"{'   ' if index else ''}{line}", _ANSI[finding.severity], options)
    per = summary.per(report)
    amount = summary.gain(finding, per)
    if part := summary.share(finding):
        amount += f" ({part} of the {summary.unit(report)['unit']})"
    yield from _indented("what", summary.words(finding), options)
    if details := summary.details(finding):
        yield from _indented("seen", details, options)
    sure = summary.confidence(finding)
    yield from _indented("gives", f"{amount}; {sure}" if sure else amount, options)
    if finding.assumes:
        yield from _indented("if", finding.assumes, options)
    for table in finding.evidence.tables:
        yield from text_table(table, options.width, per)
    for index, fix in enumerate(finding.fix):
        yield from _typed("fix" if index == 0 else "", fix, options)
    if finding.verify:
        yield from _typed("verify", finding.verify, options)
    for index, doubt in enumerate(finding.wrong_if):
        yield from _indented("wrong if" if index == 0 else "", doubt, options)
    if finding.merged:
        yield from _indented(
            "explains", ", ".join(effect.label() for effect in finding.merged), options
        )


def _indented(label: str, text: str, options: Options) -> Iterator[str]:
    for index, line in enumerate(_wrap(text, options.width - 13)):
        yield f"   {label if index == 0 else '':<10}{line}"


def _typed(label: str, text: str, options: Options) -> Iterator[str]:
    """A text, and below it what to type, as it is typed."""
    head, *code = text.splitlines()
    yield from _indented(label, head, options)
    yield from (f"{'':15}{printable(line)}" for line in code)


def _wrap(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for paragraph in printable(text).splitlines():
        lines += textwrap.wrap(numbers.bound(paragraph), width, break_on_hyphens=False)
    # The no-break spaces have done their work; plain ones are easier to search for.
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _style(text: str, ansi: str, options: Options) -> str:
    return f"\x1b[{ansi}m{text}\x1b[0m" if options.color and ansi and text.strip() else text
