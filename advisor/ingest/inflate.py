"""Gzip members and zstd frames, one after the other; damage costs what it hits.

A decoder that raises keeps what it had decoded in that call to itself, so the stretch before a
damage is replayed in small steps. Then the next member (or frame) is looked for: a place counts
only if it can be decompressed from there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import zstandard
from isal import isal_zlib

from advisor.ingest.damage import Damage, Lost, share_of

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
READ = PIECE = 256 * 1024
_SMALL_READ = 16 * 1024
_MAX_ZSTD_WINDOW = 128 * 1024 * 1024
_GZIP_ERRORS = (zlib.error, cast(type[Exception], isal_zlib.error))
_BACK = 1024 * 1024
"""Of a cut member a decoder reads on into the next one, at most so far."""
_TRIAL_BYTES = 192 * 1024
_TRIAL_OUTPUT = 4 * 1024
_MOST_TRIES = 1_000
_CHECKSUM_BYTES = 8
_GAP = b"\x00\n"
"""Stands where data is missing, so that the text around it is not read as one."""


class Compressed(Protocol):
    """A file on disk: ``consumed_bytes`` is the place of the next read, ``size`` is in bytes."""

    damage: str | None
    consumed_bytes: int
    size: int

    def read_compressed(self, size: int = READ) -> bytes:
        """The next bytes; empty at the end."""
        ...

    def seek_compressed(self, offset: int) -> None:
        """Read on at ``offset``, which is no later than what has been read."""
        ...


Pieces = Generator[bytes, None, Damage | None]


@dataclass(frozen=True)
class _Format:
    """How to decompress one format: quickly, with every byte before a damage, and on trial."""

    name: str
    magic: bytes
    errors: tuple[type[Exception], ...]
    quick: Callable[[Compressed, int], Pieces]
    exact: Callable[[Compressed, int, int], Pieces]
    opens: Callable[[bytes], bool]


def inflate_gzip(stream: Compressed) -> Any:
    """The decompressed pieces of a gzip file; ``stream.damage`` says what was wrong."""
    return _inflate(stream, _GZIP_FORMAT)


def inflate_zstd(stream: Compressed) -> Any:
    """The decompressed pieces of a zstd file; ``stream.damage`` says what was wrong."""
    return _inflate(stream, _ZSTD_FORMAT)


def _inflate(stream: Compressed, form: _Format) -> Any:
    start: int | None = 0
    lost, tries = Lost(), _MOST_TRIES
    while start is not None:
        damage = yield from _segment(stream, form, start)
        if damage is None:
            break
        start, tries = _next_start(stream, form, damage, tries)
        if start is None and not damage.error:  # what follows the last member is none
            share = share_of(stream.size - damage.at, stream.size)
            stream.damage = f"bytes after the {form.name} stream were ignored ({share} of the file)"
            break
        if start is not None and start < damage.at:
            damage = replace(damage, error="data is missing before the next one's start")
        lost.places.append(damage)
        left_out = max(0, (stream.size if start is None else start) - damage.at)
        if not (damage.is_checksum and left_out <= _CHECKSUM_BYTES):
            lost.skipped += left_out
        if start is not None:
            lost.resumed += 1
            if not damage.is_checksum:
                yield _GAP
    if lost.places:
        told = lost.told(form.name, stream.size)
        stream.damage = "; ".join(part for part in (told, stream.damage) if part)


def _segment(stream: Compressed, form: _Format, start: int) -> Pieces:
    """All members from ``start`` on, up to a damage, which is returned."""
    delivered = 0
    stream.seek_compressed(start)
    pieces = form.quick(stream, start)
    try:
        while True:
            piece = next(pieces)
            delivered += len(piece)
            yield piece
    except StopIteration as end:
        return cast(Damage | None, end.value)
    except form.errors:
        failed_at = stream.consumed_bytes
    stream.seek_compressed(start)
    again, seen = form.exact(stream, start, failed_at), 0
    while True:
        try:
            piece = next(again)
        except StopIteration as end:
            return cast(Damage | None, end.value)
        seen += len(piece)
        if seen > delivered:
            yield piece[max(0, len(piece) - (seen - delivered)) :]
            delivered = seen


def _next_start(
    stream: Compressed, form: _Format, damage: Damage, tries: int
) -> tuple[int | None, int]:
    """Where the next member starts, and how many places may still be tried."""
    at = max(damage.start + 1, damage.at - _BACK) if damage.error else damage.at
    stream.seek_compressed(at)
    kept = b""
    while data := stream.read_compressed(READ):
        kept += data
        found = kept.find(form.magic)
        while found >= 0 and tries:
            tries -= 1
            base, back_to = stream.consumed_bytes - len(kept), stream.consumed_bytes
            stream.seek_compressed(base + found)
            sample = stream.read_compressed(_TRIAL_BYTES)
            if form.opens(sample):
                return base + found, tries
            stream.seek_compressed(back_to)
            found = kept.find(form.magic, found + 1)
        if not tries:
            return None, 0
        kept = kept[-(len(form.magic) - 1) :]
    return None, tries


def _gzip_quick(stream: Compressed, start: int) -> Pieces:
    """By ISA-L. Raises its error where the data is damaged."""
    inflater: Any = isal_zlib.decompressobj(31)
    pending, fed = b"", False
    while data := pending or stream.read_compressed(READ):
        pending, fed = b"", True
        piece = inflater.decompress(data, PIECE)
        while piece:
            yield piece
            if inflater.eof or len(piece) < PIECE:
                break
            piece = inflater.decompress(inflater.unconsumed_tail, PIECE)
        if inflater.eof:
            rest, end = _after_member(stream, inflater.unused_data)
            if not rest:
                return end
            inflater, pending, fed = isal_zlib.decompressobj(31), rest, False
    if fed:
        stream.damage = "gzip stream ends early: the file was cut"
    return None


def _gzip_exact(stream: Compressed, start: int, failed_at: int) -> Pieces:
    """By zlib, which lets a state be kept: before a damage every byte is given."""
    inflater: Any = zlib.decompressobj(31)
    pending, fed = b"", False
    while data := pending or stream.read_compressed(_SMALL_READ):
        pending, fed = data[_SMALL_READ:], True
        data = data[:_SMALL_READ]
        saved = inflater.copy()
        try:
            piece = inflater.decompress(data)
        except zlib.error as error:
            before, used = _before_damage(saved, data)
            if before:
                yield before
            at = stream.consumed_bytes - len(pending) - len(data) + used
            return Damage(start, at, str(error))
        if piece:
            yield piece
        if inflater.eof:
            rest, end = _after_member(stream, inflater.unused_data + pending)
            if not rest:
                return end
            start = stream.consumed_bytes - len(rest)
            inflater, pending, fed = zlib.decompressobj(31), rest, False
    if fed:
        stream.damage = "gzip stream ends early: the file was cut"
    return None


def _before_damage(inflater: Any, data: bytes) -> tuple[bytes, int]:
    """What comes out of ``data`` before the byte at which it fails, and that byte's offset."""
    out, used = b"", 0
    while len(data) > 1:
        half, trial = data[: len(data) // 2], inflater.copy()
        try:
            out += trial.decompress(half)
        except zlib.error:
            data = half
        else:
            inflater, data, used = trial, data[len(half) :], used + len(half)
    return out, used + 1


def _after_member(stream: Compressed, rest: bytes) -> tuple[bytes, Damage | None]:
    """The bytes that begin the next member; else none, and where something else stands."""
    while len(rest) < len(GZIP) and (more := stream.read_compressed(READ)):
        rest += more
    if rest.startswith(GZIP):
        return rest, None
    at = stream.consumed_bytes - len(rest)
    blank = not rest.strip(b"\x00")
    while blank and (more := stream.read_compressed(READ)):
        blank = not more.strip(b"\x00")
    return b"", None if blank else Damage(at, at, "")


def _gzip_opens(sample: bytes) -> bool:
    inflater = zlib.decompressobj(31)
    out = 0
    for at in range(0, len(sample), 1024):
        try:
            out += len(inflater.decompress(sample[at : at + 1024], PIECE))
        except zlib.error as error:
            return out >= _TRIAL_OUTPUT or Damage(0, 0, str(error)).is_checksum
        if inflater.eof or out >= PIECE:
            return True
    return out > 0


def _zstd_frame() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompressobj(
        write_size=READ
    )


def _zstd_quick(stream: Compressed, start: int) -> Pieces:
    """Raises the decoder's error where the data is damaged."""
    return (yield from _zstd_frames(stream, start, None))


def _zstd_exact(stream: Compressed, start: int, failed_at: int) -> Pieces:
    """Single bytes at the end, so that every byte before the damage is given."""
    return (yield from _zstd_frames(stream, start, failed_at - 2 * _SMALL_READ))


def _zstd_frames(stream: Compressed, start: int, slow_from: int | None) -> Pieces:
    pending = b""
    while True:
        frame, fed = _zstd_frame(), False
        while not frame.eof:
            slow = slow_from is not None and stream.consumed_bytes >= slow_from
            data = pending or stream.read_compressed(1 if slow else _SMALL_READ)
            if not data:
                if fed:
                    stream.damage = "zstd stream ends early: the file was cut"
                return None
            pending, fed = b"", True
            try:
                piece = frame.decompress(data)
            except zstandard.ZstdError as error:
                if slow_from is None:
                    raise
                return Damage(start, stream.consumed_bytes, str(error))
            if piece:
                yield piece
        pending = frame.unused_data
        start = stream.consumed_bytes - len(pending)


def _zstd_opens(sample: bytes) -> bool:
    frame, out = _zstd_frame(), 0
    for at in range(0, len(sample), 1024):
        try:
            out += len(frame.decompress(sample[at : at + 1024]))
        except zstandard.ZstdError as error:
            return out > 0 or Damage(0, 0, str(error)).is_checksum
        if frame.eof or out >= PIECE:
            return True
    return out > 0


_GZIP_FORMAT = _Format("gzip", GZIP + b"\x08", _GZIP_ERRORS, _gzip_quick, _gzip_exact, _gzip_opens)
_ZSTD_FORMAT = _Format("zstd", ZSTD, (zstandard.ZstdError,), _zstd_quick, _zstd_exact, _zstd_opens)
