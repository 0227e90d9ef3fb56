"""Generated recordings of one device by itself, of the shapes that public ones have: a step or a
few, no ``distributedInfo``, a capture, a start, names of 2021."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.api import Run, load
from advisor.findings import VerdictKind
from tests.real2.test_generated import GEMM, Trace, _loaded, _steps
from tests.support.marks import thinned

pytestmark = pytest.mark.slow


def _alone() -> Trace:
    trace = Trace()
    del trace.head["distributedInfo"]
    return trace


def _rules(run: Run) -> set[str]:
    return {item.rule for item in run.report.findings}


def _short_kernels(trace: Trace, begin: float, count: int) -> None:
    """Kernels of 8 µs, one every 50 µs: as the host launches them."""
    for at in range(count):
        trace.kernel(GEMM, begin + 50 * at + 10, 8, begin + 50 * at)


def test_one_step_of_one_device_is_judged(tmp_path: Path) -> None:
    """A model served by itself: ProfilerStep#6, 84 % of it idle between short kernels."""
    trace = _alone()
    trace.host("ProfilerStep#6", 0, 8000, cat="user_annotation")
    _short_kernels(trace, 10, 158)
    with _loaded(tmp_path, trace) as run:
        assert run.report.runs[0].world_size == 1
        assert run.report.verdict.cause == "launch-bound"
        assert run.report.findings[0].savings_ns == pytest.approx(42_000 * 157, rel=0.05)


def test_a_range_of_nccl_tells_of_other_ranks(tmp_path: Path) -> None:
    """Neither distributedInfo nor a kernel of NCCL, but its range: this was one rank of several."""
    trace = _alone()
    trace.host("ProfilerStep#6", 0, 8000, cat="user_annotation")
    trace.host("nccl:all_reduce", 100, 20, cat="user_annotation")
    _short_kernels(trace, 10, 158)
    with _loaded(tmp_path, trace) as run:
        assert run.report.runs[0].world_size is None
        assert run.report.verdict.reason == "no-communication"
        assert "launch-bound" not in _rules(run)


def test_ranges_were_operators_before_2022(tmp_path: Path) -> None:
    """ResNet-50, num_workers=0: 60 of 160 ms in the loader, all host ranges called 'Operator'."""
    trace = _alone()
    for number, begin in enumerate(_steps(trace, 6, 160_000)):
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        trace.host(loader, begin + 100, 60_000)
        for at in range(100):
            trace.kernel(GEMM, begin + 60_200 + 990 * at, 985, begin + 60_110 + 20 * at)
        trace.host(f"Optimizer.step#SGD.step {number}", begin + 150_000, 100)
    for event in trace.events:
        if event["cat"] in ("user_annotation", "cpu_op"):
            event["cat"] = "Operator"
        event["cat"] = {"kernel": "Kernel", "cuda_runtime": "Runtime"}.get(
            event["cat"], event["cat"]
        )
    with _loaded(tmp_path, trace) as run:
        assert run.report.runs[0].step_source == "ProfilerStep"
        assert run.report.verdict.cause == "data-loader-stall"
        assert run.report.findings[0].savings_ns == pytest.approx(60_000_000, rel=0.05)


def test_first_launches_load_their_kernels(tmp_path: Path) -> None:
    """hipLaunchKernel takes 6.5 ms: nothing was queued, and no launch is late every time."""
    trace = _alone()
    trace.host("ProfilerStep#1", 0, 9300, cat="user_annotation")
    for at in (100.0, 200.0):
        trace.kernel(GEMM, at + 10, 80, at)
    trace.host("cudaLaunchKernel", 300, 6500, cat="cuda_runtime", correlation=9001)
    trace.kernel(GEMM, 6805, 90, 0, launch=9001)
    for at in range(6900, 9200, 100):
        trace.kernel(GEMM, at, 99, at - 150)
    with _loaded(tmp_path, trace) as run:
        kinds = run.sql("SELECT kind, idle_ns FROM host_gap ORDER BY idle_ns DESC LIMIT 1")
        assert kinds["kind"][0] == "loading"
        assert not {"idle-with-queued-work", "launch-bound"} & _rules(run)
        assert run.report.verdict.values["idling_kind"] == "loading"


def test_a_trace_that_mostly_starts_up_is_about_that(tmp_path: Path) -> None:
    """Nsight, a laptop, five forwards without a mark: 28 % of it loads, the most is other work."""
    trace = _alone()
    trace.kernel(GEMM, 110, 80, 100)
    at = 0.0
    for number in range(5):
        at = 80_000.0 * number + 50_000
        trace.kernel(GEMM, at - 500, 450, at - 600)
        trace.host("cudaLaunchKernel", at, 20_000, cat="cuda_runtime", correlation=9001 + number)
        trace.kernel(GEMM, at + 20_005, 90, 0, launch=9001 + number)
        for small in range(40):
            trace.kernel(GEMM, at + 20_200 + 200 * small, 20, at + 20_195 + 200 * small)
    with _loaded(tmp_path, trace) as run:
        assert (run.report.verdict.kind, run.report.verdict.reason) == (VerdictKind.LOSSY, "idle")
        assert run.report.verdict.values["idling_kind"] == "start"


