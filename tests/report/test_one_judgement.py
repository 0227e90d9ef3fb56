"""Sections of one report do not contradict each other, nor count the same thing twice."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from advisor.findings import Basis, Effect, VerdictKind
from advisor.metrics.lateness.by_step import waited_for
from advisor.metrics.models.speeds import speeds
from advisor.metrics.steps.used import step_time
from advisor.report import page as html
from advisor.report import render, summary
from advisor.report.charts import draw
from advisor.report.figures import HeatMap
from advisor.report.replayed import Replayed, lines, not_replayed, replayed
from advisor.report.sections import ranks, size, steps, whatif
from advisor.store.store import Store
from tests.report.support import make_report, make_store

RUN = "test-data"  # of make_store


def predictions(store: Store, *, step_ns: int, gain_low_ns: int | None, late: str = "7") -> str:
    """The title of what a rank on time gives, where a step of 100 ms was measured."""
    store.con.execute("DELETE FROM whatif")
    store.con.execute(
        "INSERT INTO whatif (run, setting, value, is_current, step_ns, step_low_ns, step_high_ns,"
        " measured_step_ns, replayed_step_ns, extrapolates, gain_low_ns, gain_high_ns)"
        " VALUES ('run', 'without-lateness', ?, false, ?, 80000000, 108000000, 100000000,"
        " 100000000, false, ?, 20000000)",
        [late, step_ns, gain_low_ns],
    )
    gain_ns, low_ns = 100_000_000 - step_ns, gain_low_ns or 0
    own = make_report().findings[0].model_copy(
        update={"savings_ns": gain_ns, "savings_low_ns": low_ns, "savings_high_ns": 20_000_000,
                "basis": Basis.RULE, "probability": 0.95}
    )  # fmt: skip
    section = whatif.build(store, "run", [own])
    assert section is not None
    return section.line


@pytest.mark.parametrize(
    ("step_ns", "gain_low_ns", "title"),
    [
        (90_000_000, 5_000_000, "Rank 7 on time would save 10 ms (5–20 ms) per step"),
        (
            94_000_000,
            0,
            "Rank 7 on time may save up to 20 ms per step, or nothing",
        ),
        (
            94_000_000,
            None,
            "Rank 7 on time may save up to 20 ms per step, or nothing",
        ),
        (99_900_000, 0, "No finding asks for a change that was replayed"),
    ],
)
def test_a_gain_that_a_finding_names_is_not_called_none(
    step_ns: int, gain_low_ns: int | None, title: str
) -> None:
    with make_store() as store:
        assert predictions(store, step_ns=step_ns, gain_low_ns=gain_low_ns) == title


def test_the_typical_step_is_the_median_that_the_findings_name() -> None:
    with make_store(steps=4) as store:
        store.con.execute(
            "UPDATE step_breakdown SET idle_ns = idle_ns + 50000000 * step,"
            " window_ns = window_ns + 50000000 * step"
        )
        store.con.execute("UPDATE step SET end_ns = end_ns + 50000000 * step")
        named = step_time(store.con, RUN)
        own = steps.build(store, RUN)
    assert own is not None
    assert named is not None
    assert f"more than the median {round(named / 1e6)} ms" in own.figures[-1].title


def test_a_gain_of_nothing_is_no_measured_time() -> None:
    finding = make_report().findings[0]
    nothing = {"savings_ns": 0, "savings_low_ns": 0, "savings_high_ns": 0}
    assert summary.per_step(finding.model_copy(update=nothing)) == "–"
    assert summary.gain(finding.model_copy(update=nothing)) == "nothing by itself"
    perhaps = {**nothing, "savings_high_ns": 2_000_000}
    assert summary.per_step(finding.model_copy(update=perhaps)) == "up to 2 ms"


@pytest.mark.parametrize("gain_ns", [2_000_000, 6_000_000, 12_000_000])
def test_a_gain_that_may_be_none_is_up_to_its_high_end_everywhere(gain_ns: int) -> None:
    """Wherever in its interval the estimate lies, also where the interval looks symmetric."""
    report = make_report()
    gain = {"savings_ns": gain_ns, "savings_low_ns": 0, "savings_high_ns": 12_000_000}
    first = report.findings[0].model_copy(update={**gain, "savings_share": gain_ns / 100_000_000})
    report = report.model_copy(update={"findings": [first, *report.findings[1:]]})
    assert summary.per_step(first) == "up to 12 ms"
    assert summary.share(first) == "up to 12 %"
    for form in ("text", "html", "markdown", "github", "junit"):
        text = render(report, None, form).replace("\N{NO-BREAK SPACE}", " ")
        assert "up to 12 ms" in text, form
        assert not re.search(r"\(0–12\)|±6|±10", text), form
    assert '"savings_low_ns": 0' in render(report, None, "json")


def test_the_arithmetic_of_a_run_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    count = html.speeds

    def counted(con: Any, run: str) -> Any:
        asked.append(run)
        return count(con, run)

    monkeypatch.setattr(html, "speeds", counted)
    with make_store() as store:
        render(make_report(), store, "html")
    assert asked == [RUN]


def test_an_nsys_export_is_not_told_of_kinetos_options() -> None:
    with make_store() as store:
        kineto = size.missing(speeds(store.con, RUN))
        store.con.execute("UPDATE source SET format = 'nsys'")
        nsys = size.missing(speeds(store.con, RUN))
    assert [what for _, what in kineto] == [what for _, what in nsys]
    assert nsys
    assert all(how.startswith("An nsys export does not hold") for how, _ in nsys)
    assert not re.search("activities=", str(nsys))


def test_others_wait_for_the_rank_that_is_late_as_long_as_they_wait() -> None:
    """Rank 2 keeps three ranks waiting 20 ms in each of five steps."""
    with make_store(late_rank=2) as store:
        found = waited_for(store.con, RUN)
    assert found[2] == pytest.approx(dict.fromkeys(range(5), 20e6))
    assert all(not any(found[rank].values()) for rank in (0, 1, 3))


def test_peers_are_those_that_share_calls_with_the_late_rank() -> None:
    """Cost is a mean over all others; of whom one in two meets the rank, each waits twice that."""
    with make_store(late_rank=2) as store:
        store.con.execute(
            "UPDATE lateness SET reason_evidence = '{\"others_per_peer\": 2.0}' WHERE rank = 2"
        )
        found = waited_for(store.con, RUN)
        listed = ranks.build(store, RUN)
        drawn = ranks.heat_map(store, RUN, [2])
    assert found[2] == pytest.approx(dict.fromkeys(range(5), 40e6))
    assert listed is not None and listed.figures[0].table is not None
    assert listed.figures[0].table.rows[0][:2] == [2, "40 ms"]
    assert drawn is not None and "40 ms" in drawn.title


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("count", "most_rows"), [(4, 4), (64, 32), (512, 32)])
def test_the_picture_of_many_ranks_leaves_the_first_screen_room_for_findings(
    count: int, most_rows: int
) -> None:
    with make_store(count, 2, calls=2, late_rank=2) as store:
        drawn = ranks.heat_map(store, RUN, [2])
    assert drawn is not None and isinstance(drawn.drawing, HeatMap)
    assert len(drawn.drawing.rows) <= most_rows
    assert "rank 2" in drawn.drawing.rows
    assert draw(drawn.drawing).height <= 160


def test_all_ranks_of_a_late_host_are_late_in_the_picture() -> None:
    with make_store(late_rank=2) as store:
        store.con.execute(
            "UPDATE lateness SET reason_evidence = '{\"with\": [2, 3]}' WHERE rank = 2"
        )
        found = waited_for(store.con, RUN)
    assert found[3] == found[2] == pytest.approx(dict.fromkeys(range(5), 20e6))
    assert not any(found[0].values())


@pytest.mark.parametrize("form", ["text", "markdown", "github", "junit"])
def test_every_view_says_what_a_finding_rests_on_in_its_own_words(form: str) -> None:
    report = make_report()
    because = ["Its peers wait 20 ms.", "Its compute takes longer."]
    first = report.findings[0].model_copy(update={"because": because, "message": "A detail."})
    report = report.model_copy(update={"findings": [first]})
    said = " ".join(render(report, None, form, verbose=True).split())
    assert " ".join(because) in said
    assert ("A detail." in said) == (form == "text")


def test_ranks_are_not_drawn_where_the_picture_would_accuse_another() -> None:
    """In a pipeline the next stage passes a delay on, and is waited for longer than its origin."""
    with make_store(late_rank=2) as store:
        assert ranks.heat_map(store, RUN, [2]) is not None
        assert ranks.heat_map(store, RUN, [0, 1, 2, 3]) is not None
        assert ranks.heat_map(store, RUN, [1]) is None


def test_what_is_waited_after_a_pause_stands_in_the_step_of_the_pause() -> None:
    """Rank 2 saves behind the last call of steps 0 and 2: its peers wait in steps 1 and 3."""
    with make_store(late_rank=2) as store:
        waited = json.dumps({1: 20_000_000, 3: 30_000_000})
        store.con.execute("UPDATE lateness SET wait_by_step = ? WHERE rank = 2", [waited])
        drawn = ranks.heat_map(store, RUN, [2], pauses=[0, 2])
    assert drawn is not None and isinstance(drawn.drawing, HeatMap)
    assert drawn.drawing.cells_ns[2] == pytest.approx([20e6, 0, 30e6, 0, 0])


@pytest.mark.parametrize("form", ["text", "markdown", "github", "junit", "html"])
@pytest.mark.parametrize(("probability", "probably"), [(0.7, True), (0.95, False), (0.3, False)])
def test_a_row_says_probably_where_a_verdict_on_it_does(
    form: str, probability: float, probably: bool
) -> None:
    report = make_report()
    first = report.findings[0].model_copy(
        update={"basis": Basis.RULE, "probability": probability, "title": "Rank 2 is slow"}
    )
    report = report.model_copy(update={"findings": [first]})
    said = " ".join(render(report, None, form, verbose=True).split())
    assert ("Probably rank 2 is slow" in said) == probably


def test_one_cause_has_one_gain_beside_the_predictions_too() -> None:
    """A replay that a finding rests on has its interval; of an effect the finding speaks alone."""
    own = make_report().findings[0].model_copy(
        update={"savings_ns": 10_000_000, "savings_low_ns": 1_000_000,
                "savings_high_ns": 31_000_000, "probability": 0.7}
    )  # fmt: skip
    other = own.model_copy(
        update={"savings_ns": 7_000_000, "merged": [Effect(rule="straggler-rank")]}
    )
    with make_store() as store:
        predictions(store, step_ns=90_000_000, gain_low_ns=5_000_000)
        said = whatif.build(store, "run", [own])
        assert said is not None and said.figures[0].table is not None
        assert said.figures[0].table.rows[0][1] == "saves 10 ms (1–31 ms)"
        sure = own.model_copy(update={"probability": 0.95, "basis": Basis.RULE})
        between = whatif.build(store, "run", [sure])
        assert between is not None and between.figures[0].table is not None
        assert between.figures[0].table.rows[0][1] == "saves 1–31 ms"
        without = whatif.build(store, "run", [other])
        assert without is None


def test_a_setting_that_a_finding_advises_gives_what_the_finding_says() -> None:
    """GIVEN replays of two caps that give 20 ms, and a finding that bounds one by 12 ms."""
    advice = "Larger buckets.\nDistributedDataParallel(model, bucket_cap_mb=25)"
    own = make_report().findings[0].model_copy(
        update={"savings_ns": 10_000_000, "savings_low_ns": 1_000_000,
                "savings_high_ns": 12_000_000, "fix": [advice],
                "sets": {"bucket_cap_mb": "25"}}
    )  # fmt: skip
    with make_store() as store:
        predictions(store, step_ns=80_000_000, gain_low_ns=5_000_000)
        store.con.execute("UPDATE whatif SET setting = 'bucket_cap_mb', value = '25'")
        store.con.execute(
            "INSERT INTO whatif SELECT * REPLACE ('250' AS value) FROM whatif WHERE value = '25'"
        )
        alone = replayed(store, "run", [])
        found = replayed(store, "run", [own])
    assert alone == []
    assert [(it.name, it.finding) for it in found] == [("bucket_cap_mb=25", own.id)]
    (it,) = found
    assert (it.gain_low_ns, it.gain_ns, it.gain_high_ns) == (1_000_000, 10_000_000, 12_000_000)


def test_values_of_a_setting_that_give_nothing_share_a_line() -> None:
    """GIVEN caps of which two cost and one is in the noise THEN there are two lines, and no line
    of a change that gives time but that no finding asks for."""
    with make_store() as store:
        predictions(store, step_ns=80_000_000, gain_low_ns=5_000_000)
        store.con.execute(
            "INSERT INTO whatif SELECT w.* REPLACE ('bucket_cap_mb' AS setting, v.value AS value,"
            " v.step AS step_ns, v.low AS gain_low_ns, v.high AS gain_high_ns) FROM whatif w,"
            " (VALUES ('100', 120000000, -30000000, -10000000), ('9', 110000000, -20000000,"
            " -5000000), ('25', 100000000, -1000000, 1000000)) v(value, step, low, high)"
        )
        said = lines(replayed(store, "run", []))
    assert [line[0] for line in said] == ["bucket_cap_mb=25", "bucket_cap_mb=9, 100"]


def test_a_host_is_late_by_what_a_finding_says_of_one_of_its_ranks() -> None:
    """GIVEN rank 3's loader stalls, and ranks 2 and 3 late as a host THEN rank 3 alone is named."""
    stall = make_report().findings[0].model_copy(
        update={"rule": "data-loader-stall", "ranks": [3], "claims": {"wait": 6_000_000},
                "savings_ns": 7_000_000}
    )  # fmt: skip
    elsewhere = stall.model_copy(update={"ranks": [1]})
    with make_store(late_rank=2) as store:
        store.con.execute(
            "UPDATE lateness SET reason_evidence = '{\"with\": [2, 3]}' WHERE rank = 2"
        )
        predictions(store, late="2", step_ns=90_000_000, gain_low_ns=5_000_000)
        store.con.execute("UPDATE whatif SET run = ?", [RUN])
        for finding, named in ((stall, "rank 3"), (elsewhere, "ranks 2, 3")):
            listed = ranks.build(store, RUN, [finding])
            assert listed is not None and named in listed.line
            assert whatif.build(store, RUN, [finding]) is None


