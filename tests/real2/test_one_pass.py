"""Generated recordings of one pass without marks, of the shapes that public ones have: what comes
before the device's work, the data of a program that runs once, first uses on one rank of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.findings import VerdictKind
from tests.real2.test_generated import GEMM, Trace, _loaded

pytestmark = pytest.mark.slow


def _decode(asked: float) -> Trace:
    """A token id at 0 ms, then 3.6 ms of kernels that one replay launches at ``asked``, µs."""
    trace = Trace()
    trace.kernel(GEMM, 10, 2, 0)
    trace.host("cudaGraphLaunch", asked, 100, cat="cuda_runtime", correlation=10_000)
    for at in range(36):
        trace.kernel(GEMM, 4000 + 100 * at, 99.5, 0, launch=10_000)
    return trace


def test_what_a_host_does_before_the_only_pass_is_not_called_healthy(tmp_path: Path) -> None:
    """SGLang on B300 (AMD-AGI/TraceLens): 4.1 of 7.7 ms recorded lie before the replay."""
    with _loaded(tmp_path, _decode(3900)) as run:
        verdict = run.report.verdict
        assert (verdict.kind, verdict.reason) == (VerdictKind.INCONCLUSIVE, "before")
        assert "3.6 ms counted; whether the 4 ms before the device's main work" in verdict.title


def test_work_that_was_queued_before_the_recording_is_the_devices(tmp_path: Path) -> None:
    """vLLM on MI300X (the same repository): launched 151 ms before it began, the device busy."""
    with _loaded(tmp_path, _decode(500)) as run:
        assert run.report.verdict.kind is VerdictKind.HEALTHY
        (edge,) = run.sql("SELECT edge, kind FROM edge_gap").to_dict("records")
        assert edge == {"edge": "leading", "kind": "queued"}
        one = run.report.runs[0]
        assert any("queued already" in note.text for note in (*one.notes, *one.caveats))


@pytest.mark.parametrize("inside", [False, True])
def test_a_program_that_runs_once_loads_and_saves(tmp_path: Path, inside: bool) -> None:
    """Six kernels of CUTLASS between copies (wenscarl/cutlass_benchmark): nothing repeats them."""
    trace = Trace()
    begin = 0.0
    if inside:
        trace.kernel(GEMM, begin, 5_000, begin)
        begin += 5_001
    trace.kernel("Memcpy HtoD (Pageable -> Device)", begin, 90_000, begin)
    for at in range(6):
        trace.kernel(GEMM, begin + 90_001 + 20_000 * at, 19_990, begin + 1)
    with _loaded(tmp_path, trace) as run:
        (found,) = [item for item in run.report.findings if item.rule == "exposed-copies"]
        assert found.savings_ns == 90_000_000
        assert found.is_option() is not inside
        assert ("runs once" in " ".join(found.because)) is not inside


def test_first_uses_on_one_rank_of_two_are_no_more_than_all_idle(tmp_path: Path) -> None:
    """Two RTX 4090 (tugot17/tokenomics-from-first-principles): 14 of 13 ms were said."""
    traces = []
    for rank, loads in ((0, 13_600), (1, 0)):
        trace = Trace(rank, 2)
        trace.kernel(GEMM, 0, 10, 0)
        trace.host("cudaLaunchKernel", 20, loads, cat="cuda_runtime", correlation=77_777)
        for at in range(20):
            trace.kernel(GEMM, 13_650 + 20 * at, 19, 13_640 + 20 * at)
        traces.append(trace)
    with _loaded(tmp_path, *traces) as run:
        (row,) = run.sql("SELECT avg(idle_ns) AS ns FROM step_breakdown").to_dict("records")
        said = run.report.verdict.values.get("idling_ns", 0)
        assert said <= row["ns"] * 1.01
