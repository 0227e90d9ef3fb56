"""What a headline promises: where one number would promise too much, its interval too."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.table import decide
from advisor.engine.verdict.words import in_words
from advisor.findings import Basis, Confidence, Evidence, FindingsReport
from advisor.messages import WHYS, say
from advisor.report import render, summary
from advisor.vocabulary.words import estimate, group_text, is_wide, span
from tests.engine.helpers import RUN, store_of
from tests.engine.test_verdict_table import MS, finding, shares, situation

STEPS = {"rank": [0, 1, 2, 3], "step": [*range(8)], "window_ns": 100_000_000}
IDLE = {**STEPS, "compute_ns": 65_000_000, "idle_ns": 35_000_000}
WAITED = {"rank": STEPS["rank"], "step": STEPS["step"], "kind": "synchronisation",
          "idle_ns": 30_000_000, "name": "aten::item"}  # fmt: skip


def report_of(**settings: Any) -> FindingsReport:
    with store_of(**settings) as store:
        return diagnose(store, command="advisor diagnose x")


def test_a_wide_gain_is_said_with_its_interval() -> None:
    report = report_of(ranks=4, steps=8, tables={"step_breakdown": [IDLE], "host_gap": [WAITED]})
    found = report.findings[0]
    assert found.rule == "blocking-sync"
    assert found.savings_low_ns < found.savings_ns < found.savings_high_ns  # type: ignore[operator]
    assert report.verdict.values["is_wide"]
    assert "30 ms of every 100 ms step (30 %; range 15–35 ms)" in report.verdict.title
    page = render(report, None, "html").replace("\N{NO-BREAK SPACE}", " ")
    assert "15–35 ms" in page


@pytest.mark.parametrize(
    ("moving", "of", "cannot"),
    [
        (0.45, "data-parallel all_reduce", True),
        (0.35, "data-parallel all_reduce", False),
        (0.45, "all_gather", False),
        (0.65, "all_gather", True),
    ],
)
def test_transfers_that_take_longer_than_compute_are_no_unknown_cause(
    moving: float, of: str, cannot: bool
) -> None:
    """GIVEN 60 % compute, two thirds of it backward, whom gradients run under."""
    lost = shares(exposed=0.3, compute=0.6, idle=0.1, moving=moving)
    with store_of(ranks=4, steps=8) as store:
        sandbox = Sandbox(store, RUN)
        known, unsplit = (
            in_words(decide(it), it, sandbox)
            for it in (
                situation(shares=lost, most_exposed=of),
                situation(shares=lost._replace(wait_known=False), most_exposed=of),
            )
        )
    assert (known.values["moving"] > known.values["beside"]) == cannot
    assert ("unknown" in known.title) != cannot
    assert "beside" not in unsplit.values


@pytest.mark.parametrize(("room_ns", "found_ns"), [(2_000, None), (9 * MS, 9 * MS), (None, None)])
def test_calls_behind_which_no_compute_follows_are_no_unknown_cause(
    room_ns: int | None, found_ns: int | None
) -> None:
    """GIVEN 30 ms exposed, of which other compute could hide nothing, 9 ms, or nobody knows."""
    facts = {"exposed_ns": 30 * MS, "room_ns": room_ns, "found_ns": found_ns}
    item = finding("exposed-communication", None, None, severity="info",
                   evidence=Evidence(facts=facts))  # fmt: skip
    it = situation(findings=[item], shares=shares(exposed=0.3, compute=0.7))
    with Sandbox(None, RUN) as sandbox:
        verdict = in_words(decide(it), it, sandbox)
    assert verdict.values["no_room"] == (room_ns == 2_000)
    assert ("unknown" in verdict.title) != verdict.values["no_room"]


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [(15, 31, True), (15, 30, False), (0, 27, False), (20, 20, False), (None, 30, False)],
)
def test_over_twice_its_low_end_is_wide(low: int | None, high: int | None, wide: bool) -> None:
    assert is_wide(low, high) is wide


@pytest.mark.parametrize(
    ("middle", "low", "high", "text"),
    [
        (76.3, 32.9, 129.2, "76 ms (32–130 ms)"),
        (582, 331, 664, "582 ms (330–670 ms)"),
        (168.9, 168.4, 171.2, "169 ms"),
        (169, 150, 169, "169 ms (150–170 ms)"),
        (5, None, None, "5 ms"),
    ],
)
def test_what_lies_inside_an_interval_does_so_as_written(
    middle: float, low: float | None, high: float | None, text: str
) -> None:
    ends = (None if end is None else end * 1e6 for end in (low, high))
    assert estimate(middle * 1e6, *ends) == text


@pytest.mark.parametrize("scale", [1, 17, 317, 1_003, 99_999, 10_000_001])
def test_an_interval_is_never_narrower_as_written(scale: int) -> None:
    for low, high in ((1.0, 1.01), (9.95, 9.99), (4.6, 22.0)):
        ends = span(low * scale, high * scale).rsplit(" ", 1)
        factor = {"µs": 1e3, "ms": 1e6, "s": 1e9}[ends[1]]
        first, last = (float(end.replace(",", "")) * factor for end in ends[0].split("–"))
        assert first <= low * scale * (1 + 1e-9)
        assert last >= high * scale * (1 - 1e-9)


def test_a_group_is_named_with_the_ranks_that_were_read() -> None:
    assert group_text(8, [0, 1]) == "8 ranks, 2 of them read"
    assert group_text(2, [1, 0, 1]) == "2 ranks"
    assert group_text(1, [0]) == "1 rank"


@pytest.mark.parametrize(
    ("ms", "low", "high", "more", "is_unknown"),
    [
        (8, 2, 30, {}, True),
        (8, 2, 30, {"probability": 0.7}, False),  # probable, with its middle
        (8, 2, 30, {"basis": Basis.OPTION, "probability": None}, False),
        (8, 4, 16, {}, False),
        (8, 0, 30, {}, True),
    ],
)
def test_a_cost_is_unknown_where_the_cause_is_sure_and_the_gain_is_wide(
    ms: int, low: int, high: int, more: dict[str, Any], is_unknown: bool
) -> None:
    """Every view asks this: with a middle or without."""
    ends = {"savings_low_ns": low * MS, "savings_high_ns": high * MS}
    item = finding("slow-ring-link", ms, **ends, **more)
    assert item.is_of_unknown_cost() is is_unknown
    said = summary.per_step(item)
    assert (f"{ms} ms (" in said) is (not is_unknown and low > 0)


def test_why_a_replayed_gain_is_above_what_is_exposed_is_said() -> None:
    """GIVEN 5 ms exposed and gains up to 9 THEN WHY has a reason, but for a model's interval."""
    ends = {"savings_low_ns": 2 * MS, "savings_high_ns": 9 * MS, "claims": {"transfer": 5 * MS}}
    for confidence, said in ((Confidence.REPLAYED, True), (Confidence.MODELLED, False)):
        item = finding("slow-ring-link", 5, **ends, confidence=confidence, because=["It is slow."])
        it = situation(findings=[item])
        with Sandbox(None, RUN) as sandbox:
            verdict = in_words(decide(it), it, sandbox)
        assert (say(WHYS, "beyond", verdict.values) in verdict.why) is said


