"""A recording without steps has none to count."""

from __future__ import annotations

from advisor.report import humanise, render, summary
from advisor.report.figures import StackedBars
from advisor.report.sections import quality, ranks, steps
from tests.report.support import RUN, make_report, make_store


def test_a_whole_trace_beside_a_run_with_steps_has_none_to_count() -> None:
    report = make_report()
    report.runs.append(
        report.runs[0].model_copy(update={"run": "other", "step_source": "whole-trace"})
    )
    runs = quality.build(report, None, {}).figures[0].table
    assert runs is not None
    assert "median step or whole trace" in runs.columns
    assert [row[3:5] for row in runs.rows] == [[5, 0], ["–", "–"]]
    html = render(report, None, "html")
    assert "A step takes" not in html, "of which run?"


def test_times_of_a_whole_trace_are_in_all() -> None:
    """GIVEN a trace without marked steps THEN pictures, columns and gains are of no step."""
    report = make_report()
    for run in report.runs:
        run.step_source = quality.WHOLE_TRACE
    assert summary.per(report) == "in all"
    assert humanise.column("wait_ns_per_step", summary.per(report))[0] == "wait, ms in all"
    with make_store() as store:
        store.con.execute("UPDATE step SET source = 'whole-trace'")
        drawn = steps.build(store, RUN)
        late = ranks.build(store, RUN)
    assert drawn is not None
    assert isinstance(drawn.figures[0].drawing, StackedBars)
    assert drawn.figures[0].drawing.axis == "ms in all"
    assert late is not None
    assert late.figures[0].table is not None
    assert "each peer waits in all" in late.figures[0].table.columns


def test_symbols_of_evidence_tables_stand_beside_their_meaning() -> None:
    names = ["alpha_ns", "beta_ns_per_byte", "n_star_bytes", "r2", "on_path_ns"]
    titles, rows = humanise.table(names, [[2_000_000, 0.33, 600_000, 0.97, 5_000_000]])
    assert all(len(title.split()) > 2 for title in titles)
    assert rows[0] == ["2", "0.33", "600 kB", "0.97", "5"]


def test_columns_that_nobody_could_guess_say_what_they_hold() -> None:
    """Evidence tables of findings, whose columns are named as the store names them."""
    names = [
        "pace",
        "tiny",
        "behind_in",
        "waits_in",
        "imbalance",
        "unfinished",
        "peer_ns",
        "dur_ns",
    ]
    titles, _ = humanise.table(names, [[1] * len(names)])
    assert not {name.replace("_", " ") for name in names} & {*titles}
    assert len({*titles}) == len(names)
    assert "came last" in humanise.table(["times_last"], [[1]])[0]