def test_a_capture_is_no_lost_time(tmp_path: Path) -> None:
    """A graph is captured for 50 of 58 ms; two kernels run, at the ends."""
    trace = _alone()
    trace.kernel(GEMM, 110, 100, 100)
    trace.host("cudaStreamBeginCapture", 300, 5, cat="cuda_runtime")
    for at in range(400, 50_000, 50):
        trace.host("cudaLaunchKernel", at, 5, cat="cuda_runtime", correlation=20_000 + at)
    trace.host("cudaStreamEndCapture", 50_200, 100, cat="cuda_runtime")
    trace.kernel(GEMM, 57_900, 100, 57_880)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert (verdict.kind, verdict.reason) == (VerdictKind.INCONCLUSIVE, "captured")
        assert "launch-bound" not in _rules(run)


def test_a_loader_that_stalls_some_steps_is_of_the_mean_step(tmp_path: Path) -> None:
    """Every third step waits 600 ms for its batch: never all of a step."""
    trace = _alone()
    begin = 1000.0
    for number in range(12):
        wait = 600_000 if number % 3 == 2 else 100
        trace.host(f"ProfilerStep#{number}", begin, wait + 170_000, cat="user_annotation")
        trace.host("enumerate(DataLoader)#_Iter.__next__", begin + 50, wait)
        for at in range(170):
            trace.kernel(GEMM, begin + wait + 200 + 990 * at, 985, begin + wait + 60 + 20 * at)
        begin += wait + 170_010
    with _loaded(tmp_path, trace) as run:
        found = next(it for it in run.report.findings if it.rule == "data-loader-stall")
        assert found.savings_ns == pytest.approx(200_000_000, rel=0.15)
        assert found.savings_share == pytest.approx(200 / 370, rel=0.15)


def test_late_launches_gain_none_of_the_loaders_time(tmp_path: Path) -> None:
    """FashionMNIST on a T4: 50 of 60 ms in the loader, then kernels of 8 µs every 50 µs."""
    trace = _alone()
    for begin in _steps(trace, 5, 60_000):
        trace.host("enumerate(DataLoader)#_Iter.__next__", begin + 5, 50_000)
        _short_kernels(trace, begin + 50_010, 150)
    with _loaded(tmp_path, trace) as run:
        found = next(it for it in run.report.findings if it.rule == "launch-bound")
        assert found.savings_high_ns is not None
        assert found.savings_high_ns < 1.3 * 150 * 42_000
        assert found.savings_ns == pytest.approx(150 * 42_000, rel=0.1)


def test_another_accelerators_launches_are_not_known(tmp_path: Path) -> None:
    """An MTIA's runtime calls are none of CUDA's: no graphs are advised there."""
    trace = _alone()
    for begin in _steps(trace, 4, 8000):
        _short_kernels(trace, begin, 150)
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event |= {"cat": "mtia_runtime", "name": "run_kernel"}
        elif event["cat"] == "kernel":
            event |= {"cat": "mtia_ccp_events", "name": "fc-dtype_Float"}
    with _loaded(tmp_path, trace) as run:
        assert not {"launch-bound", "idle-with-queued-work"} & _rules(run)


@pytest.mark.parametrize("name", ["forward_pass_batch_size_2.json", "trace_2024_11_27_1116.json"])
def test_a_count_or_a_date_in_a_files_name_is_no_rank(tmp_path: Path, name: str) -> None:
    trace = _alone()
    _short_kernels(trace, 10, 158)
    trace.write(tmp_path)
    (tmp_path / "rank0.json").rename(tmp_path / name)
    with load(tmp_path / name) as run:
        assert run.report.runs[0].world_size == 1
        assert run.report.verdict.cause == "launch-bound"


def test_what_is_loaded_once_is_no_fault_of_a_step(tmp_path: Path) -> None:
    """A forward pass: 300 ms of the first launches load kernels, 40 ms are launches as usual."""
    trace = _alone()
    trace.host("ProfilerStep#6", 0, 350_000, cat="user_annotation")
    trace.kernel(GEMM, 60, 8, 40)
    trace.kernel(GEMM, 300_100, 8, 100)
    trace.events[-2]["dur"] = 300_000
    _short_kernels(trace, 301_000, 800)
    with _loaded(tmp_path, trace) as run:
        assert (run.report.verdict.kind, run.report.verdict.reason) == (VerdictKind.LOSSY, "idle")
        assert "launch-bound" in _rules(run)


