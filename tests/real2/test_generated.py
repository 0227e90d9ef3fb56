"""Generated recordings of the shapes on which other people's recordings were read wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.api import Run, load
from advisor.findings import OutcomeKind

pytestmark = pytest.mark.slow

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
REDUCE = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, int)"


class Trace:
    """One rank's Kineto trace in the making; times in µs."""

    def __init__(
        self, rank: int = 0, world: int = 1, device: str = "NVIDIA H100 80GB HBM3"
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.head = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
            "deviceProperties": [{"id": 0, "name": device}],
        }

    def host(
        self, name: str, start: float, length: float, cat: str = "cpu_op", **args: Any
    ) -> None:
        self._add(cat, name, start, length, 100, args)

    def kernel(self, name: str, start: float, length: float, asked: float, launch: int = 0) -> None:
        """A kernel and its launch; ``launch`` names a launch that several kernels share."""
        link = launch or len(self.events) + 1
        if not launch:
            self._add("cuda_runtime", "cudaLaunchKernel", asked, 2, 100, {"correlation": link})
        args = {"device": 0, "stream": 7, "correlation": link}
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        self._add(
            cat, name, start, length, 7, {**args, "bytes": 100_000_000 if cat != "kernel" else 0}
        )

    def _add(self, cat: str, name: str, start: float, length: float, tid: int, args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": length}
            | {"args": args}
        )

    def write(self, folder: Path) -> None:
        said: Any = self.head.get("distributedInfo", {"rank": 0})
        rank = said["rank"]
        text = json.dumps({**self.head, "traceEvents": self.events})
        (folder / f"rank{rank}.json").write_text(text)


def _steps(trace: Trace, count: int, length: float) -> list[float]:
    begins = [1000 + number * length for number in range(count)]
    for number, begin in enumerate(begins):
        trace.host(f"ProfilerStep#{number}", begin, length - 1, cat="user_annotation")
    return begins


def _loaded(folder: Path, *traces: Trace) -> Run:
    for trace in traces:
        trace.write(folder)
    return load(folder)


def test_all_reduces_of_inference_are_judged_across_ranks(tmp_path: Path) -> None:
    """Rank 1 comes 300 µs late to every custom all-reduce; no metadata says so."""
    traces = []
    for rank in (0, 1):
        trace = Trace(rank, 2)
        trace.host(
            "vllm/model_executor/models/llama.py(300): forward", 900, 90_000, "python_function"
        )
        for begin in _steps(trace, 8, 10_000):
            for layer in range(8):
                at = begin + 100 + 1000 * layer
                late = 300 * rank
                trace.kernel(GEMM, at, 400 + late, at - 20)
                trace.kernel(REDUCE, at + 410 + late, 350 - late, at - 15)
        traces.append(trace)
    with _loaded(tmp_path, *traces) as run:
        calls = run.sql("SELECT DISTINCT op, library, matched_ranks FROM collective")
        assert calls.to_dict("records") == [
            {"op": "all_reduce", "library": "custom-all-reduce", "matched_ranks": 2}
        ]
        # Both ranks also idle between their kernels, which their hosts launch one by one.
        blamed = {item.rule: item.ranks for item in run.report.findings if item.savings_ns}
        assert blamed == {"launch-bound": [0, 1], "straggler-rank": [1]}
        training = {
            item.rule: item for item in run.report.outcomes if item.rule == "fp32-gradients"
        }
        assert training["fp32-gradients"].outcome == OutcomeKind.NOT_APPLICABLE
        assert set(run.sql("SELECT purpose FROM rank_content")["purpose"]) == {"inference"}


def test_unknown_kernels_of_a_job_of_several_ranks_are_named(tmp_path: Path) -> None:
    trace = Trace(0, 8)
    for begin in _steps(trace, 6, 1000):
        trace.kernel(GEMM, begin + 10, 500, begin)
        trace.kernel("xchg_tokens_v3", begin + 520, 460, begin + 1)
    with _loaded(tmp_path, trace) as run:
        (content,) = run.sql(
            "SELECT known_ns / kernel_ns AS share, unknown_kernels FROM rank_content"
        )[["share", "unknown_kernels"]].to_dict("records")
        assert content["share"] == pytest.approx(500 / 960)
        assert json.loads(content["unknown_kernels"])[0]["name"] == "xchg_tokens_v3"
        assert run.report.verdict.cause == "unknown"
        assert "compute-bound" not in {item.rule for item in run.report.findings}


