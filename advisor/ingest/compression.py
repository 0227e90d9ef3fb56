"""Byte streams of input files: decompressed by magic number, bounded, and honest about damage.

Compressed files lie about their names (`.json` that is gzip, `.gz` that is not), are cut by killed
jobs, and can be bombs. A stream here yields every byte that can be recovered, says in ``damage``
what was wrong with the container, and refuses with an :class:`AdvisorError` to inflate without end.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard
from blake3 import blake3
from isal import isal_zlib

from advisor.errors import AdvisorError

_READ = 256 * 1024
_PIECE = 256 * 1024
_ZSTD_READ = 16 * 1024
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte 0x50..0x5f (RFC 8878 section 3.1.2)
_MAX_ZSTD_WINDOW = 128 * 1024 * 1024
_INFLATE_ERRORS = (zlib.error, cast(type[Exception], isal_zlib.error))
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip"}


@dataclass(frozen=True)
class Limits:
    """What one input may cost; exceeding any of them is an error, not a slow death.

    ``ratio`` (decompressed / compressed bytes) is enforced once ``ratio_from_bytes`` came out:
    real traces compress 8 to 50 times, a bomb 1,000 times and more.
    """

    total_bytes: int = 256 * 1024**3
    ratio: int = 300
    ratio_from_bytes: int = 64 * 1024**2
    event_bytes: int = 16 * 1024**2
    nesting: int = 200


DEFAULT_LIMITS = Limits()


class _Inflater(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


class DecompressedFile(io.RawIOBase):
    """A readable raw stream over a plain, gzip or zstd file (several members or frames included).

    ``damage`` becomes a sentence when the container is cut or corrupt; the bytes before the
    damage are still delivered.
    """

    def __init__(self, path: Path, compression: str, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.path = path
        self.damage: str | None = None
        self._limits = limits
        self._file = path.open("rb", buffering=0)
        self._chunks = _CHUNKS[compression](self)
        self._ready = memoryview(b"")
        self.consumed_bytes = 0
        self.produced_bytes = 0
        self._hash: Any = None

    def readable(self) -> bool:
        """Always: it is an input."""
        return True

    def close(self) -> None:
        """Close the file underneath too."""
        if not self.closed:
            self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` with the next bytes; 0 at the end (or at damage)."""
        view = memoryview(buffer).cast("B")
        if not self._ready:
            self._ready = memoryview(self._next())
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def read_piece(self) -> bytes:
        """The next bytes in the size in which they come (about 256 KiB); empty at the end."""
        if self._ready:
            piece, self._ready = bytes(self._ready), memoryview(b"")
            return piece
        return self._next()

    def _next(self) -> bytes:
        piece = next(self._chunks, b"")
        self.produced_bytes += len(piece)
        self._check_bounds()
        return piece

    def _check_bounds(self) -> None:
        limits, produced = self._limits, self.produced_bytes
        if produced > limits.total_bytes:
            raise AdvisorError(
                f"holds more than {limits.total_bytes >> 30} GiB of data",
                where=str(self.path),
                hint="split the trace, or record fewer steps",
            )
        if produced > limits.ratio_from_bytes and produced > limits.ratio * self.consumed_bytes:
            raise AdvisorError(
                f"decompresses to more than {limits.ratio} times its size: refused as a "
                f"decompression bomb after {produced >> 20} MiB",
                where=f"{self.path}:{self.consumed_bytes}",
                hint="if the file is genuine, decompress it yourself and pass the result",
            )

    def read_compressed(self, size: int = _READ) -> bytes:
        """The next bytes of the file on disk."""
        data = self._file.read(size) or b""
        self.consumed_bytes += len(data)
        if self._hash is not None:
            self._hash.update(data)
        return data

    def start_hash(self) -> None:
        """Hash the file on disk as it is read; call before the first read."""
        self._hash = blake3()

    def hexdigest(self) -> str | None:
        """BLAKE3 of the whole file on disk; None when hashing was not asked for or undone."""
        if self._hash is None:
            return None
        while self.read_compressed(_PIECE):
            pass
        return str(self._hash.hexdigest())

    def restart(self) -> None:
        """Back to the first byte on disk, to replay up to a damaged place."""
        self._file.seek(0)
        self.consumed_bytes = 0
        if self._hash is not None:
            self._hash = blake3()


def _plain(stream: DecompressedFile) -> Any:
    while data := stream.read_compressed(_PIECE):
        yield data


