"""Decompresses zstd frames, one after the other: quickly, and with every byte before a damage."""

from __future__ import annotations

from typing import Any

import zstandard

from advisor.ingest.compressed import PIECE, READ, SMALL_READ, Compressed, Format, Pieces
from advisor.ingest.damage import Damage

ZSTD = b"\x28\xb5\x2f\xfd"
_MAX_WINDOW = 128 * 1024 * 1024
_FIRST_READ = 1024
_TRIAL_OUTPUT = 4 * 1024
_DENSE = 256  # real traces compress 8 to 50 times


def _frame() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj(write_size=READ)


def _quick(stream: Compressed, start: int) -> Pieces:
    """Raises the decoder's error where the data is damaged."""
    return (yield from _frames(stream, start, None))


def _exact(stream: Compressed, start: int, failed_at: int) -> Pieces:
    """Single bytes at the end, so that every byte before the damage is given."""
    return (yield from _frames(stream, start, failed_at - 2 * SMALL_READ))


def _frames(stream: Compressed, start: int, slow_from: int | None) -> Pieces:
    pending = b""
    while True:
        frame, fed, size = _frame(), False, _FIRST_READ
        while not frame.eof:
            slow = slow_from is not None and stream.consumed_bytes >= slow_from
            data = pending or stream.read_compressed(1 if slow else size)
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
                failed_at = stream.consumed_bytes
                if start and not _begins_frame(stream, start):
                    return Damage(start, start, "")
                return Damage(start, failed_at, str(error))
            # One call gives all that its data hold: of a bomb 32,000 times as much.
            size = _FIRST_READ if len(piece) > _DENSE * len(data) else SMALL_READ
            # Readers cut their chunks at these pieces, so none may be much larger than a chunk.
            for at in range(0, len(piece), PIECE):
                yield piece[at : at + PIECE]
        pending = frame.unused_data
        start = stream.consumed_bytes - len(pending)


def _begins_frame(stream: Compressed, start: int) -> bool:
    """Whether at least half of a frame's first bytes stand there, so that it may be damaged."""
    stream.seek_compressed(start)
    begin = stream.read_compressed(len(ZSTD))
    return sum(map(int.__eq__, begin, ZSTD)) >= len(ZSTD) // 2


def _opens(sample: bytes) -> bool:
    frame, out = _frame(), 0
    for at in range(0, len(sample), 1024):
        try:
            out += len(frame.decompress(sample[at : at + 1024]))
        except zstandard.ZstdError as error:
            return out > 0 or Damage(0, 0, str(error)).is_checksum
        if frame.eof or out >= PIECE:
            return True
    return out > 0


def looks_like_zstd(path_suffix: str, beginning: bytes) -> bool:
    """Whether a file that starts as nothing known may be zstd: by its name, or most of its mark."""
    same = sum(map(int.__eq__, beginning, ZSTD))
    named = path_suffix.lower() in (".zst", ".zstd")
    return named or same >= len(ZSTD) // 2 or beginning.startswith(b"\x00")


def mended_magic(beginning: bytes) -> bytes | None:
    """The four bytes that should stand at the beginning; None where they do, or do not help."""
    data = ZSTD + beginning[len(ZSTD) :]
    if beginning.startswith(ZSTD):
        return None
    frame, out = _frame(), 0
    for at in range(0, len(data), _FIRST_READ):
        try:
            out += len(frame.decompress(data[at : at + _FIRST_READ]))
        except zstandard.ZstdError:
            return None
        if frame.eof or out >= _TRIAL_OUTPUT:
            return ZSTD
    return None


ZSTD_FORMAT = Format("zstd", ZSTD, (zstandard.ZstdError,), _quick, _exact, _opens, mended_magic)
