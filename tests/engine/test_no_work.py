"""Traces of another profiler were read: the verdict does not say that none was given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import advisor


def test_traces_without_known_work_are_told_from_no_traces(tmp_path: Path) -> None:
    for rank in range(2):
        spans = [
            {"ph": "X", "cat": "FEE", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 900}
            for at in range(0, 6000, 1000)
            for name in ("train_step", "backward", "all_reduce (distributed_c10d.py:2000)")
        ]
        path = tmp_path / f"rank{rank}.json"
        path.write_text(json.dumps({"traceEvents": spans, "viztracer_metadata": {}}))
    with advisor.load(tmp_path) as run:
        verdict = run.report.verdict
    assert (verdict.kind, verdict.reason) == ("inconclusive", "no-work")
    assert (verdict.values["events"], verdict.values["ranks"]) == (36, 2)
    assert "advisor record" in verdict.next_steps[0]


@pytest.mark.slow
def test_a_log_alone_is_still_no_trace(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("h:1:2 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n")
    with advisor.load(log) as run:
        assert run.report.verdict.reason == "no-trace"
