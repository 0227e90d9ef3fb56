"""What a trace may hold beyond one rank's events and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import AdvisorError
from advisor.ingest.compression import DecompressedFile, Limits, open_decompressed
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import Source
from advisor.store.store import Store
from tests.support.traces import event, kineto, notes, one_line, read

pytestmark = pytest.mark.usefixtures("both_paths")


def _ranks(store: Store) -> list[tuple[int, str]]:
    rows = store.con.execute("SELECT rank, name FROM event ORDER BY ALL").fetchall()
    assert store.con.execute("SELECT rank FROM rank ORDER BY ALL").fetchall() == [(0,), (1,), (2,)]
    assert store.con.execute("SELECT rank, note FROM source").fetchall()[0][0] is None
    return list(rows)


@pytest.mark.parametrize("layout", [kineto, one_line])
def test_several_ranks_in_one_file_by_the_argument_of_each_event(
    tmp_path: Path, layout: Any
) -> None:
    events = [
        event(number, args={"device": 0, "stream": 7, "correlation": number, "rank": number % 3})
        for number in range(30)
    ]
    path = tmp_path / "merged.json"
    path.write_text(layout(events, distributedInfo={}))
    assert _ranks(read(path)) == sorted((number % 3, f"kernel_{number}") for number in range(30))


def _far(number: int) -> dict[str, Any]:
    return event(number, args={"device": 0, "stream": 7, "more": "x" * 1000})


def _ranked(number: int, rank: object) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "nested": {"a": {"b": 1}}, "correlation": 1, "rank": rank}
    return event(number, args=args)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("layout", [kineto, one_line])
def test_ranks_of_events_are_found_however_late_they_are_told(
    tmp_path: Path, layout: Any, *, text: bool
) -> None:
    """GIVEN 100 KB of events without a rank, then three ranks THEN they are told apart."""
    events = [_far(number) for number in range(100)]
    for number in range(100, 400):
        rank = number % 3
        events.append(_ranked(number, str(rank) if text else rank))
    path = tmp_path / "merged.json"
    path.write_text(layout(events, distributedInfo={}))
    store = read(path)
    counts = "SELECT rank, count(*) FROM event GROUP BY ALL ORDER BY ALL"
    assert store.con.execute(counts).fetchall() == [(0, 200), (1, 100), (2, 100)]
    assert store.con.execute("SELECT rank FROM rank ORDER BY ALL").fetchall() == [(0,), (1,), (2,)]
    rows = store.con.execute("SELECT rank, note FROM source").fetchall()
    assert rows == [(None, "holds ranks 0-2")]


def test_a_rank_that_all_events_tell_is_the_file_s(tmp_path: Path) -> None:
    events = [{"ph": "M", "name": "x", "args": {"name": "x" * 1000}} for _ in range(100)]
    path = tmp_path / "one.json"
    path.write_text(kineto([*events, *(_ranked(n, 5) for n in range(9))], distributedInfo={}))
    store = read(path)
    assert store.con.execute("SELECT DISTINCT rank FROM event").fetchall() == [(5,)]
    assert store.con.execute("SELECT rank FROM rank").fetchall() == [(5,)]
    rows = store.con.execute("SELECT rank, note FROM source").fetchall()
    assert rows == [(5, "rank 5 from its events (args.rank)")]


def test_a_stray_rank_does_not_split_a_file(tmp_path: Path) -> None:
    events = [_far(number) for number in range(200)]
    path = tmp_path / "one.json"
    path.write_text(kineto([*events, _ranked(200, 5)], distributedInfo={}))
    store = read(path)
    assert store.con.execute("SELECT DISTINCT rank FROM event").fetchall() == [(0,)]
    assert "args.rank names another rank in 1 of 201 events: too few to go by" in notes(store)


def test_a_file_that_states_its_rank_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(kineto([_ranked(number, 5) for number in range(9)]))
    assert read(path).con.execute("SELECT DISTINCT rank FROM event").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ('{"rank": 3', True),
        ('{"rank":"3"', True),
        ('{"x": {"y": 1}, "z": "rank", "rank": 3', True),
        ('{"x": {"rank": 3}}', False),
        ('{"rank": "abc"}', False),
        ('{"ranks": 3}, "rank": 3', False),
    ],
)
def test_the_head_tells_a_rank_of_events(tmp_path: Path, args: str, *, found: bool) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "ts": 1, "args": ' + args + "}]}")
    trace = Trace(Source.of(path, 0))
    trace.peek()
    assert trace.merged is found


def test_several_ranks_in_one_file_by_the_names_of_processes(tmp_path: Path) -> None:
    named = [
        {"ph": "M", "name": "process_name", "pid": 100 + rank, "args": {"name": f"Rank {rank}"}}
        for rank in range(3)
    ]
    events = [event(number, pid=100 + number % 3) for number in range(30)]
    path = tmp_path / "merged.json"
    path.write_text(kineto([*named, *events], distributedInfo={}))
    store = read(path)
    assert _ranks(store) == sorted((number % 3, f"kernel_{number}") for number in range(30))
    assert store.con.execute("SELECT note FROM source").fetchall() == [("holds ranks 0-2",)]


def test_what_a_file_of_several_ranks_lost_is_counted_once(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 7, "correlation": 1}
    events = [event(number, args=args | {"rank": number % 3}) for number in range(30)]
    path = tmp_path / "merged.json"
    path.write_text(kineto([*events, 5, 6], distributedInfo={}))
    store = read(path)
    rows = "SELECT rank, events_dropped, drop_reasons, complete FROM rank ORDER BY rank"
    assert store.con.execute(rows).fetchall() == [
        (0, 2, '{"not an event (of ranks 0-2 together)": 2}', False),
        (1, 0, "{}", False),
        (2, 0, "{}", False),
    ]
    reasons = "SELECT events_dropped, drop_reasons FROM source"
    assert store.con.execute(reasons).fetchall() == [(2, '{"not an event": 2}')]


def test_more_data_than_allowed_is_refused(tmp_path: Path) -> None:
    limits = Limits(total_bytes=1 << 20, ratio=10**9)
    for size, refused in ((1 << 20, False), ((1 << 20) + 1, True)):
        path = tmp_path / f"{size}.gz"
        path.write_bytes(gzip.compress(bytes(size)))
        stream, raw = open_decompressed(path, "gzip", limits)
        with stream:
            if refused:
                with pytest.raises(AdvisorError, match="holds more than") as caught:
                    stream.read()
                assert str(path) in str(caught.value)
                # Refused as soon as the bound is passed, not after inflating the rest.
                assert raw.produced_bytes <= limits.total_bytes + (256 << 10)
            else:
                assert len(stream.read()) == size


@pytest.mark.parametrize("phase", ["s", "t", "f", "C", "P", "N", "O", "D", "b", "n", "e"])
def test_phases_without_time_on_a_track_are_no_loss(tmp_path: Path, phase: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto([event(0), event(1, ph=phase), event(2)]))
    store = read(path)
    assert store.con.execute("SELECT count(*) FROM event").fetchall() == [(2,)]
    assert store.con.execute("SELECT events_dropped FROM source").fetchall() == [(0,)]


@pytest.mark.parametrize("phase", ["", "st", "tf", "Q", "é"])
def test_unknown_phases_are_counted(tmp_path: Path, phase: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto([event(0), event(1, ph=phase), event(2)]))
    store = read(path)
    assert store.con.execute("SELECT count(*) FROM event").fetchall() == [(2,)]
    assert store.con.execute("SELECT drop_reasons FROM source").fetchall() == [
        ('{"not an event": 1}',)
    ]


def test_scattered_damage_is_read_again_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN every second chunk damaged THEN the file is decompressed once for them all."""
    text = one_line([event(number) for number in range(20_000)]).encode()
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(text, compresslevel=1))
    trace = Trace(Source.of(path, 0))
    trace.peek()
    chunks = list(trace.chunks())
    bad = [chunk.number for chunk in chunks][::2]
    assert len(bad) > 5
    read_bytes = 0
    following = DecompressedFile._next

    def counted(stream: DecompressedFile) -> bytes:
        nonlocal read_bytes
        piece = following(stream)
        read_bytes += len(piece)
        return piece

    monkeypatch.setattr(DecompressedFile, "_next", counted)
    again = list(trace.repairs(bad))
    expected = [json.loads(chunk.text) for chunk in chunks if chunk.number in bad]
    found = [found for chunk in again for found in getattr(chunk, "events", [])]
    assert [item["name"] for item in found] == [item["name"] for own in expected for item in own]
    assert {chunk.number for chunk in again} == set(bad)
    assert read_bytes <= len(text)


def test_a_checksum_that_fails_says_that_values_may_be_altered(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(kineto([event(n) for n in range(5)]).encode(), mtime=0))
    packed[-8] ^= 1  # the checksum stands before the length (RFC 1952, 2.3.1)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(bytes(packed))
    store = read(path)
    assert store.con.execute("SELECT count(*) FROM event").fetchall() == [(5,)]
    ((note,),) = store.con.execute("SELECT note FROM source").fetchall()
    assert "all of it was read, and some events may hold altered values" in note
