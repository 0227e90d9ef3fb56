"""Hosts that wait for their devices, in calls that say so or by asking, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real2.test_generated import GEMM, REDUCE, Trace, _loaded, _steps

pytestmark = pytest.mark.slow


def test_a_pause_behind_a_full_queue_is_not_a_later_waits_doing(tmp_path: Path) -> None:
    """The only wait for the device comes at the end, when the recording stops."""
    trace = Trace()
    begins = _steps(trace, 6, 100_000)
    for number, begin in enumerate(begins):
        pauses = 40_000 if number == 3 else 0
        if pauses:
            trace.host("cudaLaunchKernel", begin - 60_000, 55_000, cat="cuda_runtime")
        for at in range(10):
            start = begin + pauses + (10_000 - pauses / 10) * at
            trace.kernel(GEMM, start, 9_990 - pauses / 10, start - (10 if pauses else 3_000))
    trace.host("cudaDeviceSynchronize", begins[-1] + 99_000, 2_000, cat="cuda_runtime")
    with _loaded(tmp_path, trace) as run:
        gaps = run.sql("SELECT kind, name, idle_ns FROM host_gap WHERE idle_ns > 20000000")
    (gap,) = gaps.to_dict("records")
    assert (gap["kind"], gap["name"]) == ("pause", None)
    assert gap["idle_ns"] == pytest.approx(40e6, rel=0.01)


@pytest.mark.parametrize("every_us", [1000, 10_000, 100], ids=["1 ms", "10 ms", "allocator"])
def test_a_host_that_polls_for_its_collective_waits(tmp_path: Path, every_us: int) -> None:
    """c10d's wait() with NCCL_BLOCKING_WAIT asks an event every 1 or 10 ms; allocators at once."""
    trace = Trace(0, 1)
    for begin in _steps(trace, 6, 60_000):
        trace.kernel(GEMM, begin + 10, 5000, begin)
        trace.kernel(REDUCE, begin + 5010, 20_000, begin + 10)
        for at in range(20, 25_100, every_us):
            trace.host("cudaEventQuery", begin + at, 2, "cuda_runtime")
        for part in range(60):
            trace.kernel(GEMM, begin + 30_010 + 500 * part, 100, begin + 30_000 + 500 * part)
    with _loaded(tmp_path, trace) as run:
        polled = run.sql("SELECT count(*) AS n FROM host_gap WHERE name = 'cudaEventQuery'")["n"]
        assert bool(polled.sum()) == (every_us >= 1000)