def test_a_step_alone_keeps_the_time_before_its_first_kernel(tmp_path: Path) -> None:
    trace = Trace()
    trace.host("ProfilerStep#6", 0, 100_000, cat="user_annotation")
    for at in range(60_000, 99_000, 1000):
        trace.kernel(GEMM, at, 990, at - 30)
    with _loaded(tmp_path, trace) as run:
        (row,) = run.sql("SELECT window_ns, idle_ns FROM step_breakdown").to_dict("records")
        assert row["window_ns"] == 100_000_000
        assert row["idle_ns"] > 60_000_000
        (edge,) = run.sql("SELECT edge, end_ns - start_ns AS ns FROM edge_gap").to_dict("records")
        assert (edge["edge"], edge["ns"]) == ("leading", 60_000_000)


def test_idling_within_graphs_is_not_the_hosts(tmp_path: Path) -> None:
    """One launch a step; its nodes run 100 µs of every 300."""
    trace = Trace()
    for number, begin in enumerate(_steps(trace, 6, 2860)):
        link = 10_000 + number
        trace.host("cudaGraphLaunch", begin + 1, 5, cat="cuda_runtime", correlation=link)
        for node in range(10):
            trace.kernel(GEMM, begin + 20 + 300 * node, 100, 0, launch=link)
    with _loaded(tmp_path, trace) as run:
        rules = {item.rule for item in run.report.findings}
        assert "idle-with-queued-work" in rules
        assert "launch-bound" not in rules
        assert set(run.sql("SELECT kind FROM host_gap WHERE idle_ns > 100000")["kind"]) == {"graph"}


@pytest.mark.parametrize("operator", ["CompiledFunctionBackward", "aten::contiguous"])
def test_who_asks_for_copies_on_the_device_is_named(tmp_path: Path, operator: str) -> None:
    """TorchRec's DLRM (facebookresearch/HolisticTraceAnalysis): a graph clones, not DDP."""
    trace = Trace()
    for begin in _steps(trace, 6, 10_000):
        trace.host(f"autograd::engine::evaluate_function: {operator}", begin, 900)
        trace.host("aten::clone", begin + 10, 100)
        trace.kernel("Memcpy DtoD (Device -> Device)", begin + 100, 2000, begin + 20)
        trace.kernel(GEMM, begin + 2100, 7800, begin + 950)
    with _loaded(tmp_path, trace) as run:
        (found,) = [item for item in run.report.findings if item.rule == "exposed-copies"]
        assert f"copied in `{operator}`" in " ".join(found.because)
        compiled = operator.startswith("CompiledFunction")
        assert ("A compiled graph" in found.fix[0]) is compiled
        assert ("gradient_as_bucket_view" in found.fix[0]) is not compiled


@pytest.mark.parametrize("hidden", [False, True])
def test_copies_count_where_nothing_hides_them(tmp_path: Path, hidden: bool) -> None:
    trace = Trace()
    for begin in _steps(trace, 6, 10_000):
        trace.kernel("Memcpy HtoD (Pageable -> Device)", begin + 10, 4000, begin)
        start = begin + 10 if hidden else begin + 4020
        trace.kernel(GEMM, start, 5900, begin + 1)
    for event in trace.events:
        if hidden and event["cat"] == "kernel":
            event["args"]["stream"] = 9
    with _loaded(tmp_path, trace) as run:
        found = [item for item in run.report.findings if item.rule == "exposed-copies"]
        assert bool(found) is not hidden
        if found:
            assert found[0].savings_ns == pytest.approx(4_000_000, rel=0.02)
            assert found[0].evidence.facts["memory"] == "pageable"


def test_a_bandwidth_that_no_link_carries_is_taken_back(tmp_path: Path) -> None:
    """1 GB to each of eight ranks in 1 ms: 875 GB/s on links of 450."""
    trace = Trace(0, 8)
    sizes = {"Collective name": "_allgather_base", "In msg nelems": 125_000_000}
    sizes |= {"Out msg nelems": 1_000_000_000, "Group size": 8, "dtype": "Byte"}
    for begin in _steps(trace, 6, 3000):
        trace.kernel(GEMM, begin + 10, 1500, begin)
        trace.kernel("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", begin + 1520, 1000, begin + 1)
        trace.events[-1]["args"] |= {**sizes, "Process Group Name": "0"}
    with _loaded(tmp_path, trace) as run:
        assert run.sql("SELECT count(busbw_gbps) AS n FROM collective")["n"][0] == 0
        (row,) = run.sql("SELECT op, calls, limit_gbps FROM contradiction").to_dict("records")
        assert row == {"op": "all_gather", "calls": 6, "limit_gbps": 450.0}


