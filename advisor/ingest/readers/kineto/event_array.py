"""Whether a file that is a bare JSON array is one of trace events, told by its head alone.

The keys of the list's own objects count, wherever in them they stand: arguments that come first
(keys in order of the alphabet, Chrome's metadata) may be long, and so may a name. Items that tell
nothing (``null``, an empty object) are passed over. Only the head given is looked at, once; where
it ends inside a string, what stands behind that counts as if the string were empty.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from advisor.ingest.source import HEAD_BYTES

_MOST_STRINGS = 8
_MOST_BYTES = 64 * 1024 * 1024
_OPENING = {b"]": b"[", b"}": b"{"}
_BEGIN = re.compile(rb"\s*\[")
_EMPTY = re.compile(rb"\s*\[\s*\]\s*\Z")
_TOKEN = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*+:)?|[\[\]{}"]', re.DOTALL)
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_PHASE = re.compile(rb'\s*"[A-Za-z()]"')
_DAMAGED = re.compile(rb'\s*\[\s*\{[^{}]{0,4096}"(?:ph|ts)"\s*:')


def is_list_of_events(head: bytes) -> bool:
    """Whether a JSON array begins with events (or is empty); ``head`` has no byte order mark.

    An event has a phase of one letter. The first object is taken for one by its time alone, and
    also where its brackets or quotes are damaged.
    """
    if not _BEGIN.match(head):
        return False
    return bool(_EMPTY.match(head) or _DAMAGED.match(head)) or _has_event(head)


def is_list_further_on(head: bytes, stream: BinaryIO) -> bool:
    """As :func:`is_list_of_events` behind strings that are longer than ``head``.

    ``stream`` goes on where ``head`` ends. At most 64 MiB are read, and 64 KiB at a time.
    """
    if not _BEGIN.match(head):
        return False
    for _ in range(_MOST_STRINGS):
        quote = _open_string(head)
        if quote is None or (behind := _behind_string(head[quote + 1 :], stream)) is None:
            return False
        head = head[:quote] + b'""' + behind + stream.read(HEAD_BYTES)
        if is_list_of_events(head):
            return True
    return False


def _open_string(head: bytes) -> int | None:
    """Offset of the quote that begins a string which ``head`` does not hold whole."""
    alone = (token.start() for token in _TOKEN.finditer(head) if token.group() == b'"')
    return next(alone, None)


def _behind_string(text: bytes, stream: BinaryIO) -> bytes | None:
    """What was read behind the string whose beginning ``text`` is; None where it has no end."""
    seen = 0
    while True:
        match = _STRING_REST.match(text)
        end = match.end() if match else 0
        if text[end : end + 1] == b'"':
            return text[end + 1 :]
        data = stream.read(HEAD_BYTES)
        seen += len(data)
        if not data or seen > _MOST_BYTES:
            return None
        text = text[end:] + data  # a backslash alone, if anything


def _has_event(head: bytes) -> bool:
    open_ones = bytearray()
    for token in _TOKEN.finditer(head):
        text, colon = token.group(1), token.group(2)
        if text is not None:
            own = colon and open_ones == b"[{"
            if own and text == b'"ph"' and _PHASE.match(head, token.end()):
                return True
            continue
        bracket = token.group()
        if bracket in b"[{":
            open_ones += bracket
        elif bracket == b'"' or open_ones[-1:] != _OPENING[bracket]:
            return False  # a string that the head does not hold whole, or damage
        elif len(open_ones) == 1:
            return False  # the list's end
        else:
            del open_ones[-1]
    return False
