"""Finds where a list of events goes on after damage, without taking nested objects for events.

The next run of whole objects, one behind another, is believed if one of them has the keys of an
event that was read, in their order, and no object inside an event has them; also without that, if
what follows its end leads out of the document. A run in a list that a key names is of that key,
and one behind whose end an object closes and another one follows lies inside an event.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.json_value import EVENT_START, State, Value, read_value
from advisor.ingest.readers.kineto.lost_bytes import HOLE, MANY
from advisor.ingest.readers.kineto.window import Window

_NESTED = re.compile(rb"\[\s*\{")
_VALUE = re.compile(rb'"\s*:\s*\Z')
_LISTED = re.compile(rb'"([^"\\]{1,200})"\s*:\s*\[\s*\Z')
_OBJECT = re.compile(rb'\{\s*"')
_LIST_END = re.compile(rb'\](?=\s*(?:\}|\Z|,\s*"))')
_LIST_KEY = b"traceEvents"
_WRONG_LETTERS = 2
_LOOK_BACK = 512
_MOST_FAILED_BYTES, _OF_READ = 32 * 1024 * 1024, 16
"""So much may be looked at in vain, and so many times what was read: then the rest is lost."""
_DEEP_BYTES = 8 * 1024
_MOST_MEMBERS = 300_000
"""Of all that is looked at behind lists' ends: hostile text would have it looked at without end."""

Keys = tuple[str, ...]


@dataclass
class _Run:
    """Objects one behind another, each with its offset; ``closed``: a list or the text ends.

    ``known`` are the offsets of those that have keys which only events have.
    """

    end: int
    items: list[tuple[int, Keys]] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    closed: bool = False


