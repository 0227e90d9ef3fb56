"""Finds the events that a damaged one seems to hold: its brackets no longer tell where it ends.

Where the arguments of an event hold a list of objects, damage behind the list's opening bracket
lets that go on: the events that follow look like its items, to the end of the file. They are told
by their keys: events of this trace have them in the same order, and nested objects do not. Keys
alone are no proof (a short list of objects may have them by chance): the text behind has to lead
out of the list of events to the end of the file, or more of them follow than an event holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.event_text import parse_event
from advisor.ingest.readers.kineto.lost_bytes import MANY
from advisor.ingest.readers.kineto.nesting import EVENT_START, KEYS, Nesting, State
from advisor.ingest.readers.kineto.resync import Level, Resync
from advisor.ingest.readers.kineto.window import Window

_ITEM = re.compile(rb"[,\[]\s*(?=" + KEYS + rb")")
_NESTED = re.compile(rb"\[\s*\{")
_EVENT_BYTES = 64 * 1024
"""Of what may be an event no more is looked at."""
_MOST_TRIES = 1_000

Keys = tuple[str, ...]


class EmbeddedEvents:
    """Tells events by the keys of those that were read (:meth:`learn`).

    ``examples`` gives some more, asked for where the first damage is met.
    """

    def __init__(
        self,
        window: Window,
        limits: Limits,
        resync: Resync,
        examples: Callable[[], Iterable[dict[str, Any]]],
    ) -> None:
        self._window = window
        self._limits = limits
        self._resync = resync
        self._examples: Callable[[], Iterable[dict[str, Any]]] | None = examples
        self._own: set[Keys] = set()
        self._nested: set[Keys] = set()

    def learn(self, event: dict[str, Any], text: bytes) -> None:
        """Remember the keys of an event that was read from ``text``, and those inside it."""
        self._own.add(tuple(event))
        if _NESTED.search(text):
            self._learn_inside(event)

    def _learn_inside(self, value: Any) -> None:
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, (dict, list)):
                self._learn_inside(item)
            if isinstance(value, list) and isinstance(item, dict):
                self._nested.add(tuple(item))

    def first(self, start: int, end: int) -> int | None:
        """Offset of the first event between that of a damaged one and ``end``; None without any."""
        if self._examples is not None:
            for example in self._examples():
                self._own.add(tuple(example))
                self._learn_inside(example)
            self._examples = None
        window, at, tries = self._window, start + 1, 0
        while tries < _MOST_TRIES and (match := window.find(_ITEM, at, end)) is not None:
            found = match.end() + window.base
            after, event = self._object(found)
            if event is None:
                tries, at = tries + 1, found + 1
                continue
            at = after
            if self._is_own(event) and self._goes_on(after):
                verdict = self._resync.follow(found, start)
                many = verdict.level is Level.UNKNOWN and verdict.passed >= MANY
                if many or verdict.level is Level.LIST:
                    return found
                at = max(at, verdict.at)
        return None

    def _object(self, at: int) -> tuple[int, dict[str, Any] | None]:
        """Offset after the object there, and what it holds; None if it is damaged or large."""
        self._window.reach(at + _EVENT_BYTES)
        inner = Window([self._window.text(at, at + _EVENT_BYTES)])
        nesting = Nesting(inner, 0, self._limits.nesting)
        if nesting.run(_EVENT_BYTES) is not State.CLOSED or nesting.too_deep:
            return at, None
        return at + nesting.at, parse_event(inner.text(0, nesting.at))

    def _is_own(self, event: dict[str, Any]) -> bool:
        keys = tuple(event)
        return "ph" in event and keys in self._own and keys not in self._nested

    def _goes_on(self, at: int) -> bool:
        """Whether another item, the end of a list or the end of the stream comes there."""
        window = self._window
        at = window.skip_blank(at)
        if window.byte(at) != b",":
            return window.byte(at) in (b"]", b"")
        return window.matches(EVENT_START, window.skip_blank(at, commas=True))
