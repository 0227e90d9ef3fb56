"""Whether a closing bracket ends the list of events, or is damage behind which the list goes on.

Behind a list that is a field stands a comma and a key, or the end of the object. Where an event
comes there at once (at most behind garbage without quotes), the bracket is a stray one. Behind a
bare array events may come as documents of their own: the list goes on there only if a comma or the
list's end follows the first of them. Where the bracket itself is lost, a field of the document
behind the list tells its end.
"""

from __future__ import annotations

import re

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.nesting import EVENT_START, KEYS, Nesting, State
from advisor.ingest.readers.kineto.resync import Level, Resync
from advisor.ingest.readers.kineto.window import Window

_COMMA_BEHIND = re.compile(rb"\](?:\s*[\]}])*\s*,\s*" + KEYS)
_EVENT_BEHIND = re.compile(rb'\][^"\[{}:]{0,128}(?=' + KEYS + rb")")
_KEY_BEHIND = re.compile(rb"\]\s*" + KEYS.removeprefix(rb"\{\s*"))
_GARBLED = re.compile(rb"\](?:\s*\])*\s*[^\s\[\]{},]")
_KEY = KEYS.removeprefix(rb'\{\s*"')
_FIELD_BEHIND = re.compile(
    rb'[^{:\]]{0,64}?(?="(?!traceEvents"|' + _KEY + rb')[^"\\{}\[\]:]{1,128}"\s*:)'
)
_NEAR = 4096


class ListEnd:
    """Tells stray closing brackets from the one that ends the list."""

    def __init__(self, window: Window, limits: Limits, resync: Resync) -> None:
        self._window = window
        self._limits = limits
        self._resync = resync

    def goes_on(self, bracket: int, *, damaged: bool, in_object: bool) -> int | None:
        """Offset of the event with which the list goes on; None where ``bracket`` ends it.

        ``damaged``: an event before it could not be read, so that it may end a list inside that.
        ``in_object``: the list of events is a field.
        """
        window = self._window
        behind = window.match_end(_EVENT_BEHIND, bracket)
        if behind is not None and (in_object or self._in_list(behind)):
            return behind
        told = self._resync.telling_after(bracket, bracket + _NEAR) if in_object else None
        if told is not None and window.byte(told) == b"{" and self._cannot_end(bracket, told):
            return told
        if damaged or window.matches(_COMMA_BEHIND, bracket):
            found = self._resync.outwards(bracket, bracket + self._limits.event_bytes)
            if found.level is Level.INSIDE and window.byte(found.at) == b"{":
                return found.at
        return None

    def _cannot_end(self, bracket: int, event: int) -> bool:
        """Whether a bracket stands where this layout ends no list, and no other list begins."""
        window = self._window
        text = window.text(max(bracket - 256, window.base), bracket)
        stray = text.rpartition(b"\n")[2].strip() or text.rstrip().endswith(b",")
        return bool(stray) and b"traceEvents" not in window.text(bracket, event)

    def was_opening(self, before: int, bracket: int, *, first: bool) -> bool:
        """Whether ``bracket`` stands where an event's opening one should.

        A comma is then before it (from ``before`` on), unless nothing is (``first``), and an
        event's key behind; or what can follow no list, and then another event.
        """
        window = self._window
        if not (first or b"," in window.text(before, bracket)):
            return False
        if window.matches(_KEY_BEHIND, bracket):
            return True
        garbled = window.matches(_GARBLED, bracket)
        return garbled and window.find(EVENT_START, bracket, bracket + _NEAR) is not None

    def lost_end(self, at: int) -> int | None:
        """Offset of the field behind the list whose end is lost at ``at``; None where it goes on.

        A list holds no keys: one there is of the document if the text behind it, to its end, leads
        out of one object and no list.
        """
        key = self._window.match_end(_FIELD_BEHIND, at, 512)
        if key is None:
            return None
        limit = at + self._limits.event_bytes
        end = self._resync.member_end(key, limit)
        if end is None:
            return None
        found = self._resync.outwards(end - 1, limit)
        whole = found.level is Level.LIST and found.closed <= 1 and not self._window.byte(found.at)
        return key if whole else None

    def _in_list(self, event: int) -> bool:
        """Whether the object there is followed like an item of a list; damaged ones are so too."""
        nesting = Nesting(self._window, event, self._limits.nesting)
        state = nesting.run(event + self._limits.event_bytes)
        if state is not State.CLOSED:
            return True
        return self._window.byte(self._window.skip_blank(nesting.at)) in (b",", b"]")
