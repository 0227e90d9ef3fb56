"""Kineto recordings of other people's GPUs: what is true was worked out from the raw files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.api import Run
from advisor.findings import VerdictKind

pytestmark = pytest.mark.slow

MS = 1e6


def _rules(run: Run) -> set[str]:
    return {item.rule for item in run.report.findings}


def _codes(run: Run) -> set[str]:
    return {note.code for one in run.report.runs for note in (*one.notes, *one.caveats)}


def test_a_gather_over_part_of_the_job(real2: Callable[[str], Run]) -> None:
    """c10d::_allgather_base_ of [1073741824] from [16777216], int8: 64 ranks of 128."""
    run = real2("trace_filter.json.gz")
    found = run.sql("SELECT DISTINCT group_size, bytes FROM collective WHERE op = 'all_gather'")
    assert found.to_dict("records") == [{"group_size": 64, "bytes": 1_073_741_824}]
    reduced = run.sql(
        "SELECT bytes FROM collective WHERE op = 'all_reduce' AND group_size IS NULL "
        "ORDER BY start_ns"
    )
    assert {107_822_144, 22_866_616} <= set(reduced["bytes"])


def test_gathers_over_eight_of_sixteen_ranks(real2: Callable[[str], Run]) -> None:
    run = real2("negative_queue_length_values_check.json.gz")
    found = run.sql(
        "SELECT DISTINCT group_size, bytes FROM collective WHERE op = 'all_gather' ORDER BY bytes"
    ).to_dict("records")
    assert [(one["group_size"], one["bytes"]) for one in found] == [
        (8, 16_777_216),
        (8, 100_663_296),
    ]
    # Nothing above what an A100's NVLinks carry one way.
    assert run.sql("SELECT max(busbw_gbps) AS b FROM collective")["b"][0] < 300


def test_the_profiler_stopping_is_no_synchronisation(real2: Callable[[str], Run]) -> None:
    """A cudaDeviceSynchronize of 158 ms 0.09 ms after the last step; the device idles for 62 to
    69 % of every step with work queued behind cudaGraphLaunch."""
    run = real2("negative_queue_length_values_check.json.gz")
    # What the script's own is_nonzero() costs is real: 2.4 ms. The 158 ms are nobody's.
    waits = [it.savings_ns or 0 for it in run.report.findings if it.rule == "blocking-sync"]
    assert sum(waits) == pytest.approx(2.4 * MS, rel=0.1)
    edges = run.sql("SELECT edge, kind FROM edge_gap").to_dict("records")
    assert {"edge": "trailing", "kind": "profiler-stop"} in edges
    steps = run.sql("SELECT idle_ns / window_ns AS idle, window_ns FROM step_breakdown")
    assert steps["idle"].between(0.61, 0.7).all()
    assert steps["window_ns"].between(208e6, 218e6).all()
    assert "idle-with-queued-work" in _rules(run)


def test_a_step_alone_is_its_annotation(real2: Callable[[str], Run]) -> None:
    """ProfilerStep#6 takes 382.5 ms, 218 ms of it before the first kernel."""
    run = real2("h100_timesformer.json.gz")
    assert run.report.runs[0].step_ns_median == pytest.approx(382.5 * MS, rel=0.002)
    (edge,) = run.sql("SELECT edge, end_ns - start_ns AS ns FROM edge_gap").to_dict("records")
    assert edge["edge"] == "leading"
    assert edge["ns"] == pytest.approx(218 * MS, rel=0.01)
    assert "compute-bound" not in _rules(run)


def test_inference_is_called_that(real2: Callable[[str], Run]) -> None:
    """SGLang: one leading gap of 493 ms, then the device is busy."""
    run = real2("sglang_prefilldecode.json.gz")
    content = run.sql("SELECT purpose, engine FROM rank_content").to_dict("records")
    assert content == [{"purpose": "inference", "engine": "SGLang"}]
    (row,) = run.sql("SELECT idle_ns / window_ns AS idle FROM step_breakdown").to_dict("records")
    assert row["idle"] < 0.01
    (edge,) = run.sql("SELECT edge, end_ns - start_ns AS ns FROM edge_gap").to_dict("records")
    assert edge["edge"] == "leading"
    assert edge["ns"] == pytest.approx(493 * MS, rel=0.01)


