"""A part of a trace that stands in it twice is read once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.ingest import ingest
from advisor.store.store import Store

EVENTS: list[dict[str, Any]] = [
    event
    for k in range(12)
    for event in (
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100.0 * k,
         "dur": 20.0, "args": {"External id": k + 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
         "ts": 100.0 * k + 5, "dur": 5.0, "args": {"correlation": k + 1, "External id": k + 1}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7,
         "ts": 100.0 * k + 30, "dur": 40.0,
         "args": {"correlation": k + 1, "External id": k + 1, "device": 0, "stream": 7,
                  "Collective name": "allreduce", "In msg nelems": 10, "Group size": 2}},
    )
]  # fmt: skip


def read(folder: Path, events: list[dict[str, Any]]) -> tuple[list[Any], list[Any], str | None]:
    """The events, what they say of calls, and what is said of the file."""
    path = folder / "rank0.json"
    info = {"distributedInfo": {"rank": 0, "world_size": 2}}
    path.write_text(json.dumps({**info, "traceEvents": events}))
    store = Store.create()
    ingest([str(path)], store)
    tables = [
        store.con.execute(f"SELECT * EXCLUDE (run, event_id) FROM {table} ORDER BY ALL").fetchall()
        for table in ("event", "comm_event")
    ]
    ((note,),) = store.con.execute("SELECT note FROM source").fetchall()
    return tables[0], tables[1], note


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[Any]]:
    """What is read of the recording without a repeat."""
    return read(tmp_path_factory.mktemp("whole"), EVENTS)[:2]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(st.integers(0, len(EVENTS) - 1), st.integers(1, len(EVENTS)), st.integers(1, 3))
def test_a_stretch_that_stands_there_again_changes_no_event(
    tmp_path_factory: Any, whole: Any, first: int, count: int, times: int
) -> None:
    again = EVENTS[first : first + count]
    place = tmp_path_factory.mktemp("again")
    events, calls, note = read(
        place, EVENTS[: first + count] + again * times + EVENTS[first + count :]
    )
    assert (events, calls) == whole
    assert note is not None
    assert f"once more, left out: {len(again) * times}" in note


def test_events_without_ids_that_agree_by_chance_stay(tmp_path: Path) -> None:
    """Old profilers write whole microseconds: a function that calls itself may begin and end so."""
    nested = {
        "ph": "X",
        "cat": "python_function",
        "name": "f",
        "pid": 1,
        "tid": 1,
        "ts": 3,
        "dur": 0,
    }
    assert len(read(tmp_path, [*EVENTS, nested, nested])[0]) == len(EVENTS) + 2
    alike = [{**event, "ts": event["ts"] + 7} for event in EVENTS]
    assert len(read(tmp_path, EVENTS + alike)[0]) == 2 * len(EVENTS)
