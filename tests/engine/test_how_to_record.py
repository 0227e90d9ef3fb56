"""What to record next time is said as commands of what made the recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import advisor


def recording(of: str) -> dict[str, object]:
    """One of four ranks: eight steps of 10 ms, 5 of them an exposed all-gather."""
    events: list[dict[str, object]] = []
    for k in range(8):
        at = 10_000.0 * k
        host = {"ph": "X", "pid": 1, "tid": 1}
        device = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel"}
        events += [
            {**host, "ts": at, "dur": 9_900.0, "cat": "user_annotation"}
            | {"name": f"ProfilerStep#{k}"},
            {**host, "ts": at + 1, "dur": 5.0, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
            | {"args": {"correlation": 2 * k + 1}},
            {**host, "ts": at + 9, "dur": 5.0, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
            | {"args": {"correlation": 2 * k + 2}},
            {**device, "ts": at + 20, "dur": 4_900.0, "name": f"void {of}::gemm(float*)"}
            | {"args": {"device": 0, "stream": 7, "correlation": 2 * k + 1}},
            {**device, "ts": at + 4_930, "dur": 5_000.0, "name": "ncclDevKernel_AllGather_RING_LL"}
            | {"args": {"device": 0, "stream": 7, "correlation": 2 * k + 2}},
        ]
    told = {"backend": "nccl", "rank": 0, "world_size": 4}
    return {"distributedInfo": told, "traceEvents": events}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "command"), [("vllm", "vllm serve"), ("sglang", "sglang.launch_server")]
)
def test_an_engine_records_itself(tmp_path: Path, of: str, command: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(recording(of)))
    with advisor.load(path) as run:
        steps = "\n".join(run.report.verdict.next_steps)
    assert command in steps
    assert "advisor record" not in steps