@pytest.mark.parametrize(
    ("name", "runtime_calls"), [("cupti_profiler.json.gz", 1862), ("rank_non_gpu.json.gz", 0)]
)
def test_without_device_events_nothing_is_said_of_the_device(
    real2: Callable[[str], Run], name: str, runtime_calls: int
) -> None:
    run = real2(name)
    (row,) = run.sql("SELECT device_events, runtime_calls FROM rank_content").to_dict("records")
    assert (row["device_events"], row["runtime_calls"]) == (0, runtime_calls)
    assert _rules(run) == set()
    assert run.report.verdict.cause == "unknown"
    assert "no-device-events" in _codes(run)


def test_copies_that_fill_the_window(real2: Callable[[str], Run]) -> None:
    """95 % of the window is pinned host-to-device copies, 25.5 GB on each of two GPUs."""
    run = real2("nsys_h100_2gpu_1s.sqlite")
    top = run.report.findings[0]
    assert (top.rule, top.ranks) == ("exposed-copies", [0, 1])
    facts = top.evidence.facts
    assert facts["bytes"] == pytest.approx(25.5e9, rel=0.01)
    share = run.sql("SELECT exposed_memory_ns / window_ns AS share FROM step_breakdown")["share"]
    assert (share > 0.95).all()


def test_exposed_communication_is_counted_whole(real2: Callable[[str], Run]) -> None:
    """trace_filter: 168 ms of 611 (28 %); trace_diff_control: 14.7 of 76.9 (19 %)."""
    for name, share in (("trace_filter.json.gz", 0.28), ("trace_diff_control.json.gz", 0.19)):
        found = real2(name).sql(
            "SELECT sum(exposed_comm_ns) / sum(window_ns) AS share FROM step_breakdown"
        )
        assert found["share"][0] == pytest.approx(share, abs=0.01), name


@pytest.mark.parametrize(
    ("name", "exposed"), [("trace_filter.json.gz", 0.28), ("trace_diff_control.json.gz", 0.19)]
)
def test_communication_comes_before_smaller_launch_gaps(
    real2: Callable[[str], Run], name: str, exposed: float
) -> None:
    """One rank of many: what its peers would tell may be more than launching faster gives."""
    run = real2(name)
    shares = run.sql(
        "SELECT sum(exposed_comm_ns) / sum(window_ns) AS exposed, "
        "sum(idle_host_ns) / sum(window_ns) AS late FROM step_breakdown WHERE used"
    )
    assert shares["exposed"][0] == pytest.approx(exposed, abs=0.01)
    assert shares["late"][0] < shares["exposed"][0]
    assert run.report.verdict.kind == VerdictKind.INCONCLUSIVE
    assert run.report.verdict.finding is None
    assert "first-all-gather-exposed" not in _rules(run)


def test_what_idles_a_device_most_is_mended_before_the_other_ranks_are_recorded(
    real2: Callable[[str], Run],
) -> None:
    """GIVEN 55 % idle and 28 % exposed, then 16 % and 19 %, each of one rank of many."""
    for name, place in (("trace_filter.json.gz", 0), ("trace_diff_control.json.gz", 1)):
        report = real2(name).report
        assert report.findings[0].category == "host", name
        fix = report.findings[0].fix[0]
        assert [fix in step for step in report.verdict.next_steps].index(True) == place, name


@pytest.mark.long
def test_six_recordings_make_a_page_below_210_kilobytes(real2: Callable[[str], Run]) -> None:
    """Two of them have timelines of hundreds of kernels, one has 16 ranks of dumps."""
    run = real2("")
    assert len(run.report.runs) >= 6
    assert len(run.render("html").encode()) < 210_000
