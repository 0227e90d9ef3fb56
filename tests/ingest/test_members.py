"""GIVEN several gzip members or zstd frames WHEN one is damaged THEN the others are read."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from advisor.errors import AdvisorError
from advisor.ingest.compression import DecompressedFile, open_decompressed
from tests.support.marks import long, slow
from tests.support.traces import dropped, event, kineto, names, notes, read

pytestmark = pytest.mark.slow

_COUNT, _PARTS = 6_000, 4


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def _parts(compress: Callable[[bytes], bytes]) -> list[bytes]:
    text = kineto([event(number) for number in range(_COUNT)]).encode()
    step = len(text) // _PARTS + 1
    return [compress(text[at : at + step]) for at in range(0, len(text), step)]


def _write(folder: Path, parts: list[bytes]) -> Path:
    path = folder / "trace.json.gz"
    path.write_bytes(b"".join(parts))
    return path


def _whole(number: int) -> set[str]:
    """Events that stand in other members than ``number``, with a margin at its edges."""
    step, margin = _COUNT // _PARTS, 60
    return {
        f"kernel_{at}"
        for at in range(_COUNT)
        if not number * step - margin <= at < (number + 1) * step + margin
    }


@pytest.mark.long
@pytest.mark.parametrize("number", range(_PARTS))
@pytest.mark.parametrize("compress", [gzip.compress, *slow(_zstd)], ids=["gzip", "zstd"])
def test_a_bad_checksum_loses_nothing(
    tmp_path: Path, compress: Callable[[bytes], bytes], number: int
) -> None:
    parts = _parts(compress)
    parts[number] = parts[number][:-8] + bytes(byte ^ 1 for byte in parts[number][-8:])
    if compress is _zstd:
        parts = _parts(compress)
        parts[number] = parts[number][:-1] + bytes([parts[number][-1] ^ 1])
    store = read(_write(tmp_path, parts))
    assert names(store) == [f"kernel_{at}" for at in range(_COUNT)]
    assert "all of it was read, and some events may hold altered values" in notes(store)
    assert store.con.execute("SELECT complete FROM rank").fetchall() == [(False,)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["body", "cut", "header"])
@pytest.mark.parametrize("number", [1, *long(2)])
@pytest.mark.parametrize("compress", [gzip.compress, *slow(_zstd)], ids=["gzip", "zstd"])
def test_members_after_a_damaged_one_are_read(
    tmp_path: Path, compress: Callable[[bytes], bytes], number: int, kind: str
) -> None:
    parts = _parts(compress)
    part = bytearray(parts[number])
    noise = random.Random(number).randbytes(len(part))
    if kind == "body":
        part[len(part) // 2 :] = noise[len(part) // 2 :]
    elif kind == "cut":
        del part[len(part) // 2 :]
    else:
        part[:12] = bytes(12)
    parts[number] = bytes(part)
    store = read(_write(tmp_path, parts))
    found = names(store)
    assert _whole(number) <= set(found)
    assert len(set(found)) < _COUNT
    note = notes(store)
    assert "reading went on at the next" in note
    assert "all of it was read" not in note
    if kind == "header":
        (share,) = re.findall(r"([\d.]+) % of the compressed bytes were not read", note)
        size = sum(map(len, parts))
        assert float(share) == pytest.approx(100 * len(part) / size, abs=0.5)


@pytest.mark.parametrize("compress", [gzip.compress, _zstd], ids=["gzip", "zstd"])
def test_a_last_member_whose_beginning_is_lost_counts(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    """GIVEN a beginning that is lost THEN the member's events are estimated."""
    parts = _parts(compress)
    parts[-1] = bytes(300) + parts[-1][300:]
    store = read(_write(tmp_path, parts))
    assert len(names(store)) < _COUNT
    assert sum(dropped(store).values()) > _COUNT // _PARTS // 2
    assert "of the compressed bytes were not read" in notes(store)


def test_what_follows_the_last_zstd_frame_is_ignored_and_takes_no_event(tmp_path: Path) -> None:
    """GIVEN bytes that begin no frame THEN they are told, and not counted as events lost."""
    parts = _parts(_zstd)
    behind = random.Random(5).randbytes(3_000)
    store = read(_write(tmp_path, [*parts, behind]))
    assert len(names(store)) == _COUNT
    assert dropped(store) == {}
    share = 100 * len(behind) / (sum(map(len, parts)) + len(behind))
    assert f"bytes after the zstd stream were ignored ({share:.1f} % of the file)" in notes(store)


def test_many_starts_that_are_none_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is tried is bounded, however many places look like a member."""
    path = tmp_path / "trace.json.gz"
    good = gzip.compress(b'{"traceEvents": [' + json.dumps(event(0)).encode())
    path.write_bytes(good[:-8] + bytes(8) + b"\x1f\x8b\x08\x00\xff\xff" * 200_000)
    taken, reading = 0, DecompressedFile.read_compressed

    def counted(stream: DecompressedFile, size: int = 1) -> bytes:
        nonlocal taken
        data = reading(stream, size)
        taken += len(data)
        return data

    monkeypatch.setattr(DecompressedFile, "read_compressed", counted)
    stream, raw = open_decompressed(path, "gzip")
    with stream:
        assert b"kernel_0" in stream.read()
    assert taken < 256 << 20  # 1,000 places tried, however long the file
    assert raw.damage is not None
    assert "of the compressed bytes were not read" in raw.damage


def test_the_hash_is_of_the_whole_file_after_damage(tmp_path: Path) -> None:
    parts = _parts(gzip.compress)
    parts[1] = parts[1][:-8] + bytes(8)
    path = _write(tmp_path, parts)
    whole = read(path).con.execute("SELECT blake3 FROM source").fetchall()
    stream, raw = open_decompressed(path, "none")
    raw.start_hash()
    with stream:
        stream.read()
        assert whole == [(raw.hexdigest(),)]


def test_zeros_are_no_gzip(tmp_path: Path) -> None:
    for content in (bytes(100), bytes(1 << 20), bytes(10) + b"no deflate" * 99):
        path = tmp_path / "trace.json.gz"
        path.write_bytes(content)
        with pytest.raises(AdvisorError, match="no trace or log"):
            read(path)
