"""Cuts a trace's bytes into chunks that are each a JSON array of whole events, without parsing.

The layout of the first two events tells which text separates events. Where that text holds a
newline, it cannot occur inside a JSON string, so cutting there needs no look at quotes; in
one-line layouts the cut is a guess (``},{"ph":``). A wrong cut makes both neighbours malformed,
which the database notices; :mod:`.repair` reads those chunks again. Chunks are built in place (the
comma after the last event becomes the closing bracket), so every byte is copied about once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from advisor.ingest.compression import Limits

MAX_HEAD_BYTES = 64 * 1024 * 1024
MAX_TAIL_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_OVERLAP = 4096
_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_FIRST_KEYS = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s|sf|cname|tdur|tts)"'
_GUESS = re.compile(rb"\}\s*,(?=\s*\{\s*" + _FIRST_KEYS + rb"\s*:)")
_BETWEEN = re.compile(rb"\}\s*,\s*\{")


@dataclass
class Chunk:
    """``text`` is a JSON array; ``start`` and ``end`` are offsets in the decompressed file."""

    number: int
    start: int
    end: int
    text: bytearray


class NoEventsError(Exception):
    """The stream holds no list of events."""


class Cutter:
    """Iterate over :meth:`chunks`; afterwards ``last`` is what followed the last safe cut.

    ``ended_inside`` says that the last chunk runs to the end of the stream.
    ``head`` is the text of the top-level object before the events (empty for a bare array), and
    ``last`` (from ``last_start``) holds the last event, the end of the array and the tail.
    """

    def __init__(self, read_piece: Callable[[], bytes], limits: Limits) -> None:
        self._read_piece = read_piece
        self._limits = limits
        self._number = 0
        self.head = b""
        self.last = b""
        self.last_start = 0
        self.ended_inside = False
        self.total_bytes = 0
        self._first = self._find_events()

    @property
    def next_number(self) -> int:
        """The number that a chunk made of ``last`` has."""
        return self._number

    def _read(self) -> bytes:
        data = self._read_piece()
        self.total_bytes += len(data)
        return data

    def _find_events(self) -> bytes:
        """Read up to the opening bracket of the events; returns what was read beyond it."""
        data = self._read()
        begin = len(_BOM) if data.startswith(_BOM) else 0
        stripped = data[begin:].lstrip(_BLANK)
        if stripped.startswith(b"["):
            self.last_start = len(data) - len(stripped) + 1
            return stripped[1:]
        while True:
            opening = _opening(data)
            if opening is not None:
                self.head = data[begin : opening[0]]
                self.last_start = opening[1]
                return data[opening[1] :]
            more = self._read()
            if not more or len(data) > MAX_HEAD_BYTES:
                self.head = data[begin:MAX_HEAD_BYTES]
                raise NoEventsError
            data += more

    def chunks(self) -> Iterator[Chunk]:
        """Chunks of whole events (as far as the layout can be trusted), in order."""
        pending = bytearray(b"[") + self._first
        self._first = b""
        start = self.last_start
        separator = _separator(pending)
        while data := self._read():
            searched = max(1, len(pending) - _OVERLAP)
            pending += data
            cut = _last_cut(pending, separator, searched)
            if cut is None:
                if len(pending) <= self._limits.event_bytes:
                    continue
                # No end of an event within the largest one allowed: the repairing reader, which
                # needs no more memory than that, gets everything up to the next boundary.
                end, pending = self._pass_over(pending, separator)
                yield Chunk(self._number, start, end, bytearray(b"["))
            else:
                brace, comma = cut
                rest = bytearray(b"[") + memoryview(pending)[comma + 1 :]
                end = start + comma - 1
                pending[brace + 1 :] = b"]"
                yield Chunk(self._number, start, end, pending)
                pending = rest
            self._number += 1
            start = end + 1
            if separator is None:
                separator = _separator(pending)
        self.last = bytes(pending[1:])
        self.last_start = start

    def _pass_over(self, pending: bytearray, separator: bytes | None) -> tuple[int, bytearray]:
        """Offset of the next boundary (or the end of the stream), and what follows it."""
        window = pending[-_OVERLAP:]
        while data := self._read():
            window += data
            cut = _last_cut(window, separator, 1)
            if cut is not None:
                rest = window[cut[1] + 1 :]
                return self.total_bytes - len(rest) - 1, bytearray(b"[") + rest
            window = window[-_OVERLAP:]
        self.ended_inside = True
        return self.total_bytes, bytearray(b"[")


def _opening(data: bytes) -> tuple[int, int] | None:
    """Start of the ``"traceEvents"`` key at depth 1 and the offset after its bracket."""
    candidates = {match.start(): match.end() for match in _OPENING.finditer(data)}
    if not candidates:
        return None
    depth = 0
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif depth == 1 and token.start() in candidates:
            return token.start(), candidates[token.start()]
        if token.start() > max(candidates):
            break
    # The head is damaged: its brackets do not add up. The first candidate is the best guess.
    first_match = min(candidates)
    return first_match, candidates[first_match]


def _separator(pending: bytearray) -> bytes | None:
    """The text between two events, when it holds a newline; None asks for guessing."""
    depth = 0
    for token in _TOKEN.finditer(pending, 1, 1024 * 1024):
        first = pending[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth < 0:
                return None
            if depth == 0 and (between := _BETWEEN.match(pending, token.start())):
                line = pending.rfind(b"\n", 0, token.start())
                indented = line >= 0 and not bytes(pending[line : token.start()]).strip()
                text = bytes(pending[line if indented else token.start() : between.end()])
                return text if b"\n" in text else None
    return None


def _last_cut(data: bytearray, separator: bytes | None, searched: int) -> tuple[int, int] | None:
    """Offsets of the brace and of the comma of the last boundary after ``searched``."""
    if separator is not None:
        at = data.rfind(separator, searched)
        if at >= 0:
            brace = at + separator.index(b"}")
            return brace, data.index(b",", brace)
        return None
    window = max(searched, len(data) - 64 * 1024)
    while True:
        found = None
        for match in _GUESS.finditer(data, window):
            found = match
        if found is not None:
            return found.start(), found.end() - 1
        if window <= searched:
            return None
        window = max(searched, window - 1024 * 1024)
