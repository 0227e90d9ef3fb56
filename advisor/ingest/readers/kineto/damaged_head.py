"""Finds the list of events of a trace whose beginning is damaged.

Both are asked for: that the text is damaged before the list (its brackets or quotes do not fit, it
was zeroed, its first byte is wrong, or letters of ``traceEvents`` are), and two events, one behind
the other. Valid JSON that holds events elsewhere is no trace.
"""

from __future__ import annotations

import re

from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers.kineto.event_text import parse_event
from advisor.ingest.readers.kineto.nesting import EVENT_START, Nesting, State
from advisor.ingest.readers.kineto.resync import Level, Resync
from advisor.ingest.readers.kineto.window import Window

NOTE = "the file is damaged at its beginning: fields and events that stood there may be missing"
_LIST_KEY = b"traceEvents"
_NAMED_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY = rb'"[^"\\]{1,200}"\s*:'
_FIELDS = re.compile(rb"[\[{]\s*" + _KEY)
_WRONG_BYTES = re.compile(
    rb'[^{\[].{0,15}?(?:"[^"\\]{1,200}"\s*:|(?=\{\s*' + _KEY + rb"))", re.DOTALL
)
_ERASED = re.compile(rb"[\x00\xff]{2}")
_KEY_BEFORE = re.compile(rb'"([^"]{11})"\s*:\s*\[\s*\Z')
_BEGINNING = 64 * 1024
_MOST_TRIES = 200
_WRONG_LETTERS = 2


def damaged_beginning(data: bytes) -> int | None:
    """Offset of the first event that can be read; None where nothing is damaged before events.

    ``data``: the first bytes of the file, of which 64 KiB are looked at.
    """
    data = data[:_BEGINNING]
    begin = len(data) - len(data.removeprefix(b"\xef\xbb\xbf").lstrip())
    if _NAMED_LIST.search(data) and _FIELDS.match(data, begin) and data[begin] == b"{"[0]:
        return None
    may_be = (_FIELDS, _WRONG_BYTES, _ERASED)
    if not any(pattern.match(data, begin) for pattern in may_be):
        return None
    event = _first_event(data)
    return event if event is not None and _is_damaged(data, begin, event) else None


def _first_event(data: bytes) -> int | None:
    """Offset of the first of two events, one behind the other."""
    window = Window([data])
    window.more()
    resync = Resync(window, DEFAULT_LIMITS, None)
    for tries, match in enumerate(EVENT_START.finditer(data)):
        if tries >= _MOST_TRIES:
            return None
        end = _event_end(window, match.start())
        if end is None:
            continue
        comma = window.skip_blank(end)
        if window.byte(comma) != b"," or not _event_end(window, window.skip_blank(comma + 1)):
            continue
        # Where events follow further out, what was found stands in the arguments of one.
        if resync.follow(match.start(), 0).level is not Level.INSIDE:
            return match.start()
    return None


def _event_end(window: Window, at: int) -> int | None:
    """Offset after the event that stands there: it has a phase of one letter and a name or time."""
    if window.byte(at) != b"{":
        return None
    nesting = Nesting(window, at, DEFAULT_LIMITS.nesting)
    if nesting.run(window.end) is not State.CLOSED or nesting.too_deep:
        return None
    event = parse_event(window.text(at, nesting.at)) or {}
    phase = event.get("ph")
    is_event = isinstance(phase, str) and len(phase) == 1 and ("ts" in event or phase == "M")
    return nesting.at if is_event and "name" in event else None


def _is_damaged(data: bytes, begin: int, event: int) -> bool:
    """Whether the text between the two offsets cannot be the beginning of valid JSON."""
    if data[begin : begin + 1] not in (b"{", b"["):
        return True
    key = _KEY_BEFORE.search(data, begin, event)
    if key and 0 < sum(map(int.__ne__, key[1], _LIST_KEY)) <= _WRONG_LETTERS:
        return True
    nesting = Nesting(Window([data]), begin, DEFAULT_LIMITS.nesting)
    return nesting.run(len(data)) is State.BROKEN and nesting.at <= event
