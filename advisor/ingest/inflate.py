"""Gzip members and zstd frames, one after the other; damage costs what it hits.

A decoder that raises keeps what it had decoded in that call to itself, so the stretch before a
damage is replayed byte by byte. Then the next member (or frame) is looked for: a place counts
only if it can be decompressed from there.
"""

import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import zstandard
from isal import isal_zlib

from advisor.ingest.damage import Damage, Lost, share_of

READ = PIECE = 256 * 1024
_GZIP_READ = 64 * 1024
_SMALL_READ = 16 * 1024
_FIRST_READ = 1024
_DENSE = 256  # real traces compress 8 to 50 times
_MAX_WINDOW = 128 * 1024 * 1024
_BACK = 1024 * 1024
"""Of a cut member a decoder reads on into the next one, at most so far."""
_TRIAL_BYTES = 192 * 1024
_TRIAL_OUTPUT = 4 * 1024
_MOST_TRIES = 1_000
_MOST_SINGLE = 2 * 1024 * 1024
"""Bytes of a file that are fed one by one, some microseconds each: of 25 damaged places."""
_CHECKSUM_BYTES = 8
_MAGIC_BYTES = 4
_MOST_FOREIGN = 4 * 1024
_GAP = b"\x00\n"
"""Stands where data is missing, so that the text around it is not read as one."""
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte 0x50..0x5f (RFC 8878 section 3.1.2)


class Compressed(Protocol):
    """A file on disk: ``consumed_bytes`` is the place of the next read, ``size`` is in bytes.

    ``damage`` and ``skipped`` (compressed bytes not read because of it) are told at the end.
    """

    damage: str | None
    skipped: int
    consumed_bytes: int
    size: int

    def read_compressed(self, size: int = READ) -> bytes:
        """The next bytes; empty at the end."""
        ...

    def seek_compressed(self, offset: int) -> None:
        """Read on at ``offset``, which is no later than what has been read."""
        ...


Pieces = Generator[bytes, None, Damage | None]
"""Decompressed bytes; in the end the damage, or None at the end of the file."""


class Format(NamedTuple):
    """How to decompress one format: quickly, and with every byte before a damage."""

    name: str
    magic: bytes
    begins: Callable[[bytes], bool]
    quick: Callable[[], Any]
    exact: Callable[[], Any]
    feed: Callable[[Any, bytes], Iterator[bytes]]
    read_bytes: int


def is_gzip(data: bytes) -> bool:
    """Whether a gzip member begins there."""
    return data.startswith(GZIP)


def is_zstd(data: bytes) -> bool:
    """Whether a zstd frame begins there, or one to be skipped."""
    return data.startswith(ZSTD) or (data[1:4] == _SKIPPABLE and data[0] & 0xF0 == 0x50)


def _feed_gzip(decoder: Any, data: bytes) -> Iterator[bytes]:
    full = True
    while full and not decoder.eof:
        piece = decoder.decompress(data, PIECE)
        full = len(piece) == PIECE
        yield piece
        data = decoder.unconsumed_tail


def _feed_zstd(decoder: Any, data: bytes) -> Iterator[bytes]:
    piece = decoder.decompress(data)
    # Readers cut their chunks at these pieces, so none may be much larger than a chunk.
    for at in range(0, len(piece), PIECE):
        yield piece[at : at + PIECE]


def _zstd_decoder() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj(write_size=READ)


_ERRORS = (zlib.error, cast(type[Exception], isal_zlib.error), zstandard.ZstdError)
_GZIP_FORMAT = Format(
    "gzip",
    GZIP + b"\x08",
    is_gzip,
    lambda: isal_zlib.decompressobj(31),
    lambda: zlib.decompressobj(31),
    _feed_gzip,
    _GZIP_READ,
)
# One call gives all that its data hold: of a bomb 32,000 times as much.
_ZSTD_FORMAT = Format("zstd", ZSTD, is_zstd, _zstd_decoder, _zstd_decoder, _feed_zstd, _SMALL_READ)


def inflate_gzip(stream: Compressed) -> Any:
    """The decompressed pieces of a gzip file; ``stream.damage`` says what was wrong."""
    return _inflate(stream, _GZIP_FORMAT)


def inflate_zstd(stream: Compressed) -> Any:
    """The decompressed pieces of a zstd file; ``stream.damage`` says what was wrong."""
    return _inflate(stream, _ZSTD_FORMAT)


