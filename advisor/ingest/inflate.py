"""Gzip members and zstd frames, one after the other; damage costs what it hits.

A decoder that raises keeps what it had decoded in that call to itself, so the stretch before a
damage is replayed in small steps. Then the next member (or frame) is looked for: a place counts
only if it can be decompressed from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from advisor.ingest.compressed import READ, Compressed, Format, Pieces
from advisor.ingest.damage import Damage, Lost, share_of
from advisor.ingest.gzip_members import GZIP_FORMAT
from advisor.ingest.zstd_frames import ZSTD_FORMAT

_BACK = 1024 * 1024
"""Of a cut member a decoder reads on into the next one, at most so far."""
_TRIAL_BYTES = 192 * 1024
_MOST_TRIES = 1_000
_CHECKSUM_BYTES = 8
_HEADER_BYTES = 64
_MOST_FOREIGN = 4 * 1024
_GAP = b"\x00\n"
"""Stands where data is missing, so that the text around it is not read as one."""


def inflate_gzip(stream: Compressed) -> Any:
    """The decompressed pieces of a gzip file; ``stream.damage`` says what was wrong."""
    return _inflate(stream, GZIP_FORMAT)


def inflate_zstd(stream: Compressed) -> Any:
    """The decompressed pieces of a zstd file; ``stream.damage`` says what was wrong."""
    return _inflate(stream, ZSTD_FORMAT)


def _inflate(stream: Compressed, form: Format) -> Any:
    start: int | None = 0
    lost, tries, headers = Lost(), _MOST_TRIES, 0
    while start is not None:
        damage = yield from _segment(stream, form, start)
        if damage is None:
            break
        if (mended := _mended(stream, form, damage)) is not None:
            start, headers = mended, headers + 1
            continue
        start, tries = _next_start(stream, form, damage, tries)
        if start is None and not damage.error and not _may_be_member(stream, damage.at):
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
    if headers:
        what = "a header" if headers == 1 else f"{headers} headers"
        are = "is" if headers == 1 else "are"
        note = (
            f"{what} inside the {form.name} data {are} damaged; what follows was read all the same"
        )
        stream.damage = "; ".join(part for part in (note, stream.damage) if part)
    if lost.places:
        stream.skipped = lost.skipped
        told = lost.told(form.name, stream.size)
        stream.damage = "; ".join(part for part in (told, stream.damage) if part)


def _mended(stream: Compressed, form: Format, damage: Damage) -> int | None:
    """Where a member behind the first one starts whose header is damaged, and is mended now."""
    at = damage.start if damage.error else damage.at
    if not at or damage.at - at > _HEADER_BYTES:
        return None
    stream.seek_compressed(at)
    header = form.mended(stream.read_compressed(_TRIAL_BYTES))
    if header is not None:
        stream.mend(at, header)
    return None if header is None else at


def _may_be_member(stream: Compressed, at: int) -> bool:
    """Whether what stands there behind a whole member is too much to be padding or a remark."""
    return stream.size - at > max(_MOST_FOREIGN, stream.size // 8)


def _segment(stream: Compressed, form: Format, start: int) -> Pieces:
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
            sample = stream.read_compressed(_TRIAL_BYTES)
            if form.opens(sample):
                return base + found, tries
            stream.seek_compressed(back_to)
            found = kept.find(form.magic, found + 1)
        if not tries:
            return None, 0
        kept = kept[-(len(form.magic) - 1) :]
    return None, tries
