"""Why a device idles: generated recordings of the shapes on which public ones were read wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real2.test_generated import GEMM, _loaded
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
