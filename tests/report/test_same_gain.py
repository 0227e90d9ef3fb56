"""One gain per cause: whatever view one opens of a stored recording, the numbers are the same.

The numbers are read back from what is printed, without the code that prints them.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest

import advisor
from advisor.findings import FindingsReport
from advisor.report import render, summary
from tests.report.test_first_screen import RECORDINGS, recorded

VIEWS = ("text", "html", "markdown", "github", "junit", "chat")
LISTS = ("text", "html", "markdown", "junit")  # views that name every finding
NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
UNIT = r"(ns|µs|ms|s)\b"
GAIN = re.compile(rf"{NUMBER} {UNIT} \({NUMBER}–{NUMBER} {UNIT}\)")
BETWEEN = re.compile(rf"{NUMBER}–{NUMBER} {UNIT}")
SHORT = re.compile(rf": {NUMBER} {UNIT} of (?:every|the mean) ")
AT_MOST = re.compile(rf"up to {NUMBER} {UNIT}")


class Gain(NamedTuple):
    low_ns: float
    ns: float
    high_ns: float

    def is_like(self, other: Gain) -> bool:
        """Equal but for rounding to two digits; ends are rounded outwards."""
        return (
            other.low_ns * 0.89 - 1 <= self.low_ns <= other.low_ns * 1.01
            and abs(self.ns - other.ns) <= 0.051 * other.ns
            and other.high_ns * 0.99 <= self.high_ns <= other.high_ns * 1.12 + 1
        )


def value(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * NS[unit]


def plain(view: str) -> str:
    text = unescape(re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]+>", " ", view, flags=re.S))
    return re.sub(r"\s+", " ", text.replace("%0A", " ").replace("%25", "%"))


def gains_said(view: str) -> list[Gain]:
    return [
        Gain(value(low, unit), value(middle, own), value(high, unit))
        for middle, own, low, high, unit in GAIN.findall(plain(view))
    ]


def gains_found(report: FindingsReport) -> dict[str, Gain]:
    """By finding; those whose interval reaches down to nothing are said by their high end."""
    return {
        item.id: Gain(item.savings_low_ns, item.savings_ns, item.savings_high_ns)
        for item in report.findings
        if item.savings_ns and item.savings_low_ns and item.savings_high_ns
        and not item.is_of_unknown_cost()
    }  # fmt: skip


def of_unknown_cost(report: FindingsReport) -> list[Gain]:
    return [
        Gain(item.savings_low_ns or 0, item.savings_ns or 0, item.savings_high_ns or 0)
        for item in report.findings
        if item.savings_low_ns and item.is_of_unknown_cost()
    ]


def ends_said(view: str) -> list[Gain]:
    return [
        Gain(value(low, unit), 0, value(high, unit))
        for low, high, unit in BETWEEN.findall(plain(view))
    ]


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_view_says_the_gain_of_a_finding_alike(name: str) -> None:
    report = recorded(name)
    found = gains_found(report)
    at_most = [
        item.savings_high_ns
        for item in report.findings
        if item.savings_low_ns == 0 and (item.savings_high_ns or 0) > 1_000
    ]
    views = {form: render(report, None, form) for form in VIEWS}
    for form, view in views.items():
        for said in gains_said(view):
            assert any(said.is_like(gain) for gain in found.values()), (form, said)
    for form in LISTS:
        for finding, gain in found.items():
            assert any(said.is_like(gain) for said in gains_said(views[form])), (form, finding)
        limits = [value(*parts) for parts in AT_MOST.findall(plain(views[form]))]
        for high_ns in at_most:
            assert any(high_ns * 0.95 <= said <= high_ns * 1.12 for said in limits), form


@pytest.mark.parametrize("name", RECORDINGS)
def test_of_an_unknown_cost_every_view_says_the_interval_and_no_middle(name: str) -> None:
    report = recorded(name)
    for gain in of_unknown_cost(report):
        for form in LISTS:
            view = render(report, None, form)
            said = [ends._replace(ns=gain.ns) for ends in ends_said(view)]
            assert any(ends.is_like(gain) for ends in said), form
            assert not any(gain.is_like(other) for other in gains_said(view)), form


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_verdict_says_the_gain_of_its_finding(name: str) -> None:
    report = recorded(name)
    verdict = report.verdict
    own = next((item for item in report.findings if item.id == verdict.finding), None)
    if own is None or not own.savings_ns:
        assert verdict.savings_ns is None
        return
    assert verdict.savings_ns == own.savings_ns == verdict.values["gain_ns"]
    assert verdict.values["gain_low_ns"] == own.savings_low_ns
    assert verdict.values["gain_high_ns"] == own.savings_high_ns
    for number, unit in SHORT.findall(plain(verdict.title)):
        assert value(number, unit) == pytest.approx(own.savings_ns, rel=0.051)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_json_is_what_the_views_were_made_from(name: str) -> None:
    report = recorded(name)
    read = json.loads(render(report, None, "json"))
    assert read["verdict"]["savings_ns"] == report.verdict.savings_ns
    assert [item["savings_ns"] for item in read["findings"]] == [
        item.savings_ns for item in report.findings
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["gpt2-tiny-ddp-2-slow-rank", "lab-fsdp2-slow-link", "lab-ddp-blocking"],
)
def test_chart_and_predictions_say_it_too(name: str, fixtures_dir: Path) -> None:
    """The step bar marks what the finding gives, and a replay of its change says the same."""
    with advisor.load(fixtures_dir / name) as run:
        report = run.report
        page = render(report, run.store, "html")
    (about,) = (item for item in report.findings if item.id == report.verdict.finding)
    # Where an interval is longer than its kinds of time, the outline has the line that says so.
    marked = re.findall(r"finding 1: ([^<]*?) could go", plain(page))
    assert set(marked) == {summary.per_step(about)}
    if about.is_of_unknown_cost():
        gain = Gain(about.savings_low_ns or 0, about.savings_ns or 0, about.savings_high_ns or 0)
        assert not any(said.is_like(gain) for said in gains_said(page))
        return
    gain = gains_found(report)[about.id]
    replayed = re.findall(
        rf"(?:on time|as its peers) saves {NUMBER}.{UNIT} \({NUMBER}–{NUMBER}.{UNIT}\)", plain(page)
    )
    for middle, own, low, high, unit in replayed:
        said = Gain(value(low, unit), value(middle, own), value(high, unit))
        assert said.is_like(gain)
