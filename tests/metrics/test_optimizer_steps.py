"""Traces without step annotations: the optimizer's own steps tell where a step ends."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

import advisor
from advisor.metrics import derive
from advisor.metrics.steps.optimizer import _ends
from tests.metrics.support import load_trace, store_of
from tests.real2.test_generated import GEMM, Trace

MS = 1_000_000


def steps_of(traces: dict[int, dict[str, Any]]) -> list[tuple[Any, ...]]:
    store = store_of(traces)
    derive(store)
    found = store.con.execute(
        "SELECT rank, step, end_ns - start_ns, complete, source FROM step ORDER BY rank, step"
    ).fetchall()
    store.close()
    return [tuple(row) for row in found]


def without_steps(traces: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    kept = {}
    for rank, trace in traces.items():
        events = [e for e in trace["traceEvents"] if "ProfilerStep" not in str(e.get("name"))]
        kept[rank] = {**trace, "traceEvents": events}
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["lab-ddp-compute-bound", "lab-ddp-slow-rank"])
def test_steps_are_found_without_their_annotations(fixtures_dir: Path, folder: str) -> None:
    files = sorted((fixtures_dir / folder).glob("rank*.json.gz"))
    traces = {number: load_trace(path) for number, path in enumerate(files)}
    annotated = steps_of(traces)
    found = steps_of(without_steps(traces))
    assert {row[4] for row in found} == {"optimizer-step"}
    truth = median(row[2] for row in annotated if row[3])
    assert median(row[2] for row in found if row[3]) == pytest.approx(truth, rel=0.05)
    whole = [row for row in found if row[3]]
    assert len(whole) == len(annotated) - len(traces), "the first has no beginning that is known"


def test_optimizers_that_step_together_end_one_step() -> None:
    spans = [(k * 100 * MS + d * MS, k * 100 * MS + d * MS + MS) for k in range(4) for d in (0, 2)]
    assert _ends(spans) == [(k * 100 + 3) * MS for k in range(4)]


def test_a_long_pause_joins_no_steps() -> None:
    starts = [0, 100, 200, 5000, 5100, 5200]
    assert len(_ends([(start * MS, (start + 5) * MS) for start in starts])) == 6


@pytest.mark.slow
def test_a_rank_without_optimizer_steps_leaves_all_to_the_period(fixtures_dir: Path) -> None:
    files = sorted((fixtures_dir / "lab-ddp-compute-bound").glob("rank*.json.gz"))
    traces = without_steps({n: load_trace(path) for n, path in enumerate(files)})
    events = traces[0]["traceEvents"]
    traces[0]["traceEvents"] = [e for e in events if "Optimizer" not in str(e.get("name"))]
    assert {row[4] for row in steps_of(traces)} <= {"collective-period", "whole-trace"}


def test_what_lies_between_two_recordings_of_a_rank_is_of_no_step(tmp_path: Path) -> None:
    """GIVEN one recording for each step, which the profiler writes for 40 ms before the next."""
    trace = Trace()
    for begin in range(0, 700_000, 140_000):
        span = {"pid": "Spans", "tid": "PyTorch Profiler", "ts": begin, "dur": 100_000}
        name = "PyTorch Profiler (0)"
        trace.events.append(
            {"ph": "X", "cat": "Trace", "name": name, **span, "args": {"Op count": 0}}
        )
        for number in range(10):
            trace.kernel(GEMM, begin + 100 + 9_900 * number, 9_900, begin + 50 + number)
        trace.host("Optimizer.step#Adam.step", begin + 80, 20, cat="user_annotation")
    trace.write(tmp_path)
    with advisor.load(tmp_path) as run:
        steps = run.sql("SELECT end_ns - start_ns AS ns, source FROM step WHERE used")
    assert list(steps["ns"]) == [99 * MS] * 4
    assert set(steps["source"]) == {"optimizer-step"}


@pytest.mark.slow
def test_ranks_that_train_without_exchanging_anything_are_named(tmp_path: Path) -> None:
    """A plan of tensor parallelism that names no module of the model leaves every rank alone."""
    for rank in (0, 1):
        trace = Trace(rank, 2)
        for begin in range(0, 800_000, 100_000):
            trace.host("aten::mm", begin + 40, 20, **{"External id": 1})
            trace.kernel(GEMM, begin + 100, 99_000, begin + 50)
            trace.host("Optimizer.step#Adam.step", begin + 80, 20, cat="user_annotation")
        trace.write(tmp_path)
    with advisor.load(tmp_path) as run:
        assert run.report.verdict.cause == "unsynchronised-ranks"
        assert run.report.verdict.title == "All 2 ranks train without exchanging anything."
