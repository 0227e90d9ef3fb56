"""Whether a file begins as a trace: a bare array of events, or a trace damaged at its start."""

import re
from collections.abc import Iterable
from itertools import chain

from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers.kineto.json_value import EVENT_START, State, read_value
from advisor.ingest.readers.kineto.resync import Resync
from advisor.ingest.readers.kineto.window import Window

DAMAGED_HEAD = (
    "the file is damaged at its beginning: fields and events that stood there may be missing"
)
_BOM = b"\xef\xbb\xbf"
_MOST_ITEMS = 8
_EMPTY = re.compile(rb"\s*\[\s*\]\s*\Z")
_DAMAGED = re.compile(rb'\s*\[\s*\{[^{}]{0,4096}"(?:ph|ts)"\s*:')
_NAMED_LIST = re.compile(rb'\{\s*"[^"\\]{1,200}"\s*:.*?"traceEvents"\s*:\s*\[', re.DOTALL)
_KEY = rb'"[^"\\]{1,200}"\s*:'
_MAY_BE = re.compile(
    rb"[\[{]\s*" + _KEY + rb"|[\x00\xff]{2}"
    rb"|[^{\[].{0,15}?(?:" + _KEY + rb"|(?=\{\s*" + _KEY + rb"))",
    re.DOTALL,
)
_KEY_BEFORE = re.compile(rb'"([^"]{11})"\s*:\s*\[\s*\Z')
_BEGINNING = 64 * 1024


def is_list_of_events(head: bytes, more: Iterable[bytes] = ()) -> bool:
    """Whether a JSON array begins with events (or is empty); ``head`` has no byte order mark.

    ``more`` is what follows ``head``. An event has a phase of one letter. The first object is taken
    for one by its time alone, and also where its brackets or quotes are damaged.
    """
    if _EMPTY.match(head) or _DAMAGED.match(head):
        return True
    window = Window(chain([head], more))
    at = window.skip_blank(0)
    if window.byte(at) != b"[":
        return False
    at += 1
    for _ in range(_MOST_ITEMS):
        at = window.skip_blank(at)
        item = read_value(window, at, DEFAULT_LIMITS.event_bytes, DEFAULT_LIMITS.nesting)
        phase = item.value.get("ph") if isinstance(item.value, dict) else None
        if isinstance(phase, str) and len(phase) == 1 and (phase.isalpha() or phase in "()"):
            return True
        at = window.skip_blank(item.end)
        if item.state is not State.WHOLE or window.byte(at) != b",":
            return False
        at += 1
    return False


def damaged_beginning(data: bytes) -> int | None:
    """Offset of the first event that can be read; None where nothing is damaged before events.

    ``data``: the first bytes of the file, of which 64 KiB are looked at. Valid JSON that holds
    events elsewhere is no trace.
    """
    data = data[:_BEGINNING]
    begin = len(data) - len(data.removeprefix(_BOM).lstrip())
    if _NAMED_LIST.match(data, begin) or not _MAY_BE.match(data, begin):
        return None
    window = Window([data])
    window.more()
    resync = Resync(window, DEFAULT_LIMITS)
    at = begin
    while (match := EVENT_START.search(data, at)) is not None:
        at = match.start()
        run = resync.run(at)
        events = [keys for _, keys in run.items if {"ph", "name"} <= {*keys}]
        inside = run.closed and resync.leads_out(run.end + 1) == "inside"
        if len(events) > 1 and resync.key_of_list(at) is None and not inside:
            return at if _is_damaged(data, begin, at, run.items[1][0]) else None
        at = max(run.end, at + 1)
    return None


def _is_damaged(data: bytes, begin: int, event: int, second: int) -> bool:
    """Whether the text before the events at two offsets cannot be the beginning of valid JSON."""
    listed = _KEY_BEFORE.search(data, begin, event)
    if data[begin : begin + 1] not in (b"{", b"[") or (listed and listed[1] != b"traceEvents"):
        return True
    found = read_value(Window([data]), begin, len(data), DEFAULT_LIMITS.nesting)
    return found.state is State.BROKEN and found.end <= second
