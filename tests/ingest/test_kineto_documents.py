"""GIVEN several lists of events, or several documents, in one file THEN each is read or counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.marks import long, slow
from tests.support.traces import compact, dropped, event, kineto, names, notes, one_line, read

pytestmark = pytest.mark.usefixtures("both_paths")

_MANY = 3_000


def _events(first: int, count: int) -> list[dict[str, Any]]:
    return [event(number) for number in range(first, first + count)]


def _expected(count: int) -> list[str]:
    return [f"kernel_{number}" for number in range(count)]


def _write(folder: Path, text: str) -> Path:
    path = folder / "trace.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize("count", [2, *slow(_MANY)])
def test_a_second_list_in_the_same_object(tmp_path: Path, count: int) -> None:
    one, two = json.dumps(_events(0, count)), json.dumps(_events(count, count))
    text = f'{{"traceEvents": {one}, "other": [{{"name": 1}}], "traceEvents": {two}, "x": 1}}'
    store = read(_write(tmp_path, text))
    assert names(store) == _expected(2 * count)
    assert dropped(store) == {}
    assert store.con.execute("SELECT DISTINCT complete FROM rank").fetchall() == [(True,)]


@pytest.mark.long
@pytest.mark.parametrize("count", [2, *slow(_MANY)])
@pytest.mark.parametrize("layout", [kineto, one_line])
@pytest.mark.parametrize("between", ["", "\n", " \x00 "])
def test_a_second_document(tmp_path: Path, layout: Any, count: int, between: str) -> None:
    text = layout(_events(0, count)) + between + layout(_events(count, count))
    store = read(_write(tmp_path, text))
    assert names(store) == _expected(2 * count)
    assert dropped(store) == {}
    assert "holds 2 documents" in notes(store)


@pytest.mark.long
@pytest.mark.parametrize("count", [2, *slow(_MANY)])
@pytest.mark.parametrize(
    "other",
    [
        {"distributedInfo": {"rank": 1}},
        {"baseTimeNanoseconds": 17},
        {"baseTimeNanoseconds": None},
    ],
)
def test_a_document_of_another_rank_or_clock_is_counted(
    tmp_path: Path, count: int, other: dict[str, Any]
) -> None:
    """Its events would be told as this rank's, or at wrong times."""
    text = one_line(_events(0, count)) + one_line(_events(count, count), **other)
    store = read(_write(tmp_path, text))
    assert names(store) == _expected(count)
    assert dropped(store) == {"event of another document": count}


def test_events_as_documents_of_their_own_are_counted(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(item) for item in _events(2, 5))
    store = read(_write(tmp_path, one_line(_events(0, 2)) + "\n" + lines))
    assert names(store) == _expected(2)
    assert dropped(store) == {"event outside the list of events": 5}


@pytest.mark.parametrize("layout", [kineto, one_line])
def test_events_after_a_stray_end_of_the_list_stay(tmp_path: Path, layout: Any) -> None:
    text = layout(_events(0, _MANY))
    at = text.rindex(",", 0, text.index('"kernel_1500"') - 20)
    at = text.rindex("}", 0, at) + 1 if text[at - 1] != "}" else at
    store = read(_write(tmp_path, text[:at] + "]" + text[at:]))
    assert names(store) == _expected(_MANY)
    assert dropped(store) == {"not an event": 1}


_DEEP = {
    "lists": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "lists without end": "[" * 100_000,
    "long": json.dumps("x" * 100_000),
    "event-like": json.dumps([event(n, name="impostor") for n in range(1_000)]),
    "a list of that name": json.dumps({"a": {"traceEvents": [event(9, name="impostor")] * 500}}),
}


@pytest.mark.parametrize("kind", _DEEP)
def test_long_or_deep_fields_before_the_events(tmp_path: Path, kind: str) -> None:
    """GIVEN 100 KB before the events THEN the file is known as a trace and nothing is lost."""
    text = f'{{"before": {_DEEP[kind]}, "traceEvents": {json.dumps(_events(0, 3))}}}'
    store = read(_write(tmp_path, text))
    assert names(store) == _expected(3)
    assert dropped(store) == {}


def test_the_end_of_a_span_completes_its_arguments(tmp_path: Path) -> None:
    """Where both have one the end's counts; shapes stay for names that ask for communication."""

    def edge(phase: str, at: int, name: str = "", **args: Any) -> dict[str, Any]:
        named = {"name": name, "cat": "kernel"} if name else {}
        return {"ph": phase, "ts": at, "pid": 1, "tid": 2, **named, "args": args}

    events = [
        edge("B", 1, "ncclDevKernel_AllReduce", device=0, stream=7, bytes=5, dtype="Float"),
        edge("B", 2, "gemm", device=0, stream=7),
        edge("E", 3, "", **{"Input Dims": [[1]]}),
        edge("E", 5, dtype="Int", Seq=4, stream=9, correlation=3),
        edge("B", 6, "nccl:broadcast"),
        edge("E", 7, "", **{"Collective name": "broadcast"}),
    ]
    store = read(_write(tmp_path, kineto(events)))
    assert store.con.execute(
        "SELECT device, stream, correlation, bytes, dur_ns FROM event ORDER BY event_id"
    ).fetchall() == [(0, 9, 3, 5, 4000), (0, 7, None, None, 1000), (1, 2, None, None, 1000)]
    assert store.con.execute(
        "SELECT event_id, dtype, seq, collective, input_dims FROM comm_event ORDER BY event_id"
    ).fetchall() == [(0, "Int", 4, None, None), (4, None, None, "broadcast", None)]


@pytest.mark.parametrize("count", [2, *long(_MANY)])
@pytest.mark.parametrize("end", [b" ", b"X", b"\xff", b"", b"[", b"}", b'"'], ids=repr)
@pytest.mark.parametrize("layout", [kineto, one_line, compact])
def test_objects_of_a_field_behind_a_lost_end_are_no_events(
    tmp_path: Path, layout: Any, end: bytes, count: int
) -> None:
    others = json.dumps([event(number, name="other") for number in range(3)])
    last = '"distributedInfo": {"rank": 5, "world_size": 8}'
    text = layout(_events(0, count), distributedInfo={})
    list_end, object_end = text.rindex("]"), text.rindex("}")
    path = tmp_path / "trace.json"
    path.write_bytes(
        text[:list_end].encode()
        + end
        + text[list_end + 1 : object_end].encode()
        + f', "note": "x", "more": {others}, {last}}}'.encode()
    )
    store = read(path)
    assert names(store) == _expected(count)
    assert dropped(store) == {"not an event": 1}


def test_a_key_after_an_event_whose_beginning_is_lost_ends_no_list(tmp_path: Path) -> None:
    text = compact(_events(0, 9))
    begin = text.index('{"ph":"X","cat":"kernel","name":"kernel_4"')
    damaged = text[:begin] + '#,"more":[{"ph":"X"}],' + text[begin + 10 :]
    store = read(_write(tmp_path, damaged))
    assert names(store) == [name for name in _expected(9) if name != "kernel_4"]
    assert sum(dropped(store).values()) >= 1
