"""Why a device idles: generated recordings of the shapes on which public ones were read wrongly."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from advisor.findings import VerdictKind
from tests.real2.test_generated import GEMM, REDUCE, Trace, _loaded, _steps
from tests.real2.test_single_device import _alone, _rules

pytestmark = pytest.mark.slow


def test_a_launch_that_loads_its_kernel_waits_for_no_device(tmp_path: Path) -> None:
    """Modules' first calls on an MI300X: 990 of 1,069 ms load kernels, after a memset of 17 µs.

    A device that idles has room in its queue: no wait took the lead of what is launched after.
    """
    trace = _alone()
    trace.host("cudaLaunchKernel", 0, 110_000, cat="cuda_runtime", correlation=9000)
    trace.kernel(GEMM, 110_005, 10, 0, launch=9000)
    trace.host("cudaMemset", 110_020, 17, cat="cuda_runtime", correlation=8999)
    trace.kernel("Memset (Device)", 110_028, 5, 0, launch=8999)
    begin = 110_100.0
    for link in range(9001, 9007):
        trace.host("cudaLaunchKernel", begin, 150_000, cat="cuda_runtime", correlation=link)
        trace.kernel(GEMM, begin + 150_005, 10, 0, launch=link)
        begin += 150_100
        for _ in range(5):
            begin += 2000
            trace.kernel(GEMM, begin + 10, 10, begin)
    with _loaded(tmp_path, trace) as run:
        lost = run.sql("SELECT kind, sum(idle_ns) / 1e6 AS ms FROM host_gap GROUP BY kind")
        by_kind = dict(zip(lost["kind"], lost["ms"], strict=True))
        assert by_kind["loading"] == pytest.approx(900, rel=0.02)
        assert by_kind["launch"] == pytest.approx(60, rel=0.2)
        assert "blocking-sync" not in _rules(run)


@pytest.mark.parametrize("once", [True, False])
def test_what_one_pass_does_once_between_kernels_is_no_slow_launching(
    tmp_path: Path, once: bool
) -> None:
    """A ViT's only pass (Yeok-c/sustainbench): 2.5 of 23 ms are Python between copies, two gaps
    before 300 queued kernels. Gaps of 150 µs before many kernels are the host's pace."""
    trace = _alone()
    trace.kernel("Memcpy HtoD (Pageable -> Device)", 0, 4_800, 0)
    trace.kernel("Memcpy HtoD (Pageable -> Device)", 6_640, 40, 6_500)
    begin = 7_400.0
    for at in range(300):
        late = 0 if once or at % 20 else 150
        begin += late
        trace.kernel(GEMM, begin, 50, begin - 3 if late or not at else 7_390)
        begin += 50
    with _loaded(tmp_path, trace) as run:
        assert ("launch-bound" in _rules(run)) is not once
        if once:
            assert run.report.verdict.reason == "idle"
            assert "1.8 ms of it the host does other work" in str(run.report.verdict.why)


