"""GIVEN a trace of Ascend's profiler, which has no categories THEN its streams are a device's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.api import load
from tests.support.traces import read

pytestmark = pytest.mark.usefixtures("both_paths")

_BASE_US = 1_704_161_511_420_000


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, pid: int, tid: int, at: float, dur: float, **more: Any) -> dict[str, Any]:
    """Times are written as text there, as 64 bits with fractions fit no number of JavaScript."""
    args = {"Task Type": "Other", "Stream Id": tid, "connection_id": 8}
    span = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{_BASE_US + at:.3f}"}
    return {**span, "dur": dur, "args": args, **more}


def _trace(folder: Path) -> Path:
    processes = {1: "Python", 800: "Ascend Hardware", 900: "HCCL", 950: "Overlap Analysis"}
    threads = {(800, 3): "Stream 3", (800, 5): "Stream 5", (950, 0): "Computing"}
    threads |= {(900, 0): "Group 0 Communication", (900, 1): "Plane 0"}
    events = [_named("process_name", pid, 0, name) for pid, name in processes.items()]
    events += [_named("thread_name", *track, name) for track, name in threads.items()]
    events += [
        _span("ProfilerStep#1", 1, 1, 0, 1000, cat="cpu_op"),
        _span("aten::mm", 1, 1, 10, 20, cat="cpu_op"),
        _span("aclnnMm_MatMulCommon_MatMulV2", 800, 3, 100, 400),
        _span("EVENT_WAIT", 800, 5, 100, 350),
        _span("MEMCPY_ASYNC", 800, 5, 480, 10),
        _span("hcom_allReduce__629_0_1", 900, 0, 450, 200),
        _span("Notify_Wait", 900, 1, 455, 100),
        _span("Computing", 950, 0, 100, 400),
    ]
    path = folder / "trace_view.json"
    path.write_text(json.dumps(events))
    return path


def test_streams_and_whole_collectives_are_device_events(tmp_path: Path) -> None:
    store = read(_trace(tmp_path))
    found = store.con.execute(
        "SELECT name, class, stream FROM event WHERE device IS NOT NULL ORDER BY event_id"
    ).fetchall()
    assert found == [
        ("aclnnMm_MatMulCommon_MatMulV2", "compute", 3),
        ("EVENT_WAIT", "sync", 5),
        ("MEMCPY_ASYNC", "memory", 5),
        ("hcom_allReduce__629_0_1", "comm", 0),
    ]


def test_the_step_is_split_as_ascend_splits_it(tmp_path: Path) -> None:
    """Computing 400 µs, communication not overlapped 150 of 200 µs, the rest of 1000 µs free."""
    with load(_trace(tmp_path)) as run:
        (row,) = run.sql(
            "SELECT window_ns, compute_ns, exposed_comm_ns, hidden_comm_ns, idle_ns "
            "FROM step_breakdown"
        ).to_dict("records")
        ops = run.sql("SELECT DISTINCT op FROM collective")["op"].tolist()
    assert row == {
        "window_ns": 1_000_000,
        "compute_ns": 400_000,
        "exposed_comm_ns": 150_000,
        "hidden_comm_ns": 50_000,
        "idle_ns": 450_000,
    }
    assert ops == ["all_reduce"]