class Resync:
    """Looks for the next event after damage; see the module.

    ``examples`` gives some events, asked for where the first damage is met.
    """

    def __init__(
        self,
        window: Window,
        limits: Limits,
        examples: Callable[[], Iterable[dict[str, Any]]] = tuple,
    ) -> None:
        self._window = window
        self._limits = limits
        self._examples: Callable[[], Iterable[dict[str, Any]]] | None = examples
        self._own: set[Keys] = set()
        self._nested: set[Keys] = set()
        self._members_left = _MOST_MEMBERS
        self._failed_bytes = 0
        self.unknown = 0

    def learn(self, event: dict[str, Any], text: bytes) -> None:
        """Remember the keys of an event that was read from ``text``, and those inside it."""
        self._failed_bytes -= _OF_READ * len(text)
        self._own.add(tuple(event))
        if _NESTED.search(text):
            self._learn_inside(event)

    def _learn_inside(self, value: Any) -> None:
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, (dict, list)):
                self._learn_inside(item)
            if isinstance(value, list) and isinstance(item, dict):
                self._nested.add(tuple(item))

    def fail(self, found: Value, at: int) -> None:
        """Count what was looked at in vain from ``at`` on."""
        self._failed_bytes += _DEEP_BYTES if found.state is State.DEEP else found.end - at

    def next_event(self, start: int) -> int | None:
        """Offset from ``start`` on where an event comes, else the list's end; None without any.

        ``unknown`` then counts objects passed over that may have been events.
        """
        if self._examples is not None:
            for example in self._examples():
                self._own.add(tuple(example))
                self._learn_inside(example)
            self._examples = None
        self.unknown = 0
        held, at = start + self._limits.event_bytes, start
        while (found := self._candidate(at, held)) is not None:
            if self._failed_bytes > _MOST_FAILED_BYTES:
                while self._window.more():
                    self._window.drop_before(self._window.end)
                return None
            run = self.run(found)
            at = max(run.end, found + 1)
            listed = self.key_of_list(found) is not None
            event = (self._swallowed if listed else self._event_of)(run) if run.items else None
            if event is not None:
                return event
            if not listed and not run.closed:
                self.unknown += len(run.items)
        return self._list_end(start) if self._window.base <= start else None

    def _candidate(self, at: int, held: int) -> int | None:
        """Offset of the next bracket that may open an event; up to ``held`` nothing is dropped."""
        window = self._window
        while True:
            match = EVENT_START.search(window.data, max(0, at - window.base))
            if match:
                at = match.start() + window.base
                if not _VALUE.search(self._before(at)):
                    return at
                at += 1
                continue
            at = max(at, window.end - _LOOK_BACK)
            if at > held:
                window.drop_before(at - _LOOK_BACK)
            if not window.more():
                return None

    def _before(self, at: int) -> bytes:
        return self._window.text(max(at - _LOOK_BACK, self._window.base), at)

    def key_of_list(self, at: int) -> bytes | None:
        """The key of the list that begins with the object there; None for that of events."""
        match = _LISTED.search(self._before(at))
        if match is None:
            return None
        key = match[1]
        letters = sum(map(int.__ne__, key, _LIST_KEY)) if len(key) == len(_LIST_KEY) else len(key)
        return None if letters <= _WRONG_LETTERS else key

    def run(self, at: int) -> _Run:
        """The objects from ``at`` on, as far as they have to be known."""
        window, limits, run = self._window, self._limits, _Run(at)
        while window.byte(at) == b"{":
            found = read_value(window, at, limits.event_bytes, limits.nesting)
            if found.state is not State.WHOLE or HOLE.search(window.text(at, found.end)):
                self.fail(found, at)
                return run
            keys = tuple(found.value)
            run.items.append((at, keys))
            if keys in self._own and keys not in self._nested:
                run.known.append(at)
            run.end = at = window.skip_blank(found.end)
            if window.byte(at) != b",":
                run.closed = window.byte(at) in (b"]", b"")
                return run
            if len(run.items) >= MANY and run.known:
                return run
            at = window.skip_blank(at, commas=True)
        return run

    def _swallowed(self, run: _Run) -> int | None:
        """The first event in a list that began inside another one: others stand before it."""
        if not run.known or run.known[0] == run.items[0][0]:
            return None
        is_whole = run.closed and self.leads_out(run.end + 1) != "end"
        return None if is_whole else run.known[0]

    def _event_of(self, run: _Run) -> int | None:
        """The first event of a run, if it is one of events."""
        inside = self._nested - self._own
        events = [at for at, keys in run.items if "ph" in keys and keys not in inside]
        way = self.leads_out(run.end + 1) if run.closed else None
        if not events or way == "inside":
            return None
        own = not self._own or any(keys in self._own for _, keys in run.items)
        return events[0] if own or way == "end" else None

    def leads_out(self, at: int) -> str | None:
        """What the text behind a list's end tells: ``inside`` an event, ``end`` of the document."""
        window, objects, start = self._window, 0, at
        while self._members_left > 0:
            self._members_left -= 1
            at = window.skip_blank(at)
            found = window.byte(at)
            if found == b"}":
                objects += 1
                at += 1
            elif found == b"]":
                at += 1
            elif found in (b",", b'"'):
                at = window.skip_blank(at, commas=True)
                if window.matches(_OBJECT, at):
                    return "inside"
                for _ in "kv":
                    member = read_value(window, at, self._limits.event_bytes, self._limits.nesting)
                    if member.state not in (State.WHOLE, State.DEEP):
                        return None
                    at = window.skip_blank(member.end)
                    if window.byte(at) != b":":
                        break
                    at = window.skip_blank(at + 1)
            else:
                alone = not window.text(start, at).strip()
                return "end" if not found and (objects == 1 or alone) else None
        return None

    def _list_end(self, start: int) -> int | None:
        """Offset of the bracket that ends the list of events, in the rest of the stream."""
        window = self._window
        for match in _LIST_END.finditer(window.data, start - window.base):
            bracket = match.start() + window.base
            if self.leads_out(bracket + 1) == "end":
                return bracket
        return None