def _gzip(stream: DecompressedFile) -> Any:
    """ISA-L first; after an error the rest is replayed by zlib in small steps.

    A decoder that raises keeps what it had decoded in that call to itself, so the bytes between
    the last good call and the damage are fetched by feeding single bytes.
    """
    delivered = 0
    try:
        for piece in _members(stream, lambda: isal_zlib.decompressobj(31), _READ):
            delivered += len(piece)
            yield piece
        return
    except _INFLATE_ERRORS:
        failed_at = stream.consumed_bytes
    stream.restart()
    seen = 0
    try:
        for piece in _members(
            stream, lambda: zlib.decompressobj(31), _READ, slow_from=failed_at - 2 * _READ
        ):
            seen += len(piece)
            if seen > delivered:
                yield piece[max(0, len(piece) - (seen - delivered)) :]
                delivered = seen
    except zlib.error as error:
        stream.damage = _gzip_damage(stream.consumed_bytes, str(error))


def _gzip_damage(at: int, error: str) -> str:
    """Where inflating failed, or that it only came out wrong: the checksum stands at the end."""
    if "incorrect data check" in error or "incorrect length check" in error:
        return (
            f"gzip data is damaged somewhere before byte {at} ({error}): "
            "all of it was read, and some events may hold altered values"
        )
    return f"gzip data is damaged at or before byte {at} ({error})"


def _members(
    stream: DecompressedFile,
    new: Callable[[], Any],
    size: int,
    slow_from: int | None = None,
) -> Any:
    """Decompress concatenated gzip members; trailing bytes that are no member are ignored."""
    inflater: _Inflater = new()
    pending = b""
    started = False
    while True:
        slow = slow_from is not None and stream.consumed_bytes >= slow_from
        data = pending or stream.read_compressed(1 if slow else size)
        pending = b""
        if not data:
            if started and not inflater.eof:
                stream.damage = "gzip stream ends early: the file was cut"
            return
        started = True
        piece = inflater.decompress(data, _PIECE)
        while piece:
            yield piece
            if inflater.eof or len(piece) < _PIECE:
                break
            piece = inflater.decompress(cast(Any, inflater).unconsumed_tail, _PIECE)
        if inflater.eof:
            rest = inflater.unused_data
            while len(rest) < len(_GZIP) and (more := stream.read_compressed(size)):
                rest += more
            if not rest:
                return
            if not rest.startswith(_GZIP):
                if rest.strip(b"\x00"):
                    stream.damage = "bytes after the gzip stream were ignored"
                return
            inflater, pending, started = new(), rest, False


def _zstd(stream: DecompressedFile) -> Any:
    """As :func:`_gzip`: what a failed call had decoded is fetched by feeding single bytes."""
    delivered = 0
    try:
        for piece in _frames(stream):
            delivered += len(piece)
            yield piece
        return
    except zstandard.ZstdError:
        failed_at = stream.consumed_bytes
    stream.restart()
    seen = 0
    try:
        for piece in _frames(stream, slow_from=failed_at - 2 * _ZSTD_READ):
            seen += len(piece)
            if seen > delivered:
                yield piece[max(0, len(piece) - (seen - delivered)) :]
                delivered = seen
    except zstandard.ZstdError as error:
        stream.damage = f"zstd data is damaged near byte {stream.consumed_bytes} ({error})"


def _frames(stream: DecompressedFile, slow_from: int | None = None) -> Any:
    """Decompress concatenated zstd frames."""
    pending = b""
    while True:
        frame = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).decompressobj(
            write_size=_READ
        )
        started = False
        while not frame.eof:
            slow = slow_from is not None and stream.consumed_bytes >= slow_from
            data = pending or stream.read_compressed(1 if slow else _ZSTD_READ)
            pending = b""
            if not data:
                if started:
                    stream.damage = "zstd stream ends early: the file was cut"
                return
            started = True
            piece = frame.decompress(data)
            if piece:
                yield piece
        pending = frame.unused_data


_CHUNKS: dict[str, Callable[[DecompressedFile], Any]] = {
    "none": _plain,
    "gzip": _gzip,
    "zstd": _zstd,
}


def compression_of(magic: bytes) -> str:
    """``none``, ``gzip`` or ``zstd`` by the first bytes; whatever the name says.

    Raises :class:`AdvisorError` for containers that this tool does not open.
    """
    if magic.startswith(_GZIP):
        return "gzip"
    if magic.startswith(_ZSTD) or (magic[1:4] == _ZSTD_SKIPPABLE and magic[0] & 0xF0 == 0x50):
        return "zstd"
    for prefix, name in _UNSUPPORTED.items():
        if magic.startswith(prefix):
            raise AdvisorError(
                f"is a {name} file, which is not read", hint="decompress it first (or use gzip)"
            )
    return "none"


def open_decompressed(
    path: Path, compression: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[BinaryIO, DecompressedFile]:
    """A buffered binary stream and the raw stream under it (which knows ``damage``)."""
    raw = DecompressedFile(path, compression, limits)
    return io.BufferedReader(raw, buffer_size=_PIECE), raw
