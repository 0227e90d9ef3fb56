"""GIVEN a gather by copy engines THEN it is one call; other copies between devices are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.api import load
from tests.support.traces import kineto, read

pytestmark = pytest.mark.usefixtures("both_paths")

_COPY = "Memcpy PtoP (Device -> Device)"


def _span(name: str, cat: str, at: int, dur: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "pid": int(not cat.startswith("gpu")), "tid": tid,
            "ts": at, "dur": dur, "args": args}  # fmt: skip


def _trace(folder: Path) -> Path:
    """A gather of four ranks by three copies on two streams, and a copy that nobody annotated."""
    asked = {"Collective name": "_allgather_base", "In msg nelems": 64, "Out msg nelems": 256,
             "Group size": 4, "dtype": "BFloat16", "Process Group Name": "0"}  # fmt: skip
    events = [
        _span("ProfilerStep#1", "user_annotation", 0, 1000),
        _span("record_param_comms", "cpu_op", 10, 40, **asked),
        _span("nccl:_all_gather_base", "user_annotation", 12, 30),
    ]
    for number, (launched, begun, stream) in enumerate(
        [(14, 100, 20), (18, 130, 20), (22, 100, 24), (60, 400, 7)]
    ):
        ids = {"correlation": 50 + number}
        events += [
            _span("cudaMemcpyAsync", "cuda_runtime", launched, 3, **ids),
            _span(
                _COPY, "gpu_memcpy", begun, 25, stream, device=0, stream=stream, bytes=128, **ids
            ),
        ]
    events.append(_span("gemm", "kernel", 500, 100, 7, device=0, stream=7, correlation=90))
    path = folder / "rank0.json"
    path.write_text(json.dumps(json.loads(kineto(events))))
    return path


def test_copies_in_a_collective_communicate(tmp_path: Path) -> None:
    store = read(_trace(tmp_path))
    found = store.con.execute(
        "SELECT class, count(*) FROM event WHERE name = ? GROUP BY ALL ORDER BY ALL", [_COPY]
    ).fetchall()
    assert found == [("comm", 3), ("memory", 1)]


def test_copies_of_one_collective_are_one_call(tmp_path: Path) -> None:
    with load(_trace(tmp_path)) as run:
        (call,) = run.sql("SELECT op, end_ns - start_ns AS ns, group_size FROM collective").to_dict(
            "records"
        )
    assert call == {"op": "all_gather", "ns": 55_000, "group_size": 4}
