"""Byte streams of input files: decompressed by magic number, bounded, and honest about damage.

Compressed files lie about their names (`.json` that is gzip, `.gz` that is not), are cut by killed
jobs, and can be bombs. A stream here yields every byte that can be recovered, says in ``damage``
what was wrong with the container, and refuses with an :class:`AdvisorError` to inflate without end.
"""

import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from blake3 import blake3

from advisor.errors import AdvisorError
from advisor.ingest.inflate import PIECE, READ, inflate_gzip, inflate_zstd, is_gzip, is_zstd

_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip"}
# A checkpoint by torch.save is a zip file too, and no trace in any case: a header of 30 bytes and
# the name of its first member (pytorch/pytorch caffe2/serialize/inline_container.cc).
_MAGIC_BYTES = 256
_SAVED = re.compile(rb"PK\x03\x04.{26}[^/]*/data\.pkl", re.DOTALL)


class Limits(NamedTuple):
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


class DecompressedFile(io.RawIOBase):
    """A readable raw stream over a plain, gzip or zstd file (several members or frames included).

    ``damage`` becomes a sentence when the container is cut or corrupt; the bytes before the
    damage are still delivered. ``skipped`` counts compressed bytes passed over because of it.
    """

    def __init__(self, path: Path, compression: str, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.path = path
        self.damage: str | None = None
        self.skipped = 0
        self._limits = limits
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        self._chunks = _CHUNKS[compression](self)
        self._ready = memoryview(b"")
        self.consumed_bytes = 0
        self.produced_bytes = 0
        self._hash: Any = None
        self._hashed = 0

    @property
    def missing_bytes(self) -> int:
        """About how many bytes damage kept from being decompressed, as the others compress."""
        return self.skipped * self.produced_bytes // max(self.size - self.skipped, 1)

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

    def read_compressed(self, size: int = READ) -> bytes:
        """The next bytes of the file on disk."""
        data = self._file.read(size) or b""
        start = self.consumed_bytes
        self.consumed_bytes += len(data)
        if self._hash is not None and self.consumed_bytes > self._hashed:
            self._hash.update(data[self._hashed - start :])
            self._hashed = self.consumed_bytes
        return data

    def start_hash(self) -> None:
        """Hash the file on disk as it is read; call before the first read."""
        self._hash = blake3()

    def hexdigest(self) -> str | None:
        """BLAKE3 of the whole file on disk; None when hashing was not asked for."""
        if self._hash is None:
            return None
        while self.read_compressed(PIECE):
            pass
        return str(self._hash.hexdigest())

    def seek_compressed(self, offset: int) -> None:
        """Read on at ``offset`` on disk, which is no later than what has been read."""
        self._file.seek(offset)
        self.consumed_bytes = offset


def _plain(stream: DecompressedFile) -> Any:
    while data := stream.read_compressed(PIECE):
        yield data


_CHUNKS: dict[str, Callable[[DecompressedFile], Any]] = {
    "none": _plain,
    "gzip": inflate_gzip,
    "zstd": inflate_zstd,
}


def compression_of(magic: bytes) -> str:
    """``none``, ``gzip`` or ``zstd`` by the first bytes; whatever the name says.

    Raises :class:`AdvisorError` for containers that this tool does not open.
    """
    if is_gzip(magic):
        return "gzip"
    if is_zstd(magic):
        return "zstd"
    for prefix, name in _UNSUPPORTED.items():
        if magic.startswith(prefix) and not _SAVED.match(magic):
            raise AdvisorError(
                f"is a {name} file, which is not read", hint="decompress it first (or use gzip)"
            )
    return "none"


def compression_of_file(path: Path) -> str:
    """As :func:`compression_of`. Raises :class:`OSError` too."""
    with path.open("rb") as file:
        return compression_of(file.read(_MAGIC_BYTES))


def open_decompressed(
    path: Path, compression: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[BinaryIO, DecompressedFile]:
    """A buffered binary stream and the raw stream under it (which knows ``damage``)."""
    raw = DecompressedFile(path, compression, limits)
    return io.BufferedReader(raw, buffer_size=PIECE), raw