def test_a_loss_with_nobody_behind_it_has_no_probability_in_any_view() -> None:
    """GIVEN exposed time as the verdict's finding THEN no view says how sure a cause is."""
    report = make_report()
    loss = report.findings[0].model_copy(update={"probability": None, "basis": Basis.LOSS})
    verdict = report.verdict.model_copy(
        update={"kind": VerdictKind.LOSSY, "finding": loss.id, "cause": loss.rule}
    )
    report = report.model_copy(update={"findings": [loss], "verdict": verdict})
    assert "%" not in summary.state(report)
    with make_store() as store:
        for form in ("text", "html", "markdown", "chat"):
            assert "% sure" not in render(report, store, form)
    with_one = loss.model_copy(update={"probability": 0.94, "basis": Basis.RULE})
    assert "94 %" in summary.state(report.model_copy(update={"findings": [with_one]}))
    for known, value in (("few_calls", True), ("mostly", [0])):
        unsure = with_one.model_copy(deep=True)
        unsure.evidence.facts[known] = value
        assert "%" not in summary.state(report.model_copy(update={"findings": [unsure]}))


def test_a_gain_that_no_replay_shows_stands_beside_the_replays() -> None:
    finding = make_report().findings[0]
    row = Replayed("late_rank=1", "late_rank", 90, 80, 95, 100, 100, 5, 20, finding=finding.id)
    assert not_replayed([row], [finding], 100) == []
    ((title, _),) = not_replayed([], [finding], 100)
    assert title == finding.title
    assert not_replayed([], [finding.model_copy(update={"savings_ns": None})], 100) == []
