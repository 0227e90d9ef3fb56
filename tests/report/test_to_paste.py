"""The command that proves a change is given what it can compare: recordings that hold steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor import api
from advisor.report import pasted
from tests.support.marks import long

FIXTURE = Path(__file__).parents[2] / "fixtures" / "lab-ddp-slow-rank"
NCCL_TESTS = """\
# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    10.00    0.10    0.10      0    10.00    0.10    0.10      0
"""  # noqa: E501
BESIDE = {
    "probe.json": json.dumps(
        {"format": "advisor-probe", "world_size": 2, "hosts": ["a", "b"], "collectives": [],
         "pairs": [{"src": 0, "dst": 1, "bytes": 4, "round_trip_us": 100.0}]}
    ),
    "nccl-tests.txt": NCCL_TESTS,
    "nccl.log": "a:10:10 [0] NCCL INFO NCCL version 2.19.3+cuda12.2\n",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["probe.json", *long("nccl-tests.txt", "nccl.log")])
def test_a_benchmark_or_log_beside_traces_is_not_compared(tmp_path: Path, name: str) -> None:
    beside = tmp_path / name
    beside.write_text(BESIDE[name])
    with api.load(FIXTURE, beside, command=f"advisor diagnose {FIXTURE} {beside}") as run:
        report = run.report
    assert any(path.endswith(name) for path in report.runs[0].inputs)
    assert pasted.given(report, report.runs[0].run) == f"{FIXTURE} {beside}"
    proof = f"advisor compare {FIXTURE} NEW"
    assert proof in report.verdict.next_steps[-1]
    assert proof in report.findings[0].verify
