"""Reads damaged stretches of a trace event by event, keeping every event that can be read.

The database parses whole chunks; a chunk that is not valid JSON comes here. Each event is tried as
it stands, then with the repairs that do not change its meaning (bytes that are not UTF-8, lone
surrogates, stray backslashes, NaN); what still cannot be read is counted by reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from advisor.ingest.compression import Limits

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_SURROGATE = re.compile("[\ud800-\udfff]")
_KEYS = rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s)"\s*:'
_START = re.compile(_KEYS)
_RESYNC = re.compile(rb"\}\s*,\s*(?=" + _KEYS + rb")")
_LIST_END = re.compile(rb"\}\s*\](?=\s*[,}]|\s*$)")
_SCALAR = re.compile(rb'(?:"(?:[^"\\]|\\.)*+"|[^\s,\[\]{}"]+)(?=\s*[,\]])')
_OVERLAP = 4096
_SKIPPED = re.compile(rb"[\s,]*")
_PIECE = 1024 * 1024

Normalise = Callable[[dict[str, Any]], dict[str, Any]]


class _Digits(str):
    """A number kept as its digits: a float would lose nanoseconds of epoch timestamps."""

    __slots__ = ()


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of duplicate keys the first counts, as in the database's parser."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        result.setdefault(key, value)
    return result


def parse_event(text: bytes) -> dict[str, Any] | None:
    """One event from its text, repaired where that is safe; None when it cannot be read."""
    decoded = text.decode("utf-8", errors="replace")
    for candidate in (decoded, _BAD_ESCAPE.sub(r"\\\\", decoded)):
        try:
            value = json.loads(
                candidate,
                strict=False,
                parse_float=_Digits,
                parse_constant=lambda _: None,
                object_pairs_hook=_first_wins,
            )
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


def clean(value: Any) -> Any:
    """The value with lone surrogates replaced, so that it can be written as UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


class Repairer:
    """Iterate over the readable events of a stretch of bytes.

    Afterwards ``dropped`` counts what was lost by reason, ``end`` is the offset of the bracket that
    closed the list of events (None if it did not come), and ``tail`` the bytes after it.
    """

    def __init__(self, pieces: Iterable[bytes], limits: Limits, *, is_last: bool) -> None:
        self._pieces = iter(pieces)
        self._limits = limits
        self._is_last = is_last
        self._data = bytearray()
        self._at = 0
        self._before = 0
        self._exhausted = False
        self._too_deep = False
        self.dropped: Counter[str] = Counter()
        self.repaired = 0
        self.end: int | None = None
        self.tail = b""

    def events(self) -> Iterator[dict[str, Any]]:
        """The events, in order."""
        while self.end is None:
            self._discard()
            self._at = self._skip_blank()
            if self._at >= len(self._data):
                if not self._more():
                    return
                continue
            first = self._data[self._at]
            if first == ord("]"):
                self._finish()
            elif first == ord("{"):
                event = self._event()
                if event is not None:
                    yield event
            else:
                self._skip_other()

    def _skip_blank(self) -> int:
        match = _SKIPPED.match(self._data, self._at)
        return match.end() if match else self._at

    def _discard(self) -> None:
        if self._at > _PIECE:
            del self._data[: self._at]
            self._before += self._at
            self._at = 0

    def _more(self) -> bool:
        if self._exhausted:
            return False
        piece = next(self._pieces, b"")
        if not piece:
            self._exhausted = True
            return False
        self._data += piece
        return True

    def _finish(self) -> None:
        self.end = self._before + self._at
        kept = bytearray(self._data[self._at + 1 :])
        while len(kept) < 64 * _PIECE and (piece := next(self._pieces, b"")):
            kept += piece
        self.tail = bytes(kept)

    def _event(self) -> dict[str, Any] | None:
        end = self._end_of_event()
        if end is not None:
            event = parse_event(bytes(self._data[self._at : end]))
            if event is not None:
                self._at = end
                return event
        boundary = self._boundary()
        if boundary is None:
            if len(self._data) - self._at > self._limits.event_bytes:
                self._pass_over()
            else:
                cut = end is None and self._is_last and self._exhausted
                self._drop("cut off" if cut else self._malformed())
                self._at = len(self._data) if end is None else end
            return None
        event = parse_event(bytes(self._data[self._at : boundary + 1]))
        if event is None:
            self._drop(self._malformed())
        self._at = boundary + 1
        return event

    def _malformed(self) -> str:
        """The reason why the event at hand cannot be read."""
        deep = f"event nested deeper than {self._limits.nesting} levels"
        return deep if self._too_deep else "malformed event"

    def _pass_over(self) -> None:
        """Leave an event behind that is larger than allowed, without holding it."""
        self._drop(f"event larger than {self._limits.event_bytes >> 20} MiB")
        self._at = max(self._at, len(self._data) - _OVERLAP)
        while True:
            match = _RESYNC.search(self._data, self._at)
            if match:
                self._at = match.start() + 1
                return
            self._at = max(self._at, len(self._data) - _OVERLAP)
            self._discard()
            if not self._more():
                end = _LIST_END.search(self._data, self._at)
                self._at = end.end() - 1 if end else len(self._data)
                return

    def _end_of_event(self) -> int | None:
        """Offset after the brace that closes the event at hand; reads on as needed."""
        self._too_deep = False
        while True:
            depth = 0
            for token in _TOKEN.finditer(self._data, self._at):
                first = self._data[token.start()]
                if first in b"{[":
                    depth += 1
                    if depth > self._limits.nesting:
                        self._too_deep = True
                        return None
                elif first in b"}]":
                    depth -= 1
                    if depth == 0:
                        return token.end()
            if len(self._data) - self._at > self._limits.event_bytes or not self._more():
                return None

    def _boundary(self) -> int | None:
        """Offset of the closing brace before the next thing that looks like an event's start."""
        searched = self._at
        while True:
            match = _RESYNC.search(self._data, searched)
            if match:
                return match.start()
            searched = max(self._at, len(self._data) - 4096)
            if len(self._data) - self._at > self._limits.event_bytes or not self._more():
                return None

    def _skip_other(self) -> None:
        """Pass over what is no object: a scalar, or garbage up to the next start of an event."""
        self._drop("not an event")
        scalar = _SCALAR.match(self._data, self._at)
        while scalar is None and len(self._data) - self._at < _OVERLAP and self._more():
            scalar = _SCALAR.match(self._data, self._at)
        if scalar is not None:
            self._at = scalar.end()
            return
        while (start := _START.search(self._data, self._at + 1)) is None:
            self._at = max(self._at, len(self._data) - _OVERLAP)
            self._discard()
            if not self._more():
                self._at = len(self._data)
                return
        self._at = start.start()

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1
