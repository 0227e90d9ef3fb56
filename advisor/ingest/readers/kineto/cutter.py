"""Cuts a trace's bytes into chunks that are each a JSON array of whole events, without parsing.

The layout of the first two events tells which text separates events. Where that text holds a
newline, it cannot occur inside a JSON string, so cutting there needs no look at quotes; in
one-line layouts the cut is a guess (``},{"ph":``). A wrong cut makes the chunk before it malformed,
which the parser notices; what follows such a chunk is believed only from where reading it event
by event comes to the start of a chunk (:mod:`.reread`). Chunks are built in place (the comma after
the last event becomes the closing bracket), so every byte is copied about once.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.around_lists import AroundLists
from advisor.ingest.readers.kineto.beginning import damaged_beginning
from advisor.ingest.readers.kineto.json_value import KEYS, State, read_value
from advisor.ingest.readers.kineto.window import Window

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_OVERLAP = 4096
_GUESS = re.compile(rb"\}\s*,(?=\s*" + KEYS + rb")")
_BETWEEN = re.compile(rb"\}\s*,\s*\{\s*")


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

    ``ended_inside`` says that the last chunk runs to the end of the stream, ``in_object`` that the
    list is a field. ``separator`` is the text between the first two events, if it holds a newline,
    with the second one's bracket and the blanks after it.
    ``damaged_head``: the text before the events is damaged, or fields in it are.
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
        self.in_object = True
        self.damaged_head = False
        self.separator: bytes | None = None
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
        if (event := damaged_beginning(data)) is not None:
            self.damaged_head = True
            self.head, self.last_start = data[:event], event
            return data[event:]
        if stripped.startswith(b"["):
            self.in_object = False
            self.last_start = len(data) - len(stripped) + 1
            return stripped[1:]
        window = Window(chain([data], iter(self._read, b"")))
        outside = AroundLists(window, self._limits, in_object=False)
        opening = outside.next_list(begin)
        self.head = bytes(outside.documents[-1])
        if opening is None:
            raise NoEventsError
        self.last_start = opening
        self.damaged_head = outside.damaged
        return window.text(opening, window.end)

    def chunks(self) -> Iterator[Chunk]:
        """Chunks of whole events (as far as the layout can be trusted), in order."""
        pending = bytearray(b"[") + self._first
        self._first = b""
        start = self.last_start
        self.separator = self._learn(pending)
        separator = self.separator[: self.separator.rindex(b"{") + 1] if self.separator else None
        if separator is not None and b"\n" not in separator:
            separator = None
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
        self.last = bytes(pending[1:])
        self.last_start = start

    def _learn(self, pending: bytearray) -> bytes | None:
        """Read on until the second event begins; the text between the two, if it has a newline."""
        wanted = len(pending)
        while True:
            decided, separator = _separator(pending, self._limits)
            if decided or len(pending) > self._limits.event_bytes:
                return separator
            wanted = max(2 * wanted, len(pending) + 1)
            while len(pending) < wanted:
                data = self._read()
                if not data:
                    return None
                pending += data

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


def _separator(pending: bytearray, limits: Limits) -> tuple[bool, bytes | None]:
    """Whether more data would not help, and the text between two events if it has a newline."""
    window = Window([bytes(pending)])
    window.more()
    first = window.skip_blank(1)
    if window.byte(first) != b"{":
        return bool(window.byte(first)), None
    found = read_value(window, first, limits.event_bytes, limits.nesting)
    if found.state is not State.WHOLE:
        return found.state is not State.CUT, None
    brace = found.end - 1
    between = _BETWEEN.match(pending, brace)
    if between is None:
        return window.skip_blank(brace + 1, commas=True) < len(pending), None
    line = pending.rfind(b"\n", 0, brace)
    indented = line >= 0 and not bytes(pending[line:brace]).strip()
    text = bytes(pending[line if indented else brace : between.end()])
    return True, text if b"\n" in text else None


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