@pytest.mark.parametrize(("setup_us", "first"), [(2_000_000, True), (1000, False)])
def test_a_first_pass_says_nothing_of_the_next(tmp_path: Path, setup_us: int, first: bool) -> None:
    """A convolution's first pass, 5 ms after a context that took 2 s: its host tries algorithms."""
    trace = _alone()
    trace.host("cudaMalloc", 0, setup_us, cat="cuda_runtime")
    begin = setup_us + 10.0
    _short_kernels(trace, begin, 60)
    for at in range(20):
        wait = begin + 3000 + 100 * at
        trace.kernel(GEMM, wait, 20, wait - 10)
        trace.host("cudaEventSynchronize", wait, 21, cat="cuda_runtime")
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert bool({"launch-bound", "blocking-sync"} & _rules(run)) is not first
        if first:
            assert (verdict.kind, verdict.reason) == (VerdictKind.LOSSY, "idle")
            assert verdict.values["idling_kind"] == "start"
            assert "--skip" in " ".join(verdict.next_steps)


def test_a_transposed_convolution_is_no_training(tmp_path: Path) -> None:
    trace = _alone()
    for begin in _steps(trace, 6, 8000):
        trace.host("aten::convolution", begin, 5)
        trace.kernel("sm80_xmma_dgrad_implicit_gemm_tf32", begin + 20, 7000, begin + 10)
    with _loaded(tmp_path, trace) as run:
        assert set(run.sql("SELECT purpose FROM rank_content")["purpose"]) == {"forward"}


def test_a_cpu_job_alone_is_not_asked_for_more_ranks(tmp_path: Path) -> None:
    trace = _alone()
    for at in range(20):
        trace.host("aten::addmm", 100.0 * at, 90)
        # What profile_memory=True writes is no range.
        trace.host("[memory]", 100.0 * at + 10, 0, cat="cpu_instant_event")
        trace.events[-1]["ph"] = "i"
    # Nor is the span of the profiler itself.
    trace.host("PyTorch Profiler (0)", 0, 2000, cat="Trace")
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.reason == "no-device"
        assert verdict.values["recorded"] == {"operators": 20}
        assert len(verdict.next_steps) == 1


def _copies_and_work(every_us: float) -> Trace:
    """A program of its own, five rounds: copies of 38 ms, 18 ms of work."""
    trace = _alone()
    for at in range(5):
        begin = every_us * at
        trace.kernel("Memcpy HtoD (Pageable -> Device)", begin + 10, 38_000, begin)
        trace.kernel(GEMM, begin + 38_020, 18_000, begin + 38_012)
    return trace


def test_idle_time_beside_a_finding_is_said(tmp_path: Path) -> None:
    """Between two rounds the device waits 180 ms for the host."""
    trace = _copies_and_work(every_us=236_000.0)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.cause == "exposed-copies"
        # Idle are 4 gaps of 180 ms in the 1,000 ms from the first copy to the last kernel.
        assert "Beside that 72 % of the trace is idle" in verdict.why


def test_a_finding_that_is_most_of_the_loss_stands_alone(tmp_path: Path) -> None:
    trace = _copies_and_work(every_us=60_000.0)
    with _loaded(tmp_path, trace) as run:
        assert run.report.verdict.cause == "exposed-copies"
        assert "Beside that" not in run.report.verdict.why


@pytest.mark.parametrize(
    ("kernel", "expected"),
    thinned(
        [
            ("ampere_sgemm_128x64_tn", True),
            ("volta_scudnn_128x64_relu_interior_nn_v1", True),
            ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>", True),
            ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8_ffma_aligna4_alignc4", True),
            ("sm86_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64", False),
            ("ampere_s1688gemm_128x128_ldg8_relu_f2f_stages_32x1_tn", False),
            ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", False),
            (GEMM, False),
        ],
        4,
    ),
)
def test_products_in_plain_fp32_are_told_from_tensor_cores(
    tmp_path: Path, kernel: str, expected: bool
) -> None:
    """A mixture of experts on an A100, three quarters of its time in ampere_sgemm."""
    trace = Trace(device="NVIDIA A100 80GB PCIe")
    for begin in _steps(trace, 6, 8000):
        trace.kernel(kernel, begin + 20, 6000, begin + 10)
        trace.kernel("void at::native::vectorized_elementwise_kernel<4>()", begin + 6020, 1000, 0)
    with _loaded(tmp_path, trace) as run:
        assert ("plain-fp32-matmul" in _rules(run)) is expected
        plain = run.sql("SELECT plain_fp32_ns FROM rank_content")["plain_fp32_ns"].tolist()
        assert plain == [6 * 6_000_000 if expected else 0]
