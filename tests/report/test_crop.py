"""The crop of a finding draws what compute hides apart from what is exposed."""

from __future__ import annotations

import pytest

from advisor.findings import Finding, Window
from advisor.messages import on_page
from advisor.report.charts import draw
from advisor.report.charts.scene import Rect
from advisor.report.crop import figure
from advisor.report.figures import RankLane, Span, Timeline
from advisor.report.sections.findings import views
from advisor.store import Store
from tests.report.support import MS, RUN, make_report, make_store


def a_finding_and_rank_2s_call(store: Store) -> tuple[Finding, int]:
    """A finding that has a moment to draw, and when rank 2's call of that step begins, ns."""
    finding = next(item for item in make_report().findings if item.evidence.window)
    (start,) = store.con.execute(
        "SELECT start_ns FROM collective WHERE run = ? AND rank = 2 AND step = 0", [RUN]
    ).fetchone()
    return finding, start


def test_transfer_under_compute_is_drawn_as_hidden() -> None:
    """GIVEN rank 2's transfer of 20 ms from 70 ms on, with compute under 5 ms of it, in two."""
    with make_store() as store:
        finding, start = a_finding_and_rank_2s_call(store)
        for begin, length, stream in ((4, 3, 7), (5, 2, 8), (10, 2, 7)):  # two overlap
            store.con.execute(
                "INSERT INTO activity (run, rank, kind, start_ns, end_ns, stream)"
                " VALUES (?, 2, 'compute', ?, ?, ?)",
                [RUN, start + begin * MS, start + (begin + length) * MS, stream],
            )
        made = figure(store, finding)
    assert made is not None
    assert made.drawing is not None
    assert ("hidden-comm", "hidden communication") in made.legend
    drawn = [
        mark.title.removeprefix("rank 2: ").split(", all_reduce")[0]
        for mark in draw(made.drawing).marks
        if isinstance(mark, Rect)
        and mark.title.startswith("rank 2:")
        and "all_reduce" in mark.title
    ]
    assert sorted(drawn) == [
        "exposed transfer, 3 ms",
        "exposed transfer, 4 ms",
        "exposed transfer, 8 ms",
        "hidden communication, 2 ms",
        "hidden communication, 3 ms",
    ]


@pytest.mark.parametrize("filled", [0.3, 0.8])
def test_hidden_and_exposed_of_one_stretch_do_not_cover_one_another(filled: float) -> None:
    spans = [
        Span("transfer", 0, 100, folded=True, filled=1 - filled),
        Span("hidden-comm", 0, 100, folded=True, filled=filled),
    ]
    scene = draw(Timeline([RankLane(0, spans)], 100, 0, "the crop"))
    exposed, hidden = (mark for mark in scene.marks if isinstance(mark, Rect))
    assert hidden.y + hidden.height == pytest.approx(exposed.y)


def test_the_culprit_has_the_first_lane_and_few_marks_fold_what_is_short() -> None:
    with make_store(8) as store:
        finding = next(item for item in make_report(ranks=8).findings if item.evidence.window)
        whole, folded = figure(store, finding), figure(store, finding, 4)
    assert whole is not None and folded is not None
    assert isinstance(whole.drawing, Timeline) and isinstance(folded.drawing, Timeline)
    assert [lane.culprit for lane in whole.drawing.lanes] == [True, False, False, False]
    assert sum(len(lane.spans) for lane in folded.drawing.lanes) <= 4
    # AND what is folded without gaps is a full bar, of which nothing need be said
    assert not any(span.is_low for lane in folded.drawing.lanes for span in lane.spans)
    assert folded.note == whole.note


@pytest.mark.parametrize(("part", "whole"), [(1, True), (2, False)])
def test_a_step_whose_ranks_begin_apart_is_that_of_all_ranks(part: int, whole: bool) -> None:
    """It is longer than any rank's, so that its length alone reads as a mistake."""
    with make_store(4) as store:
        finding = next(item for item in make_report(ranks=4).findings if item.evidence.window)
        (step, start, end) = store.con.execute(
            "SELECT step, min(start_ns), max(end_ns) FROM step WHERE step = 2 GROUP BY ALL"
        ).fetchone()  # type: ignore[misc]
        window = Window(start_ns=start, end_ns=start + (end - start) // part, ranks=[0], step=step)
        evidence = finding.evidence.model_copy(update={"window": window})
        made = figure(store, finding.model_copy(update={"evidence": evidence}))
    assert made is not None
    values = {"length_ns": window.end_ns - start, "step": step, "whole": whole}
    assert made.title == on_page("shows-most", **values)


def test_a_call_of_unnamed_kind_is_no_other_call() -> None:
    with make_store() as store:
        store.con.execute("UPDATE collective SET op = 'other'")
        made = figure(store, next(it for it in make_report().findings if it.evidence.window))
    assert made is not None and isinstance(made.drawing, Timeline)
    labels = {span.label.split(" ")[0] for lane in made.drawing.lanes for span in lane.spans}
    assert "call" in labels and "other" not in labels


def test_a_moment_that_two_findings_show_is_drawn_once_for_the_verdicts_own() -> None:
    report = make_report()
    with make_store() as store:
        first = next(item for item in report.findings if item.evidence.window)
        for name in ("again", "about"):
            report.findings.append(first.model_copy(update={"id": name}))
        report.verdict.finding = "about"
        shown = [view.finding.id for view in views(report, store) if view.timeline]
    assert "about" in shown
    assert first.id not in shown
    assert "again" not in shown


def test_what_is_drawn_has_a_colour_and_a_legend() -> None:
    """GIVEN a stream that waits for another THEN it is idle: no bar without a colour hides work."""
    with make_store() as store:
        finding, start = a_finding_and_rank_2s_call(store)
        store.con.execute(
            "INSERT INTO activity (run, rank, kind, start_ns, end_ns) VALUES (?, 2, 'sync', ?, ?)",
            [RUN, start, start + 10 * MS],
        )
        made = figure(store, finding)
    assert made is not None
    assert isinstance(made.drawing, Timeline)
    kinds = {span.kind for lane in made.drawing.lanes for span in lane.spans}
    assert kinds == {kind for kind, _ in made.legend}
