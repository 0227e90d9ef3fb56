"""A host that pauses after its device's queue was full: no wait took its lead away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real2.test_generated import GEMM, Trace, _loaded, _steps

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
