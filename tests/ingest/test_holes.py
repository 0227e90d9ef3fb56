"""Damage that takes many events at one place is told in bytes, and in events by their mean size."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.ingest.readers.kineto.lost_bytes import ESTIMATED
from advisor.store.store import Store
from tests.support.marks import long, thinned
from tests.support.traces import LAYOUTS, event, one_line, read

pytestmark = pytest.mark.slow

_MANY = 1500


def _events() -> list[dict[str, Any]]:
    args = {"device": 0, "stream": 7}
    return [event(n, args={**args, "Input Dims": [[n, 2, 3]] * (n % 5)}) for n in range(_MANY)]


def _told(path: Path, data: bytes) -> tuple[int, int, dict[str, int], str, bool]:
    """Events lost, how many the source says, by reason, its note, and whether it is complete."""
    path.write_bytes(data)
    store: Store = read(path)
    ((events,),) = store.con.execute("SELECT count(*) FROM event").fetchall()
    ((dropped, reasons, note, complete),) = store.con.execute(
        "SELECT s.events_dropped, s.drop_reasons, s.note, r.complete FROM source s, rank r"
    ).fetchall()
    return _MANY - events, dropped, json.loads(reasons), note or "", complete


@pytest.mark.long
@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b" "], ids=["zeroed", "erased", "blanked"])
@pytest.mark.parametrize("share", [0.02, *long(0.3)])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_hole_is_told_with_its_size(
    tmp_path: Path, layout: Callable[..., str], share: float, fill: bytes
) -> None:
    data = bytearray(layout(_events()).encode())
    size, at = int(len(data) * share), int(len(data) * 0.4)
    data[at : at + size] = fill * size
    lost, said, reasons, note, complete = _told(tmp_path / "trace.json", bytes(data))
    assert lost > share * _MANY / 2
    assert abs(said - lost) <= max(3, 0.05 * lost)
    assert reasons.pop(ESTIMATED) + reasons.pop("not an event", 0) == said
    assert not reasons
    assert note.startswith("damaged in 1 place: ")
    assert "% of the trace) were not read, about " in note
    assert not complete


def test_a_hole_within_one_string_takes_the_events_that_it_joined(tmp_path: Path) -> None:
    """GIVEN a hole from one event's name into another's: what is left looks like one event."""
    text = one_line(_events())
    first, last = (text.index(f'kernel_{number}"') + 3 for number in (700, 720))
    data = text[:first] + "\0" * (last - first) + text[last:]
    lost, said, reasons, _, complete = _told(tmp_path / "trace.json", data.encode())
    assert lost == 21
    assert abs(said - lost) <= 2
    assert reasons == {ESTIMATED: said}
    assert not complete


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_tail_of_zeros_is_estimated_by_the_events_before(
    tmp_path: Path, layout: Callable[..., str]
) -> None:
    data = layout(_events()).encode()
    half = len(data) // 2
    lost, said, _, note, complete = _told(tmp_path / "trace.json", data[:half] + bytes(half))
    assert abs(said - lost) <= 0.15 * lost
    assert "% of the trace) were not read" in note
    assert "has no end" in note
    assert not complete


@pytest.mark.long
@pytest.mark.parametrize("layout", thinned(LAYOUTS.values(), 3), ids=LAYOUTS)
def test_overwritten_text_counts_as_many_events_as_stood_there(
    tmp_path: Path, layout: Callable[..., str]
) -> None:
    data = layout(_events()).encode()
    dice = random.Random(7475)
    for fill in (dice.randbytes(2000), b" " * 2000):
        for at in (len(data) // 3, len(data) // 2 + 17):
            damaged = data[:at] + fill + data[at + 2000 :]
            lost, said, _, _, complete = _told(tmp_path / "trace.json", damaged)
            assert lost > 3
            assert abs(said - lost) <= 3
            assert not complete


def _half_a_member(data: bytes) -> bytes:
    """Gzip of ``data`` whose second half is overwritten from a block's start on."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    half = packer.compress(data[: len(data) // 2]) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = packer.compress(data[len(data) // 2 :]) + packer.flush()
    return half + b"\xff" * len(rest)


@pytest.mark.parametrize("parts", [1, 5])
def test_what_damaged_gzip_keeps_back_is_estimated(tmp_path: Path, parts: int) -> None:
    dice = random.Random(64)
    events = [event(n, name=f"kernel_{dice.random()}") for n in range(_MANY)]
    data = one_line(events).encode()
    step = len(data) // parts + 1
    texts = [data[at : at + step] for at in range(0, len(data), step)]
    hit = parts // 2
    members = [
        _half_a_member(text) if number == hit else gzip.compress(text, mtime=0)
        for number, text in enumerate(texts)
    ]
    path = tmp_path / "trace.json.gz"
    lost, said, reasons, note, complete = _told(path, b"".join(members))
    assert lost > _MANY // (3 * parts)
    assert abs(said - lost) <= 0.1 * lost
    assert reasons[ESTIMATED] >= 0.9 * lost
    assert "stood in what could not be decompressed" in note
    assert not complete


def test_garbled_text_that_hides_the_rest_of_a_file_is_estimated(tmp_path: Path) -> None:
    """GIVEN brackets and quotes gone wild in mid-file, so that no later event's start is found."""
    text = one_line(_events())
    middle = text.index('"ph"', len(text) // 2)
    data = text[:middle] + text[middle:].replace("}", "").replace("{", "")
    lost, said, reasons, _, complete = _told(tmp_path / "trace.json", data.encode())
    assert lost > _MANY // 3
    assert abs(said - lost) <= 0.1 * lost
    assert reasons[ESTIMATED] >= 0.9 * lost
    assert not complete


def test_one_large_event_that_is_malformed_counts_once(tmp_path: Path) -> None:
    events = _events()
    events[700]["args"]["Input Dims"] = [[1, 2, 3]] * 4000
    text = one_line(events).replace('"name": "kernel_700"', '"name": "kernel_700')
    lost, said, reasons, _, _ = _told(tmp_path / "trace.json", text.encode())
    assert (lost, said, reasons) == (1, 1, {"malformed event": 1})
