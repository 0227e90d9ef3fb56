"""What a trace may hold beyond one rank's events and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import AdvisorError
from advisor.ingest.compression import Limits, open_decompressed
from advisor.store.store import Store
from tests.support.traces import event, kineto, one_line, read

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


def test_several_ranks_in_one_file_by_the_names_of_processes(tmp_path: Path) -> None:
    named = [
        {"ph": "M", "name": "process_name", "pid": 100 + rank, "args": {"name": f"Rank {rank}"}}
        for rank in range(3)
    ]
    events = [event(number, pid=100 + number % 3) for number in range(30)]
    path = tmp_path / "merged.json"
    path.write_text(kineto([*named, *events], distributedInfo={}))
    assert _ranks(read(path)) == sorted((number % 3, f"kernel_{number}") for number in range(30))


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
