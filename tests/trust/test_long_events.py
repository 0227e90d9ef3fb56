"""Durations that cannot be, in whatever format, are damage of their events."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.findings import VerdictKind
from benchmarks.fuzz import labelled
from tests.support.traces import event, kineto

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("duration", [4.5e15, 2e12])
def test_kernels_of_a_trace(tmp_path: Path, duration: float) -> None:
    """Of µs: a century and three weeks. The others stay, and are counted."""
    events = [event(n, ts=n * 10, dur=duration if n % 2 else 5) for n in range(12)]
    (tmp_path / "rank0.json").write_text(kineto(events))
    with advisor.load(tmp_path) as run:
        (note,) = run.sql("SELECT note FROM source")["note"]
        assert run.report.verdict.kind is VerdictKind.INCONCLUSIVE
        found = run.sql("SELECT count(dur_ns) AS timed, count(*) AS n FROM event")
    assert "events without a usable duration: 6" in note
    assert found.values.tolist() == [[6, 12]]


def untimed(folder: Path, events: list[dict[str, Any]]) -> list[int]:
    """Starts, ns, of the events whose duration is not believed."""
    (folder / "rank0.json").write_text(kineto(events))
    with advisor.load(folder) as run:
        found = run.sql("SELECT start_ns FROM event WHERE dur_ns IS NULL ORDER BY 1")
    return [int(start) for start in found["start_ns"]]


def test_a_kernel_that_outlasts_those_after_it_on_its_stream(tmp_path: Path) -> None:
    """An hour among milliseconds: possible by itself, but not before the next of its stream. The
    last of the stream may have taken so long."""
    hour = 3.6e9
    events = [event(n, ts=n * 10, dur=hour if n in (4, 11) else 5) for n in range(12)]
    (found,) = untimed(tmp_path, events)
    with advisor.load(tmp_path) as run:
        starts = run.sql("SELECT start_ns FROM event ORDER BY start_ns")["start_ns"]
        assert found == starts[4]


def test_a_stream_whose_work_overlaps_is_no_queue(tmp_path: Path) -> None:
    """Long kernels beside short ones throughout, as branches of a graph whose launch is lost."""
    events = [event(n, ts=n * 10, dur=50 if n % 5 == 0 else 5) for n in range(40)]
    assert untimed(tmp_path, events) == []


def test_pairs_of_begin_and_end(tmp_path: Path) -> None:
    spans = [
        {"ph": phase, "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at, "args": {}}
        for phase, at in (("B", -4e15), ("E", 4e15), ("B", 4e15 + 1), ("E", 4e15 + 9))
    ]
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": spans}))
    with advisor.load(tmp_path) as run:
        assert run.sql("SELECT max(dur_ns) AS n FROM event")["n"][0] == 8_000
        assert run.report.verdict.kind is VerdictKind.INCONCLUSIVE


@pytest.mark.long
def test_kernels_of_an_export(tmp_path: Path) -> None:
    labelled.write_nsys(labelled.nsys_rows(), tmp_path)
    with sqlite3.connect(tmp_path / "node1.sqlite") as con:
        con.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + (1 << 60) WHERE rowid % 9 = 0"
        )
    con.close()
    with advisor.load(tmp_path) as run:
        assert run.report.verdict.kind
        assert run.sql("SELECT max(dur_ns) AS n FROM event")["n"][0] < 10**9
        assert run.sql("SELECT sum(events_dropped) AS n FROM rank")["n"][0] > 0
