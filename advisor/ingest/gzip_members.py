"""Decompresses gzip members, one after the other: quickly, and with every byte before a damage."""

from __future__ import annotations

import zlib
from typing import Any, cast

from isal import isal_zlib

from advisor.ingest.compressed import PIECE, READ, SMALL_READ, Compressed, Format, Pieces
from advisor.ingest.damage import Damage
from advisor.ingest.gzip_header import GZIP, OPTIONAL, mended_header

_ERRORS = (zlib.error, cast(type[Exception], isal_zlib.error))
_TRIAL_OUTPUT = 4 * 1024


def _quick(stream: Compressed, start: int) -> Pieces:
    """By ISA-L. Raises its error where the data is damaged."""
    inflater: Any = isal_zlib.decompressobj(31)
    pending, fed, flags = b"", False, OPTIONAL
    while data := pending or stream.read_compressed(READ):
        flags = flags if fed else _flags(data)
        pending, fed = b"", True
        piece = inflater.decompress(data, PIECE)
        while piece:
            yield piece
            if inflater.eof or len(piece) < PIECE:
                break
            piece = inflater.decompress(inflater.unconsumed_tail, PIECE)
        if inflater.eof:
            rest, end = _after_member(stream, inflater.unused_data, flags)
            if not rest:
                return end
            inflater, pending, fed = isal_zlib.decompressobj(31), rest, False
    if fed:
        stream.damage = "gzip stream ends early: the file was cut"
    return None


def _exact(stream: Compressed, start: int, failed_at: int) -> Pieces:
    """By zlib, which lets a state be kept: before a damage every byte is given."""
    inflater: Any = zlib.decompressobj(31)
    pending, fed, flags = b"", False, OPTIONAL
    while data := pending or stream.read_compressed(SMALL_READ):
        flags = flags if fed else _flags(data)
        pending, fed = data[SMALL_READ:], True
        data = data[:SMALL_READ]
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
            rest, end = _after_member(stream, inflater.unused_data + pending, flags)
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


def _flags(member: bytes) -> int:
    return member[3] & OPTIONAL if len(member) > 3 else 0


def _after_member(stream: Compressed, rest: bytes, flags: int) -> tuple[bytes, Damage | None]:
    """The bytes that begin the next member; else none, and where something else stands.

    ``flags`` are those of the member before: with others the header may be damaged.
    """
    while len(rest) < len(GZIP) and (more := stream.read_compressed(READ)):
        rest += more
    if rest.startswith(GZIP):
        if _flags(rest) & ~flags == 0:
            return rest, None
        while len(rest) < READ and (more := stream.read_compressed(READ)):
            rest += more
        if mended_header(rest) is None:
            return rest, None
        at = stream.consumed_bytes - len(rest)
        return b"", Damage(at, at, "")
    at = stream.consumed_bytes - len(rest)
    blank = not rest.strip(b"\x00")
    while blank and (more := stream.read_compressed(READ)):
        blank = not more.strip(b"\x00")
    return b"", None if blank else Damage(at, at, "")


def _opens(sample: bytes) -> bool:
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


GZIP_FORMAT = Format("gzip", GZIP + b"\x08", _ERRORS, _quick, _exact, _opens, mended_header)
