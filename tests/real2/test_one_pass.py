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


def test_a_launch_that_loads_was_not_queued(tmp_path: Path) -> None:
    """A first pass of TensorFlow: the first launch takes 1,294 ms, for it makes the context."""
    trace = Trace()
    trace.host("cudaLaunchKernel", 0, 9_000, cat="cuda_runtime", correlation=9000)
    trace.kernel(GEMM, 9_002, 5_000, 0, launch=9000)
    for at in range(4):
        trace.kernel(GEMM, 14_010 + 5_010 * at, 5_000, 9_100 + at)
    with _loaded(tmp_path, trace) as run:
        (edge,) = run.sql("SELECT edge, kind FROM edge_gap").to_dict("records")
        assert edge == {"edge": "leading", "kind": "loading"}


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


@pytest.mark.parametrize("queued", [False, True])
def test_what_a_host_does_before_the_first_kernel_of_a_lone_step_is_named(
    tmp_path: Path, queued: bool
) -> None:
    """A video model's pipeline on an H100 (AMD-AGI/TraceLens): its preprocessing takes 218 ms."""
    preprocess = "transformers/pipelines/video_classification.py(129): preprocess"
    trace = Trace()
    trace.host("ProfilerStep#6", 0, 383_000, cat="user_annotation")
    trace.host("threading.py(1032): _bootstrap", 0, 383_000, cat="python_function")
    trace.host(preprocess, 100, 217_000, cat="python_function")
    for at in range(16):
        asked = 50 if queued else 218_000
        trace.kernel(GEMM, 218_500 + 10_000 * at, 9_900, asked + 10 * at)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.reason == "idle"
        named = verdict.values["idling_name"].endswith("preprocess")
        assert named is not queued
        assert verdict.next_steps[1].startswith("Do that ahead") is not queued


@pytest.mark.parametrize("loads_ms", [5, 20])
def test_a_loader_before_the_only_pass_is_named(tmp_path: Path, loads_ms: int) -> None:
    """A ViT's first batch (Yeok-c/sustainbench): 5.1 of 8.6 s before its pass are the loader's."""
    trace = Trace()
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    trace.host(name, 10, 1000 * loads_ms, cat="user_annotation")
    for at in range(20):
        trace.kernel(GEMM, 30_100 + 1_000 * at, 990, 30_020 + 10 * at)
    with _loaded(tmp_path, trace) as run:
        (edge,) = run.sql("SELECT edge, kind FROM edge_gap").to_dict("records")
        kind = "data-loading" if loads_ms > 15 else "before-work"
        assert edge == {"edge": "leading", "kind": kind}
        assert run.report.verdict.reason == "before"
        one = run.report.runs[0]
        said = [note.text for note in (*one.notes, *one.caveats)]
        assert any("in the data loader" in text for text in said) is (loads_ms > 15)


def test_a_loader_before_the_first_kernel_of_a_lone_step_is_found(tmp_path: Path) -> None:
    trace = Trace()
    trace.host("ProfilerStep#1", 0, 54_000, cat="user_annotation")
    trace.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 30_000)
    for at in range(20):
        trace.kernel(GEMM, 30_100 + 1_000 * at, 990, 30_020 + 10 * at)
    with _loaded(tmp_path, trace) as run:
        (found,) = [item for item in run.report.findings if item.rule == "data-loader-stall"]
        assert found.savings_ns == pytest.approx(30e6, rel=0.1)


def test_kernels_that_take_no_time_hide_nothing_whatever_they_are(tmp_path: Path) -> None:
    """JAX (Yu-gyoung-Yun/alpa): 0.4 ms of a second is of kernels that nobody knows."""
    trace = Trace()
    for at in range(9):
        trace.kernel("wrapped_thing", 1 + 100_000 * at, 40, 100_000 * at)
    with _loaded(tmp_path, trace) as run:
        assert run.report.verdict.reason == "idle"


def test_idle_time_that_no_finding_claims_is_said_beside_a_finding(tmp_path: Path) -> None:
    """Models made and compiled one after the other (Tianshi-Xu/assignment2-systems): copies take
    2.5 of 12 s, launches half a second, and 5.9 s the host does other work."""
    trace = Trace()
    begin = 0.0
    for _ in range(10):
        trace.kernel("Memcpy HtoD (Pageable -> Device)", begin, 25_000, begin)
        begin += 25_000
        for _ in range(10):
            trace.kernel(GEMM, begin + 600, 2_000, begin + 590)
            begin += 2_600
        begin += 60_000
    trace.kernel(GEMM, begin, 2_000, begin - 5)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.cause == "exposed-copies"
        assert "Beside that 5" in verdict.why
        assert verdict.why.endswith("of it the host does other work.")


def test_what_a_host_does_beside_a_finding_is_named(tmp_path: Path) -> None:
    """torch.square of data made on the host (joker-star-l/profiling-cuda-in-torch, V100): the copy
    of 83 ms led, and 660 ms of aten::randn a step were other work without a name."""
    trace = Trace()
    for number in range(2):
        begin = 1000.0 + 745_000 * number
        trace.host(f"ProfilerStep#{number}", begin, 744_900, cat="user_annotation")
        trace.host("aten::randn", begin + 10, 660_000)
        trace.kernel("Memcpy HtoD (Pageable -> Device)", begin + 660_300, 82_500, begin + 660_050)
        trace.kernel(GEMM, begin + 743_800, 1_000, begin + 743_700)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.cause == "exposed-copies"
        assert "the host does other work (`aten::randn`)" in str(verdict.why)
