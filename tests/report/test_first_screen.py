"""What a stranger reads off the first screen, of every stored recording: what, where, how much,
how sure, what to do. What is folded does not count."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from advisor.findings import Basis, Finding, FindingsReport, Severity, VerdictKind
from advisor.messages import STATES, SUMMARY, say
from advisor.report import render, summary
from advisor.report.sections.findings import legend
from tests.report.support import MS, make_report

PINS = Path(__file__).resolve().parents[2] / "benchmarks" / "pins"
RECORDINGS = sorted(path.stem for path in PINS.glob("*.txt"))
_VOID = {"meta", "br"}


def recorded(name: str) -> FindingsReport:
    """findings.json of a stored recording, as its pin holds it."""
    text = (PINS / f"{name}.txt").read_text("utf-8")
    document = json.loads(text[text.index("\n{\n") :])
    return FindingsReport.model_validate({**document, "advisor_version": "0"})


class Unfolded(HTMLParser):
    """The text of each element that is not folded, by its id ('' for the page's head)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self._open.append((tag, dict(attrs).get("id") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Marks of pictures hold no text."""

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        inside = tags[len(tags) - tags[::-1].index("details") :] if "details" in tags else None
        if "style" in tags or "script" in tags or (inside is not None and "summary" not in inside):
            return
        for name in {"", *(own for _, own in self._open), *tags}:
            self.text[name] = self.text.get(name, "") + data


def plain(text: str) -> str:
    return " ".join(re.sub("[`\N{NO-BREAK SPACE}]", " ", text).split())


def holds(text: str, part: str) -> bool:
    return plain(part).replace(" ", "") in plain(text).replace(" ", "")


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_first_screen_answers_a_strangers_questions(name: str) -> None:
    report = recorded(name)
    verdict = report.verdict
    page = Unfolded(render(report, None, "html")).text
    head = page["header"]
    # What is wrong
    assert holds(head, verdict.title)
    about = summary.of_verdict(report)
    if about is None:
        # How sure, and what to do: a command, or a finding to try.
        assert plain(STATES.get(verdict.kind.value, "")).split("{")[0] in plain(head)
        tries = [item.fix[0] for item in report.findings[: summary.SHOWN] if item.fix]
        said = [step for step in verdict.next_steps if holds(head, step)]
        said += [fix for fix in tries if holds(page["findings"], fix)]
        assert said or verdict.kind is VerdictKind.HEALTHY or not verdict.next_steps
        return
    assert_row(page[about.id], about)
    if about.probability is not None:
        assert holds(head, summary.sure(about)) or verdict.kind == VerdictKind.LOSSY
    # Where, in every word, and how much, with the interval that its row has
    words = (set(re.findall(r"\w+", text.lower())) for text in (summary.place(about), head))
    assert set.issubset(*words)
    gain = summary.per_step(about)
    if "(" in gain:
        assert gain[gain.index("(") + 1 : -1].removesuffix(" ms") in verdict.title
    # What to do: the terminal's steps in its order, each once, and all with what is typed
    assert [step for step in verdict.next_steps if holds(head, step)] == verdict.next_steps
    if verdict.severity == "info":
        assert STATES["info"].split("{")[0] in head


@pytest.mark.parametrize("name", RECORDINGS)
def test_hints_stand_by_the_size_that_is_written_beside_them(name: str) -> None:
    report = recorded(name)
    hints = [item for item in report.findings if item.severity == "info"]
    sizes = [item.most_ns() if item.at_most_ns() or item.is_of_unknown_cost()
             else item.savings_ns or 0 for item in hints
             if item.id not in {report.verdict.finding, *(run.verdict and run.verdict.finding
                                                          for run in report.runs)}]  # fmt: skip
    assert sizes == sorted(sizes, reverse=True) or len(report.runs) > 1


def assert_row(row: str, finding: Finding) -> None:
    """Where, how much, how sure, and the first fix itself, wherever else it stands."""
    assert holds(row, summary.title(finding))
    assert holds(row, summary.place(finding))
    assert holds(row, summary.per_step(finding))
    assert finding.probability is None or " sure" in row
    assert not finding.fix or holds(row, finding.fix[0].partition("\n")[0])


@pytest.mark.parametrize("name", RECORDINGS)
def test_other_findings_are_folded_to_title_gain_and_first_fix(name: str) -> None:
    report = recorded(name)
    page = Unfolded(render(report, None, "html")).text
    assert len(re.findall(r'<span class="number">', render(report, None, "html"))) == len(
        report.findings
    )
    for finding in report.findings[: summary.SHOWN]:
        if finding.id in page:
            assert_row(page[finding.id], finding)
            if finding.id != report.verdict.finding:
                assert all(not holds(page[finding.id], doubt) for doubt in finding.wrong_if)


@pytest.mark.parametrize(
    ("ms", "low", "high", "cost"),
    [(4.7, 2.3, 5.3, "small"), (4, 0.1, 9, "uncertain"), (9, 0, 20, "uncertain")],
)
def test_what_is_small_is_not_called_uncertain(
    ms: float, low: float, high: float, cost: str
) -> None:
    """GIVEN 4.7 of 171 ms, whose high end alone is 3 % of the step."""
    report = make_report()
    gain = {"savings_ns": ms * MS, "savings_low_ns": low * MS, "savings_high_ns": high * MS}
    changed = {**gain, "savings_share": ms / 171, "probability": 0.94}
    found = report.findings[0].model_copy(update=changed)
    verdict = report.verdict.model_copy(update={"severity": Severity.INFO})
    report = report.model_copy(update={"findings": [found], "verdict": verdict})
    assert summary.state(report).startswith(say(STATES, "info", {"cost": cost}))


def test_a_legend_explains_the_gains_that_stand_above_it() -> None:
    report = make_report()
    first = report.findings[0]
    option = first.model_copy(
        update={"id": "option", "basis": Basis.OPTION, "savings_low_ns": 0, "probability": None,
                "claims": {"transfer": 20 * MS}}
    )  # fmt: skip
    exposed = {"exposed": 0.1, "step_ns": 100 * MS}
    verdict = report.verdict.model_copy(update={"values": exposed, "finding": first.id})
    parts = {
        name: say(
            SUMMARY, "legend", {"ranges": False, "options": False, "beyond": False, name: True}
        )
        for name in ("ranges", "options", "beyond")
    }
    for found, said in (
        ([first], {"ranges"}),
        ([first, option], {"ranges", "options", "beyond"}),
        (
            [option.model_copy(update={"savings_ns": 5 * MS, "savings_high_ns": 9 * MS})],
            {"options"},
        ),
        ([], set()),
    ):
        page = report.model_copy(update={"findings": found, "verdict": verdict})
        text = legend(page)
        assert {name for name, words in parts.items() if words in text} == said
        assert not text or text in render(page, None, "html")


@pytest.mark.parametrize("explained", [False, True])
def test_no_cause_found_stands_over_no_title_that_explains(explained: bool) -> None:
    verdict = make_report().verdict.model_copy(
        update={"kind": VerdictKind.LOSSY, "reason": "exposed", "finding": None,
                "severity": Severity.INFO, "values": {"explained": explained}}
    )  # fmt: skip
    report = make_report().model_copy(update={"verdict": verdict})
    said = "Info · no fault found" if explained else "Info · no cause found"
    assert summary.state(report) == said