def _without_its_kernels(trace: Trace, begin: float, *, copied: bool) -> None:
    """Launches of which no kernel was recorded, and a copy if anything."""
    for number in range(4):
        link = int(begin) + number
        trace.host("cudaLaunchKernel", begin + 20, 5, cat="cuda_runtime", correlation=link)
    if copied:
        trace.kernel("Memcpy HtoD (Pinned -> Device)", begin + 40, 10, begin + 30)


@pytest.mark.parametrize(
    ("name", "process", "used"),
    [
        ("aten::cudnn_convolution", 1, True),
        ("aten::cudnn_is_acceptable", 1, False),
        ("nccl:all_to_all", 1, True),
        ("aten::conv2d", "CUDA functions", True),
    ],
)
def test_what_runs_on_a_device_alone_tells_that_it_was_used(
    tmp_path: Path, name: str, process: int | str, used: bool
) -> None:
    """Operators alone (Yeok-c/sustainbench), those of a rank of DLRM (HolisticTraceAnalysis), and
    the ranges that torch timed before Kineto (bonlime/skoltech_thesis_template): 'or the model ran
    on the CPU' was said of all."""
    trace = Trace()
    for begin in _steps(trace, 6, 1000):
        trace.host("aten::mm", begin + 10, 400)
        row = {"ph": "X", "name": name, "pid": process, "tid": 1, "ts": begin + 500, "dur": 300}
        trace.events.append({**row, "cat": "cpu_op", "args": {}})
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.reason == "no-device"
        assert ("it was used, and its kernels are missing" in str(verdict.why)) is used


@pytest.mark.parametrize("copied", [False, True])
def test_a_rank_without_kernels_is_as_one_that_was_not_recorded(
    tmp_path: Path, copied: bool
) -> None:
    """Its host's short steps halved the step time, and the job was called healthy."""
    seen, blind = Trace(1, 2), Trace(0, 2)
    for begin in _steps(seen, 6, 3000):
        seen.kernel(GEMM, begin + 10, 2900, begin)
        seen.kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", begin + 2910, 40, begin
        )
        seen.events[-1]["args"] |= {"Group size": 2, "Collective name": "allreduce"}
    for begin in _steps(blind, 6, 3000):
        blind.host("aten::mm", begin + 10, 900)
        _without_its_kernels(blind, begin, copied=copied)
    seen.write(tmp_path)
    with _loaded(tmp_path, blind) as run:
        report = run.report
        assert report.runs[0].ranks_read == 2
        assert report.runs[0].step_ns_median == pytest.approx(3_000_000, rel=0.1)
        assert report.verdict.reason in {"ranks-missing", "ranks-alone"}
        codes = {note.code for one in report.runs for note in (*one.notes, *one.caveats)}
        assert "no-device-events" in codes
        assert "ranks-not-read" not in codes


@pytest.mark.parametrize("kind", [0, 1])  # the CPU's, CUDA's
def test_memory_of_a_device_tells_that_it_was_used(tmp_path: Path, kind: int) -> None:
    """A classifier of audio under profile_memory (CongSheng/SpikingConvNN-AudioClassification)."""
    trace = Trace()
    for begin in _steps(trace, 6, 1000):
        trace.host("aten::mm", begin + 10, 900)
        args = {"Bytes": 7168, "Device Id": 0, "Device Type": kind}
        row = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1}
        trace.events.append({**row, "ts": begin + 20, "args": args})
    with _loaded(tmp_path, trace) as run:
        verdict = run.report.verdict
        assert verdict.reason == "no-device"
        assert ("it was used, and its kernels are missing" in str(verdict.why)) is bool(kind)
        assert ("ran on the CPU" in str(verdict.why)) is not bool(kind)


@pytest.mark.parametrize("copied", [False, True])
def test_runtime_calls_without_kernels_say_nothing_of_the_device(
    tmp_path: Path, copied: bool
) -> None:
    trace = Trace()
    for begin in _steps(trace, 6, 1000):
        trace.host("aten::mm", begin + 10, 900)
        _without_its_kernels(trace, begin, copied=copied)
    with _loaded(tmp_path, trace) as run:
        assert run.report.findings == []
        assert run.report.verdict.reason == "no-device"
        # Who sees launches has asked for the device's events: what to ask for is no advice.
        assert "torch.cuda.synchronize()" in run.report.verdict.next_steps[0]
        assert "ProfilerActivity" not in " ".join(run.report.verdict.next_steps)