def _inflate(stream: Compressed, form: Format) -> Any:
    start: int | None = 0
    lost, tries, single = Lost(), _MOST_TRIES, _Single()
    while start is not None:
        damage = yield from _segment(stream, form, start, single)
        if damage is None:
            break
        start, tries = _next_start(stream, form, damage, tries)
        few = stream.size - damage.at <= max(_MOST_FOREIGN, stream.size // 8)
        if start is None and not damage.error and few:  # padding, or a remark
            share = share_of(stream.size - damage.at, stream.size)
            stream.damage = f"bytes after the {form.name} stream were ignored ({share} of the file)"
            break
        if start is not None and start < damage.at:
            damage = damage._replace(error="data is missing before the next one's start")
        lost.places.append(damage)
        left_out = max(0, (stream.size if start is None else start) - damage.at)
        if not (damage.is_checksum and left_out <= _CHECKSUM_BYTES):
            lost.skipped += left_out
        if start is not None:
            lost.resumed += 1
            if not damage.is_checksum:
                yield _GAP
    if lost.places:
        stream.skipped = lost.skipped
        told = lost.told(form.name, stream.size)
        stream.damage = "; ".join(part for part in (told, stream.damage) if part)


@dataclass
class _Single:
    """How many bytes may still be fed one by one."""

    left: int = _MOST_SINGLE

    def step(self, count: int) -> int:
        """How many bytes at a time to feed ``count`` of them."""
        self.left -= count
        return 1 if self.left >= 0 else _FIRST_READ


def _segment(stream: Compressed, form: Format, start: int, single: _Single) -> Pieces:
    """All members from ``start`` on, up to a damage, which is returned."""
    delivered = 0
    stream.seek_compressed(start)
    pieces = _members(stream, form, start)
    try:
        while True:
            piece = next(pieces)
            delivered += len(piece)
            yield piece
    except StopIteration as end:
        return cast(Damage | None, end.value)
    except _ERRORS:
        slow_from = stream.consumed_bytes - form.read_bytes - _SMALL_READ
    step = single.step(stream.consumed_bytes - max(start, slow_from))
    stream.seek_compressed(start)
    again, seen = _members(stream, form, start, slow_from, step), 0
    while True:
        try:
            piece = next(again)
        except StopIteration as end:
            return cast(Damage | None, end.value)
        seen += len(piece)
        if seen > delivered:
            yield piece[max(0, len(piece) - (seen - delivered)) :]
            delivered = seen


def _members(
    stream: Compressed, form: Format, start: int, slow_from: int | None = None, slow_step: int = 1
) -> Pieces:
    """Raises the decoder's error, unless from ``slow_from`` on a few bytes are fed at a time."""
    pending = b""
    while True:
        decoder, fed, size = (form.quick if slow_from is None else form.exact)(), False, _FIRST_READ
        while not decoder.eof:
            pending = pending or stream.read_compressed(size)
            at = stream.consumed_bytes - len(pending)
            step = size if slow_from is None or at < slow_from else slow_step
            data, pending = pending[:step], pending[step:]
            if not data:
                if fed:
                    stream.damage = f"{form.name} stream ends early: the file was cut"
                return None
            fed, out = True, 0
            try:
                for piece in form.feed(decoder, data):
                    out += len(piece)
                    if piece:
                        yield piece
            except _ERRORS as error:
                if slow_from is None:
                    raise
                return Damage(start, at + len(data), str(error))
            size = _FIRST_READ if out > _DENSE * len(data) else form.read_bytes
        pending = decoder.unused_data + pending
        # Little, for it is copied for each member, and there may be thousands in a few bytes.
        while len(pending) < _MAGIC_BYTES and (more := stream.read_compressed(_FIRST_READ)):
            pending += more
        start = stream.consumed_bytes - len(pending)
        if not form.begins(pending):
            blank = not pending.strip(b"\x00")
            while blank and (more := stream.read_compressed(READ)):
                blank = not more.strip(b"\x00")
            return None if blank else Damage(start, start, "")


def _next_start(
    stream: Compressed, form: Format, damage: Damage, tries: int
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
            if _opens(form, stream.read_compressed(_TRIAL_BYTES)):
                return base + found, tries
            stream.seek_compressed(back_to)
            found = kept.find(form.magic, found + 1)
        if not tries:
            return None, 0
        kept = kept[-(len(form.magic) - 1) :]
    return None, tries


def _opens(form: Format, sample: bytes) -> bool:
    """Whether it is no chance that what a member begins with stands there."""
    decoder, out = form.exact(), 0
    for at in range(0, len(sample), _FIRST_READ):
        try:
            out += sum(map(len, form.feed(decoder, sample[at : at + _FIRST_READ])))
        except _ERRORS as error:
            return out >= _TRIAL_OUTPUT or Damage(0, 0, str(error)).is_checksum
        if decoder.eof or out >= PIECE:
            return True
    return out > 0
