"""The findings as rows of one list: cause, location, gain, first fix; behind each its evidence."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from advisor.findings import Basis, Finding, FindingsReport, OutcomeKind
from advisor.messages import SUMMARY, on_page, say
from advisor.report import crop, humanise, lacking, pasted, summary
from advisor.report.charts.timeline import MAX_MARKS
from advisor.report.data_table import DataTable
from advisor.report.figures import Figure, GainBar
from advisor.report.replayed import ends_ns
from advisor.report.sections.section import slug
from advisor.store.store import Store
from advisor.vocabulary.words import lower_first

_MAX_ROWS = 40
_MORE = 1.05  # times what is exposed: more than rounding
_LEAST_MARKS = 100  # of a timeline: fewer show no call by itself
# Ids of the page itself, which a finding must not take.
_RESERVED = (
    "top", "findings", "first", "steps", "lateness", "collectives", "links", "whatif", "size",
    "sweep", "compared", "data",
)  # fmt: skip


@dataclass(frozen=True)
class FindingView:
    """One finding with what a template needs beside its own words (:mod:`advisor.report.summary`).

    ``is_main``: the verdict is about it, and its evidence is not folded. ``then`` are the fixes
    after the first, without those that the verdict or an earlier finding lists; ``is_listed``:
    either lists the first.
    """

    number: int
    anchor: str
    finding: Finding
    is_main: bool
    gain: Figure | None
    first_fix: str
    is_listed: bool
    then: Sequence[str]
    tables: Sequence[Figure]
    timeline: Figure | None
    see: Sequence[tuple[str, str]]
    open_command: str
    verify: str
    sql: str = ""


def views(
    report: FindingsReport, store: Store | None, listed: Sequence[str] = ()
) -> list[FindingView]:
    """Every finding, in the order of every view.

    ``listed``: the steps under the verdict, which stand once on the page.

    A rule's query stands with its first finding; of several recordings, whose page is long enough,
    `advisor explain` prints it.
    """
    taken = set(_RESERVED)
    rules = {outcome.rule for outcome in report.outcomes}
    most = max((max(ends_ns(item)) for item in report.findings if item.savings_ns), default=0.0)
    drawn = _with_pictures(report)
    several = len(report.runs) > 1
    asked = {*rules} if several else set[str]()
    cured: dict[tuple[str, str], FindingView] = {}
    # The pictures of several recordings share what one of a single one may have.
    marks = max(MAX_MARKS // max(len(drawn), 1), _LEAST_MARKS) if several else MAX_MARKS
    found: list[FindingView] = []
    for number, finding in enumerate(report.findings, 1):
        name = anchor(finding.id, taken)
        picture = None
        if store is not None and number in drawn:
            picture = crop.figure(store, finding, marks, explains=number == drawn[0])
        view = _view(number, finding, name, picture, rules, report, most)
        own = not several or finding.run == report.verdict.run
        if own and finding.fix and any(view.first_fix in step for step in listed):
            view = _without(view, listed)
        cure = (finding.rule, finding.fix[0] if finding.fix else "")
        if finding.fix and (like := cured.get(cure)) is not None:
            view = _without(view, [*like.finding.fix, lower_first(like.finding.verify)])
        found.append(replace(view, sql="" if finding.rule in asked else finding.evidence.sql))
        cured.setdefault(cure, found[-1])
        asked.add(finding.rule)
    return [found[number - 1] for number, _ in summary.numbered(report)]


def _with_pictures(report: FindingsReport) -> list[int]:
    """The numbers of those whose worst moment is drawn, the verdict's own first.

    The first few, of several runs one of each; a moment that several show is drawn once.
    """
    about, several = report.verdict.finding, len({finding.run for finding in report.findings}) > 1
    numbered = sorted(enumerate(report.findings, 1), key=lambda item: item[1].id != about)
    drawn: dict[object, int] = {}
    for number, finding in numbered:
        window = finding.evidence.window
        if window is not None and (several or number <= summary.SHOWN or finding.id == about):
            moment = (window.start_ns, window.end_ns, window.culprit_rank)
            drawn.setdefault(finding.run if several else moment, number)
    return [*drawn.values()]


def nothing_found(report: FindingsReport) -> str:
    """No finding is no proof of health where most rules could not look; '' where none did."""
    ended = summary.outcome_counts(report)
    passed, blind = ended[OutcomeKind.PASSED], len(lacking.lacking_evidence(report))
    if report.findings or not passed:
        return ""
    return on_page("nothing-found", passed=passed, blind=blind)


def legend(report: FindingsReport) -> str:
    """What the gains of the first screen mean: ranges, options, and more than is exposed.

    Why the verdict's own gives more than that, the verdict says.
    """
    shown = [item for _, item in summary.numbered(report)[: summary.SHOWN]
             if item.savings_ns and not summary.is_nothing(item)]  # fmt: skip
    said = report.verdict.values
    exposed_ns = (said.get("exposed") or 0.0) * (said.get("step_ns") or 0.0)
    beyond = [
        item
        for item in shown
        if item.id != report.verdict.finding
        and item.run == (report.verdict.run or item.run)
        and 0 < _MORE * exposed_ns < ends_ns(item)[2]
        and max(item.claims, key=lambda kind: item.claims[kind], default="") == "transfer"
    ]
    values = {
        "ranges": any(item.at_most_ns() is None for item in shown),
        "options": any(item.basis is Basis.OPTION for item in shown),
        "beyond": bool(beyond),
    }
    return say(SUMMARY, "legend", values)


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
    name: str,
    picture: Figure | None,
    rules: set[str],
    report: FindingsReport,
    most_ns: float,
) -> FindingView:
    if picture is not None:
        picture.id = f"timeline-{name}"
    return FindingView(
        number=number,
        anchor=name,
        finding=finding,
        is_main=report.verdict.finding == finding.id,
        gain=_gain(finding, name, most_ns),
        first_fix=finding.fix[0] if finding.fix else finding.verify,
        is_listed=False,
        then=finding.fix[1:],
        tables=_tables(finding, name, summary.per(report)),
        timeline=picture,
        open_command=f"advisor open {shlex.quote(finding.id)} {pasted.given(report, finding.run)}",
        verify=lower_first(finding.verify) if finding.fix else "",
        see=[(link, _kind(link, rules)) for link in finding.see],
    )


def _without(view: FindingView, steps: Sequence[str]) -> FindingView:
    """Without the steps that stand elsewhere on the page, but its row's first."""
    then = [fix for fix in view.then if not any(fix in step for step in steps)]
    verify = "" if any(view.verify in step for step in steps) else view.verify
    return replace(view, is_listed=True, then=then, verify=verify)


def _kind(link: str, rules: set[str]) -> str:
    """'web' and 'rule' can be followed; anything else is shown as text."""
    if urlsplit(link).scheme in ("http", "https"):
        return "web"
    return "rule" if link in rules else ""


def _gain(finding: Finding, name: str, most_ns: float) -> Figure | None:
    if not finding.savings_ns or not most_ns or summary.is_nothing(finding):
        return None
    words = summary.per_step(finding)
    low, middle, high = ends_ns(finding)
    known = None if finding.is_of_unknown_cost() else middle
    bar = GainBar(low, known, high, most_ns, f"sev-{finding.severity}", words)
    return Figure(f"gain-{name}", words, description=f"Gain: {words}", drawing=bar)


def _tables(finding: Finding, name: str, per_step: str) -> list[Figure]:
    return [
        Figure(
            f"{name}-evidence-{index}",
            table.title,
            table=DataTable(
                *humanise.table(table.columns, table.rows[:_MAX_ROWS], per_step),
                note=on_page("evidence", note=table.note, rows=len(table.rows), most=_MAX_ROWS),
            ),
        )
        for index, table in enumerate(finding.evidence.tables, 1)
    ]
