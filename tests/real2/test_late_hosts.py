"""Generated recordings of hosts that do other work: of one rank while the others' hosts wait for
their devices unrecorded (torchrec's training on four V100), of all ranks, and of a model served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real2.test_generated import GEMM, Trace, _loaded, _steps

pytestmark = pytest.mark.slow

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


def _waits_in_the_allocator(rank: int, late: float) -> Trace:
    """Steps of 200 ms whose all-reduce waits ``late`` ms for rank 2; the others' allocators wait
    for it too, before they free: only the end of that was recorded (cudaEventSynchronize not)."""
    trace = Trace(rank, 4, "Tesla V100-SXM2-16GB")
    for begin in _steps(trace, 6, 200_000):
        sleeps = late * 1000 if rank == 2 else 0
        trace.kernel(GEMM, begin + 100, 50_000, begin + 50)
        came = begin + 50_200 + sleeps
        end = begin + 50_200 + late * 1000 + 5000
        trace.kernel(REDUCE, came, end - came, came - 40)
        if rank != 2:
            trace.host("cudaMalloc", came + 10, 2000, cat="cuda_runtime")
            trace.host("cudaFree", end - 4000, 4000, cat="cuda_runtime")
        for at in range(10):
            start = end + 100 + 4000 * at
            trace.kernel(GEMM, start, 3900, max(end + 20, start - 3000))
    return trace


def test_a_wait_before_memory_is_freed_is_not_the_hosts_own_pace(tmp_path: Path) -> None:
    traces = [_waits_in_the_allocator(rank, 80) for rank in range(4)]
    with _loaded(tmp_path, *traces) as run:
        (late,) = run.sql(
            "SELECT rank, reason FROM lateness WHERE process_group IS NULL AND systematic"
        ).to_dict("records")
        assert late == {"rank": 2, "reason": "late-launch"}
        first = run.report.findings[0]
        assert (first.rule, first.ranks) == ("straggler-rank", [2])
        assert first.savings_ns == pytest.approx(80e6, rel=0.15)


def test_other_work_of_every_host_in_every_step_is_no_slow_launching(tmp_path: Path) -> None:
    traces = []
    for rank in (0, 1):
        trace = Trace(rank, 2)
        for begin in _steps(trace, 6, 50_000):
            trace.kernel(GEMM, begin + 100, 8000, begin + 50)
            trace.host("aten::split_with_sizes", begin + 9000, 25_000)
            for at in range(10):
                trace.kernel(GEMM, begin + 40_000 + 600 * at, 550, begin + 39_900 + 500 * at)
            trace.kernel(REDUCE, begin + 46_100, 3000, begin + 45_000)
        traces.append(trace)
    with _loaded(tmp_path, *traces) as run:
        found = {item.rule: item for item in run.report.findings if item.savings_ns}
        assert run.report.verdict.cause == "pause-in-every-step"
        assert found["pause-in-every-step"].savings_ns == pytest.approx(32e6, rel=0.05)
        assert "launch-bound" not in found
        (name,) = run.sql("SELECT DISTINCT name FROM host_gap WHERE kind = 'pause'")["name"]
        assert name == "aten::split_with_sizes"


@pytest.mark.parametrize(
    ("operator", "purpose"), [("AddmmBackward0", "training"), ("aten::relu", "forward")]
)
def test_a_forward_pass_is_given_no_advice_for_training(
    tmp_path: Path, operator: str, purpose: str
) -> None:
    trace = Trace()
    del trace.head["distributedInfo"]
    for begin in _steps(trace, 6, 1000):
        trace.host("aten::addmm", begin, 5)
        trace.host(operator, begin + 10, 5)
        for at in range(18):
            trace.kernel(GEMM, begin + 50 * at + 10, 8, begin + 50 * at)
    with _loaded(tmp_path, trace) as run:
        assert set(run.sql("SELECT purpose FROM rank_content")["purpose"]) == {purpose}
        (finding,) = [item for item in run.report.findings if item.rule == "launch-bound"]
        assert ("fused=True" in str(finding.fix)) == (purpose == "training")
