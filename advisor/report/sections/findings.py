"""The findings: savings on one scale, then what, evidence, fix, proof and doubt of each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from advisor.findings import Finding, FindingsReport, OutcomeKind
from advisor.report import crop, humanise, numbers, summary
from advisor.report.charts.savings import Saving, savings_bars
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections.section import Section, slug
from advisor.store.store import Store

_MAX_ROWS = 40
# Ids of the page itself, which a finding must not take.
_RESERVED = ("findings", "data", "breakdown", "collectives", "who", "changes", "size", "strategies")


@dataclass(frozen=True)
class FindingView:
    """One finding with everything a template needs, already in words."""

    number: int
    anchor: str
    finding: Finding
    amount: str
    share: str
    confidence: str
    place: str
    tables: list[tuple[str, DataTable]]
    facts: DataTable | None
    timeline: Figure | None
    see: list[tuple[str, str]]
    open_command: str
    verify: str
    # Its run where there are several; '' else.
    run: str
    # Tells it in the contents from another finding; '' where it is the only one of its rule.
    told_apart_by: str


def build(report: FindingsReport, store: Store | None) -> Section | None:
    """The findings, or that there is nothing to do; None where no rule could look at all."""
    if not report.findings and not any(
        outcome.outcome in (OutcomeKind.PASSED, OutcomeKind.ERROR) for outcome in report.outcomes
    ):
        return None
    taken = set(_RESERVED)
    rules = {outcome.rule for outcome in report.outcomes}
    views = [
        _view(number, finding, store, taken, rules, report)
        for number, finding in enumerate(report.findings, 1)
    ]
    counts = summary.severity_counts(report)
    words = [f"{number} {severity}" for severity, number in counts.items() if number]
    return Section(
        id="findings",
        title="Findings",
        template="findings.html.j2",
        count=", ".join(words) or "none",
        data={
            "views": views,
            "savings": _savings(report, views),
            "nothing": "" if views else _nothing(report),
        },
    )


def _nothing(report: FindingsReport) -> str:
    """No finding is no proof of health where most rules could not look."""
    ended = summary.outcome_counts(report)
    passed, blind = ended[OutcomeKind.PASSED], ended[OutcomeKind.NOT_APPLICABLE]
    if not passed:
        return "No rule could look: what they lack stands at the end."
    if blind <= passed:
        return "No rule found anything that costs time in what was recorded."
    looked = "The one rule" if passed == 1 else f"The {passed} rules"
    return (
        f"{looked} that could look found nothing; {numbers.plural(blind, 'other')} could not look: "
        "what they lack stands at the end."
    )


def anchor(text: str, taken: set[str]) -> str:
    """``text`` as an HTML id that is not yet in ``taken``, to which it is added."""
    base = slug(text)
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name


def _view(
    number: int,
    finding: Finding,
    store: Store | None,
    taken: set[str],
    rules: set[str],
    report: FindingsReport,
) -> FindingView:
    name = anchor(finding.id, taken)
    picture = crop.figure(store, finding) if store is not None else None
    if picture is not None:
        picture.id = f"timeline-{name}"
    return FindingView(
        number=number,
        anchor=name,
        finding=finding,
        amount=summary.gain(finding),
        share=summary.share(finding),
        confidence=summary.confidence(finding),
        place=summary.place(finding),
        tables=[
            (
                table.title,
                DataTable(
                    *humanise.table(table.columns, table.rows[:_MAX_ROWS]),
                    note=_more(len(table.rows), table.note),
                ),
            )
            for table in finding.evidence.tables
        ],
        facts=_facts(finding),
        timeline=picture,
        open_command=f"advisor open {shlex.quote(finding.id)} {summary.given(report, finding.run)}",
        verify=summary.to_paste(finding.verify, report),
        see=[(link, _see_kind(link, rules)) for link in finding.see],
        run=summary.run_of(finding, report),
        told_apart_by=_told_apart_by(finding, report),
    )


def _told_apart_by(finding: Finding, report: FindingsReport) -> str:
    alike = [other for other in report.findings if other.rule == finding.rule]
    run = summary.run_of(finding, report)
    places = {summary.place(one) for one in alike if not run or one.run == run}
    return ", ".join(([run] if run else []) + ([summary.place(finding)] if len(places) > 1 else []))


def _see_kind(link: str, rules: set[str]) -> str:
    """'web' for an address, 'rule' for another rule's id, else 'text'."""
    if urlsplit(link).scheme in ("http", "https"):
        return "web"
    return "rule" if link in rules else "text"


def _facts(finding: Finding) -> DataTable | None:
    known = {key: value for key, value in finding.evidence.facts.items() if value is not None}
    if not known:
        return None
    described = [(humanise.column(key), value) for key, value in sorted(known.items())]
    return DataTable(
        ["number", "value"],
        [[title, humanise.value(write, value)] for (title, write), value in described],
    )


def _more(total: int, note: str) -> str:
    if total <= _MAX_ROWS:
        return note
    return f"{note} The first {_MAX_ROWS} of {total} rows; findings.json has all.".strip()


def _savings(report: FindingsReport, views: list[FindingView]) -> Figure | None:
    known = [view for view in views if view.finding.savings_ns is not None]
    if len(known) < 2:
        return None
    savings = [
        Saving(
            f"{view.number}",
            float(view.finding.savings_ns or 0),
            view.finding.savings_low_ns,
            view.finding.savings_high_ns,
            view.finding.severity.value,
            summary.per_step(view.finding),
        )
        for view in known
    ]
    best = max(known, key=lambda view: view.finding.savings_ns or 0)
    gives = "gives" if best.finding.at_most_ns() is None else "may give"
    # Of several runs the bars stand side by side, and none of their steps is that of all.
    step_ns = report.runs[0].step_ns_median if len(report.runs) == 1 else None
    return Figure(
        id="savings",
        title=f"Finding {best.number} {gives} most: {best.amount}",
        description="One bar per finding: recoverable time in ms per step, with its interval.",
        scenes=[savings_bars(savings)],
        table=DataTable(
            ["finding", "rule", "per step", "how sure"],
            [[v.number, v.finding.rule, v.amount, v.finding.confidence.value] for v in known],
        ),
        note=(f"A step takes {numbers.duration(step_ns)}. " if step_ns else "")
        + "Savings of different findings do not add up: they may share the same time.",
    )