@pytest.mark.parametrize("apart_us", [2000, 300])
def test_a_pass_of_first_uses_says_nothing_of_the_next_ones_launches(
    tmp_path: Path, apart_us: int
) -> None:
    """A ResNet's first pass (FrancescoSaverioZuppichini/py4ai): loads 79 of 116 ms, and cuDNN tries
    its algorithms for 2 to 4 ms before a kernel; the second pass idles for 4.9 ms in all."""
    trace = _alone()
    trace.kernel(GEMM, 10, 10, 0)
    begin = 20.0
    for link in range(9001, 9005):
        trace.host("cudaLaunchKernel", begin + 10, 20_000, cat="cuda_runtime", correlation=link)
        trace.kernel(GEMM, begin + 20_015, 10, 0, launch=link)
        begin += 20_025
        for _ in range(9000 // apart_us):
            begin += apart_us
            trace.kernel(GEMM, begin - 10, 10, begin - 20)
    with _loaded(tmp_path, trace) as run:
        assert ("launch-bound" in _rules(run)) is (apart_us == 300)


def test_launches_between_other_work_tell_nothing_of_the_cores(tmp_path: Path) -> None:
    """A product's data made on the host for 10 of 12 ms (marcalph/kernelforge, T4): two launches a
    step, 19 µs each behind other work, are no measure of a free core."""
    trace = _alone()
    for at, begin in enumerate(_steps(trace, 5, 12_000)):
        trace.host("aten::randn", begin + 10, 10_400)
        trace.host("cudaLaunchKernel", begin + 10_450, 19, cat="cuda_runtime", correlation=900 + at)
        trace.kernel(GEMM, begin + 10_480, 6_000, 0, launch=900 + at)
    with _loaded(tmp_path, trace) as run:
        (found,) = [item for item in run.report.findings if item.rule == "launch-bound"]
        assert "host does other work between them" in " ".join(found.because)
        assert "19 µs" not in " ".join(found.because)
        assert "do it ahead" in found.fix[0]


def test_what_the_allocator_costs_is_not_said_twice(tmp_path: Path) -> None:
    """A ResNet without a cache of memory: hipFree takes 20 ms each, in the first step 0.4 ms."""
    trace = _alone()
    begin = 1000.0
    for number in range(7):
        took = 400 if number < 2 else 20_000
        start = begin
        for _ in range(40):
            trace.host("cudaFree", begin + 20, took, cat="cuda_runtime")
            begin += took + 30
            trace.kernel(GEMM, begin + 10, 1000, begin)
            begin += 1000
        trace.host(f"ProfilerStep#{number}", start, begin - start - 1, cat="user_annotation")
    with _loaded(tmp_path, trace) as run:
        assert run.report.verdict.cause == "allocator-retries"
        assert "launch-bound" not in _rules(run)


def test_what_a_host_does_is_seen_on_one_rank_of_four(tmp_path: Path) -> None:
    """vLLM on an MI300X: 27 ms of Python before each of ten forward passes, all-reduces between.

    No function lies within a stretch, one lies around it; no other rank is waited for.
    """
    trace = Trace(0, 4)
    frames = ("worker.py(465): worker_busy_loop", "vllm/models/llama.py(374): forward")
    trace.host(frames[0], 0, 600_000, "python_function")
    for number in range(10):
        begin = 1000 + 55_000 * number
        trace.host(frames[1], begin, 54_000, "python_function")
        for at in range(20):
            start = begin + 26_000 + 1400 * at
            trace.kernel(GEMM, start + 10, 1000, start)
            trace.kernel(REDUCE, start + 1010, 380, start + 5)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert (verdict.kind, verdict.reason) == (VerdictKind.LOSSY, "idle")
        assert "does other work (`vllm/models/llama.py(374): forward`)" in verdict.why
        assert verdict.values["idling_ns"] == pytest.approx(27e6, rel=0.02)


def test_an_engine_is_not_named_by_kernels_that_it_borrows(tmp_path: Path) -> None:
    """SGLang on ROCm: attention of aiter, in vLLM's namespace."""
    trace = _alone()
    trace.host("sglang/srt/managers/tp_worker.py(400): forward", 0, 9000, "python_function")
    for at in range(0, 9000, 1000):
        trace.kernel("paged_attention_kernel<(vllm::Fp8KVCacheDataType)0, 128>", at + 10, 985, at)
    with _loaded(tmp_path, trace) as run:
        (content,) = run.sql("SELECT purpose, engine FROM rank_content").to_dict("records")
        assert content == {"purpose": "inference", "engine": "SGLang"}


def test_what_a_device_waits_for_is_no_compute(tmp_path: Path) -> None:
    """MTIA writes waits for an event among its work: 6 of 9 ms."""
    trace = _alone()
    for at in range(0, 9000, 1000):
        trace.kernel("event_wait", at + 310, 680, at)
        trace.kernel(GEMM, at + 10, 300, at)
    with _loaded(tmp_path, trace) as run:
        (parts,) = run.sql("SELECT compute_ns FROM run_breakdown").to_dict("records")
        assert parts["compute_ns"] == 9 * 300_000


def test_unknown_kernels_of_all_ranks_ask_for_no_other_rank(tmp_path: Path) -> None:
    """An accelerator with kernels of its own: the recording lacks no rank. Of a GPU that works
    alone they are a program's own (an OpenACC loop, a broadcast of Julia), and compute."""
    trace = Trace(0, 1)
    trace.host("ProfilerStep#1", 0, 9000, cat="user_annotation")
    for at in range(0, 9000, 1000):
        trace.kernel("fc-dtype_Float", at + 10, 985, at)
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.kind is VerdictKind.HEALTHY
        assert verdict.why.endswith("`fc-dtype_Float` takes 98 % of it.")
    for event in trace.events:
        event["name"] = event["name"].replace("cudaLaunchKernel", "runFunction - job_prep")
    (tmp_path / "accelerator").mkdir()
    with _loaded(tmp_path / "accelerator", trace) as run:
        verdict = run.report.verdict
        assert verdict.reason == "unrecognised"
        (step,) = verdict.next_steps
        assert "unknown_kernels" in step


@pytest.mark.parametrize("at_once", [False, True], ids=["cuda", "hip"])
@pytest.mark.parametrize(
    ("copy", "kind"),
    [("Memcpy HtoD (Pageable -> Device)", "blocking-copy"),
     ("Memcpy DtoH (Device -> Pageable)", "synchronisation")],
)  # fmt: skip
def test_a_wait_behind_a_copy_to_the_device_reads_no_result(
    tmp_path: Path, copy: str, kind: str, at_once: bool
) -> None:
    """A block of a model moves 8 bytes to the device, and waits for the stream behind them: on AMD
    in the same call."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        for block in range(10):
            at, link = begin + 2000 * block, 50_000 + len(trace.events)
            trace.kernel(GEMM, at + 10, 1400, at)
            if at_once:
                trace.host("hipMemcpyWithStream", at + 20, 1402, "cuda_runtime", correlation=link)
            else:
                trace.host("cudaMemcpyAsync", at + 20, 10, "cuda_runtime", correlation=link)
                trace.host("cudaStreamSynchronize", at + 32, 1390, "cuda_runtime")
            trace.kernel(copy, at + 1415, 1, 0, launch=link)
            for part in range(1, 6):
                trace.kernel(GEMM, at + 1420 + 100 * part, 60, at + 1410 + 100 * part)
    with _loaded(tmp_path, trace) as run:
        lost = run.sql("SELECT kind, sum(idle_ns) AS ns FROM host_gap GROUP BY kind ORDER BY ns")
        assert lost["kind"].iloc[-1] == kind


def test_what_nobody_launched_was_not_queued(tmp_path: Path) -> None:
    """A T4 whose unified memory moves as the host touches it; most of the time it idles."""
    trace = _alone()
    for begin in _steps(trace, 6, 100_000):
        trace.kernel(GEMM, begin + 10, 1000, begin)
        for page in range(50):
            args = {"device": 0, "stream": 7, "bytes": 65_536}
            at = begin + 2000 + 1900 * page
            trace.host("operation", at, 1800)
            trace._add("gpu_memcpy", "Memcpy DtoH (Managed)", at + 1800, 60, 7, args)
    with _loaded(tmp_path, trace) as run:
        idle = run.sql("SELECT idle_ns, idle_launch_gap_ns FROM step_breakdown").median()
        assert idle["idle_ns"] > 90_000_000
        assert idle["idle_launch_gap_ns"] < 1_000_000
        assert "idle-with-queued-work" not in _rules(run)
        lost = run.sql("SELECT kind, sum(idle_ns) AS ns FROM host_gap GROUP BY kind ORDER BY ns")
        assert lost["kind"].iloc[-1] == "paging"


def test_memory_of_a_pool_that_a_wait_emptied_is_no_wait(tmp_path: Path) -> None:
    """CUDA C: cudaMallocAsync takes 0.4 ms behind each wait, which itself takes the device's time.

    And another that waits by the name that cudaDeviceSynchronize had before CUDA 4.
    """
    trace, old = _alone(), _alone()
    for begin in _steps(trace, 6, 10_000):
        trace.kernel(GEMM, begin + 10, 8000, begin)
        trace.host("cudaStreamSynchronize", begin + 5, 8010, cat="cuda_runtime")
        for at in range(4):
            took = begin + 8020 + 410 * at
            trace.host("cudaMallocAsync", took, 405, cat="cuda_runtime")
        trace.kernel(GEMM, begin + 9670, 300, begin + 9660)
    for begin in _steps(old, 6, 10_000):
        for at in range(0, 10_000, 1000):
            old.kernel(GEMM, begin + at + 10, 800, begin + at)
            old.host("cudaThreadSynchronize", begin + at + 15, 800, cat="cuda_runtime")
    found = []
    for number, one in enumerate((trace, old)):
        (folder := tmp_path / str(number)).mkdir()
        with _loaded(folder, one) as run:
            lost = run.sql(
                "SELECT kind, sum(idle_ns) AS ns FROM host_gap GROUP BY kind ORDER BY ns"
            )
            found.append(lost["kind"].iloc[-1])
    assert found == ["allocator", "synchronisation"]


@pytest.mark.parametrize("back", ["Memcpy HtoD (Pinned -> Device)", GEMM])
def test_an_offloaded_optimizer_is_no_wait_for_the_device(tmp_path: Path, back: str) -> None:
    """Gradients go to the host, DeepSpeedCPUAdam computes for 4 ms, parameters come back: it was
    told to keep metrics on the device. Where a kernel ends the stretch, the optimizer reads one."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        trace.kernel(GEMM, begin + 10, 13_000, begin)
        trace.host("Optimizer.step#DeepSpeedCPUAdam.step", begin + 20, 18_000, "user_annotation")
        trace.kernel("Memcpy DtoH (Device -> Pinned)", begin + 13_010, 1000, begin + 30)
        trace.host("cudaStreamSynchronize", begin + 40, 13_975, cat="cuda_runtime")
        trace.kernel(back, begin + 18_015, 1000, begin + 18_005)
        trace.kernel(GEMM, begin + 19_020, 970, begin + 18_500)
    with _loaded(tmp_path, trace) as run:
        (found,) = [item for item in run.report.findings if item.rule == "blocking-sync"]
        assert found.title.startswith("The optimizer on the CPU") == (back != GEMM)


def test_an_optimizer_that_loops_over_parameters_is_told_to_fuse(tmp_path: Path) -> None:
    """600 kernels of 3 µs in each step, every 10 µs one: CUDA graphs were advised first."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        for at in range(10):
            trace.kernel(GEMM, begin + 1_300 * at, 1_290, begin + 1_300 * at - 5)
        trace.host("Optimizer.step#AdamW.step", begin + 13_200, 6_100, cat="user_annotation")
        for at in range(600):
            start = begin + 13_210 + 10 * at
            trace.kernel(GEMM, start + 5, 3, start)
    with _loaded(tmp_path, trace) as run:
        (late,) = run.sql("SELECT median(idle_optimizer_ns) / 1e6 AS ms FROM step_breakdown")["ms"]
        assert late == pytest.approx(4.2, rel=0.05)
        (found,) = [item for item in run.report.findings if item.rule == "launch-bound"]
    assert "fused=True" in str(found.fix[0])


@pytest.mark.parametrize(("held_us", "hooked"), [(2_000, True), (500, False)])
def test_python_in_hooks_of_autograd_is_told_from_slow_launches(
    tmp_path: Path, held_us: int, hooked: bool
) -> None:
    """A hook holds autograd's thread in each of six nodes of a step; 0.5 ms may be launching."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        for at in range(6):
            start = begin + 3_000 * at
            trace.kernel(GEMM, start + 5, 300, start)
            node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
            trace.host(node, start + 10, 300 + held_us)
            trace.kernel(GEMM, start + 310 + held_us + 10, 2_500 - held_us, start + 310 + held_us)
    with _loaded(tmp_path, trace) as run:
        (late,) = run.sql("SELECT median(idle_hooks_ns) / 1e6 AS ms FROM step_breakdown")["ms"]
        assert late == pytest.approx(6 * held_us / 1e3 if hooked else 0, rel=0.05)
        (found,) = [item for item in run.report.findings if item.rule == "launch-bound"]
    assert ("register_comm_hook" in str(found.fix[0])) == hooked


def test_the_node_of_a_compiled_backward_pass_is_no_hook(tmp_path: Path) -> None:
    """Its host stands still for 2 ms in it: a hook was blamed, where the whole pass is one node."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        for at in range(6):
            start = begin + 3_000 * at
            trace.kernel(GEMM, start + 5, 300, start)
            trace.host(
                "autograd::engine::evaluate_function: CompiledFunctionBackward", start + 10, 2300
            )
            trace.kernel(GEMM, start + 2_320, 500, start + 2_310)
    with _loaded(tmp_path, trace) as run:
        (late,) = run.sql("SELECT median(idle_hooks_ns) / 1e6 AS ms FROM step_breakdown")["ms"]
    assert late == 0


def test_what_launching_collectives_takes_of_the_idle_time_is_told(tmp_path: Path) -> None:
    """After backward 50 tensors are reduced one by one: 20 µs each, 100 of the host."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        trace.kernel(GEMM, begin + 5, 10_000, begin)
        for at in range(50):
            start = begin + 10_000 + 120 * at
            trace.host("c10d::allreduce_", start + 10, 105)
            trace.kernel(REDUCE, start + 120, 20, start + 110)
    with _loaded(tmp_path, trace) as run:
        (late,) = run.sql("SELECT median(idle_calls_ns) / 1e6 AS ms FROM step_breakdown")["ms"]
        (took,) = run.sql("SELECT any_value(launch_ns) AS ns FROM rank_content")["ns"]
    assert late == pytest.approx(50 * 0.1, rel=0.1)
    assert took < 10_000


@pytest.mark.parametrize(
    ("saved", "named"), [(40_000, "checkpoint.save"), (25_000, "checkpoint.save"), (6_000, None)]
)
def test_a_pause_behind_a_wait_has_the_name_of_what_fills_it(
    tmp_path: Path, saved: int, named: str | None
) -> None:
    """A checkpoint of 40 ms behind loss.item(): "after aten::item, no stack was recorded"."""
    with _loaded(tmp_path, _paused("checkpoint.save", 40_000, saved)) as run:
        gaps = run.sql("SELECT kind, name FROM host_gap WHERE idle_ns > 20000000")
        (gap,) = gaps.to_dict("records")
        (sync,) = run.sql("SELECT max(idle_sync_ns) AS ns FROM step_breakdown")["ns"]
    expected = ("pause", named) if named else ("synchronisation", "aten::item")
    assert (gap["kind"], gap["name"]) == expected
    assert (sync > 30e6) == (named is None)


def test_a_step_too_long_to_count_is_said_with_what_fills_it(tmp_path: Path) -> None:
    """One rank compiled again for 320 ms: "healthy", and a note that named the step alone."""
    compiles = "_compile.compile_inner (dynamo_timed)"
    with _loaded(tmp_path, _paused(compiles, 400_000, 400_000)) as run:
        (odd,) = [note for note in run.report.runs[0].caveats if note.code == "odd-step"]
    assert "the host of rank 0 launched nothing for 400 ms" in odd.text
    assert compiles in odd.text and "recompiles" in odd.text


def _paused(name: str, pause: int, named: int) -> Trace:
    """Six steps of 50 ms with .item() at the end; before the fourth its host stops for ``pause``
    µs, of which a range is open for ``named``."""
    trace = _alone()
    begins = [1000 + 50_000 * number + pause * (number > 3) for number in range(7)]
    for number, (begin, end) in enumerate(pairwise(begins)):
        trace.host(f"ProfilerStep#{number}", begin, end - begin - 1, cat="user_annotation")
        first = end - 50_000
        if first > begin:
            trace.host(name, begin + 10, named, cat="user_annotation")
        for at in range(10):
            trace.kernel(GEMM, first + 5_000 * at + 10, 4_980, first + 10 * at + 5)
        trace.host("aten::item", first + 150, 49_850)
    return trace


def test_norms_read_one_by_one_are_told_to_be_one(tmp_path: Path) -> None:
    """A norm and an .item() for each of 160 parameters: advised on was loss.item()."""
    norm = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, NormTwoOps<float>>>"
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        trace.kernel(GEMM, begin + 10, 11_980, begin)
        for at in range(160):
            start = begin + 12_000 + 40 * at
            trace.kernel(norm, start + 5, 10, start)
            trace.host("aten::item", start + 3, 15)
        trace.kernel(GEMM, begin + 18_410, 1_000, begin + 18_400)
    with _loaded(tmp_path, trace) as run:
        reads = set(run.sql("SELECT reads FROM host_gap WHERE kind = 'synchronisation'")["reads"])
        (found,) = [item for item in run.report.findings if item.rule == "blocking-sync"]
    assert norm in reads
    assert "clip_grad_norm_" in str(found.fix[0])


def test_calls_of_the_driver_allocate_copy_and_wait(tmp_path: Path) -> None:
    """OpenACC, JAX, TensorFlow and Julia call CUDA's driver: its calls have names of their own."""
    trace = _alone()
    for begin in _steps(trace, 6, 20_000):
        trace.kernel(GEMM, begin + 10, 4_000, begin)
        trace.host("cuMemFree", begin + 4_020, 3_000, cat="cuda_runtime")
        trace.kernel(GEMM, begin + 7_040, 4_000, begin + 7_030)
        trace.host("cuMemHostRegister", begin + 11_050, 3_000, cat="cuda_runtime")
        trace.kernel(GEMM, begin + 14_070, 5_900, begin + 14_060)
    with _loaded(tmp_path, trace) as run:
        lost = run.sql("SELECT kind, sum(idle_ns) / 1e6 AS ms FROM host_gap GROUP BY kind")
        by_kind = dict(zip(lost["kind"], lost["ms"], strict=True))
        assert by_kind["allocator"] == pytest.approx(36, rel=0.03)


def test_a_record_of_waiting_is_no_work_of_the_device(tmp_path: Path) -> None:
    """An OpenACC program waits for a stream after each of 1,934 kernels: 94 % idle, not 86."""
    trace = _alone()
    for begin in _steps(trace, 6, 10_000):
        trace.kernel(GEMM, begin + 10, 2_000, begin)
        waits = {"device": 0, "stream": 7, "correlation": 0}
        trace._add("cuda_sync", "Stream Sync", begin + 20, 6_000, 7, waits)
    with _loaded(tmp_path, trace) as run:
        (row,) = run.sql("SELECT median(idle_ns) AS ns FROM step_breakdown").to_dict("records")
        assert row["ns"] == pytest.approx(8_000_000, rel=0.05)


def test_a_range_in_which_nothing_is_launched_is_other_work(tmp_path: Path) -> None:
    """Weights of eight layers come one by one, 1 ms each, before three launches: 647 of 679 ms
    were called late launches, and CUDA graphs advised."""
    trace = _alone()
    for begin in _steps(trace, 6, 12_000):
        for layer in range(8):
            at = begin + 1_400 * layer
            trace.host(f"ensure_layer_{layer}_weights", at, 1_000, cat="user_annotation")
            trace.host(f"layer_{layer}_computation", at + 1_010, 300, cat="user_annotation")
            for launch in range(3):
                trace.kernel(GEMM, at + 1_040 + 20 * launch, 8, at + 1_030 + 20 * launch)
    with _loaded(tmp_path, trace) as run:
        lost = run.sql("SELECT kind, sum(idle_ns) / 1e6 AS ms FROM host_gap GROUP BY kind")
        by_kind = dict(zip(lost["kind"], lost["ms"], strict=True))
        assert by_kind["pause"] > 5 * by_kind.get("launch", 0)
        verdict = run.report.verdict
        assert verdict.cause == "pause-in-every-step"
        assert "in ensure_layer_N_weights" in verdict.title