@pytest.mark.parametrize(("ms", "in_turn"), [(7, True), (5, False)])
def test_waiting_in_turn_is_named_where_it_is_most_of_a_loss(ms: int, in_turn: bool) -> None:
    """GIVEN 12 % exposed on a busy machine, and ranks that wait for one another for some of it."""
    waits = finding("jitter", ms, probability=None, basis=Basis.LOSS, severity="info",
                    fix=["look at rank 2"])  # fmt: skip
    it = situation(findings=[waits], shares=shares(exposed=0.12))
    with Sandbox(None, RUN) as sandbox:
        verdict = in_words(decide(it), it, sandbox)
    assert (verdict.kind, verdict.reason) == ("lossy", "exposed")
    assert verdict.values["in_turn"] is in_turn
    assert ("look at rank 2" in verdict.next_steps) is in_turn
    assert ("no single culprit" in verdict.title) is in_turn


@pytest.mark.parametrize(("low_ms", "leads"), [(5, True), (2, False)])
def test_waiting_whose_cause_is_told_leads_where_it_is_surely_worth_it(
    low_ms: int, leads: bool
) -> None:
    """GIVEN 8 % of waiting for whoever has the longest sequences, and 12 % exposed."""
    waits = finding("jitter", 8, severity="info", savings_low_ns=low_ms * 1_000_000,
                    evidence={"facts": {"is_told": True}})  # fmt: skip
    it = situation(findings=[waits], shares=shares(exposed=0.12))
    assert (decide(it).reason == "jitter") is leads


def test_a_rank_that_most_of_the_waiting_is_for_is_in_the_verdict() -> None:
    """«No single culprit» stood over a first step that named rank 3."""
    waits = finding("jitter", 7, probability=None, basis=Basis.LOSS, severity="info",
                    evidence={"facts": {"mostly": [3]}})  # fmt: skip
    it = situation(findings=[waits], shares=shares(exposed=0.12))
    with Sandbox(None, RUN) as sandbox:
        assert "mostly for rank 3" in in_words(decide(it), it, sandbox).title
