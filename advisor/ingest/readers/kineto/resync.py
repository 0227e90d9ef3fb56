"""Finds where a list of events goes on after damage, without taking nested objects for events.

Arguments of an event may hold lists of objects that look like events. Where the layout tells an
event by its indentation, that decides. Elsewhere each ``},{"ph":`` that may be a boundary is tried
by following the text behind it outwards: where the list around it ends and events follow further
out, it lay inside an event. Where a second damage or the end of the file comes first, it is
believed unless a list of event-like objects was open; then what was passed is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.nesting import EVENT_START, KEYS, Nesting, State
from advisor.ingest.readers.kineto.window import Window

_BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + KEYS + rb")")
_START = re.compile(rb"(?=" + KEYS + rb")")
_NEAR = re.compile(rb'(?:"[^"]{0,200}"(?:\s*")?|.)[^"]{0,200}?(?=' + KEYS + rb")", re.DOTALL)
_LIST_OF_EVENTS = re.compile(rb"\[\s*(?=" + KEYS + rb")")
_NEXT_EVENT = re.compile(rb"\s*,\s*" + KEYS)
_LIST_END = re.compile(rb"\}\s*\](?=\s*[,}]|\s*\Z)")
_FIELDS_BEHIND = re.compile(rb'\](?=\s*,\s*"[^"\\]{0,200}"\s*:)')
_LIST_ENDS = rb'(?=\](?:\s*,\s*"|\s*\}?\s*\Z))'
_TELLING_START = re.compile(rb",(\s*\n[ \t]+)\Z")
_TELLING_END = re.compile(rb"\n[ \t]+\}")
_LINE = 256


class Level(Enum):
    """Where a candidate was found to lie."""

    LIST = "in the list of events"
    INSIDE = "inside an event"
    UNKNOWN = "not to be told"
    NOWHERE = "not in a list"


@dataclass(frozen=True)
class Verdict:
    """``at``: how far it was followed, for INSIDE where an event or the list's end is further out.

    ``passed`` counts the objects of the candidate's own list; ``closed`` the objects around it.
    """

    level: Level
    at: int
    passed: int = 0
    closed: int = 0


@dataclass(frozen=True)
class Resumed:
    """``at``: where an event or the list's end comes; ``unknown`` counts what was dropped."""

    at: int | None
    unknown: int = 0


def telling(separator: bytes | None) -> re.Pattern[bytes] | None:
    """A pattern that only the start of an event matches, where the layout tells it by indentation.

    ``separator`` is the text between two events with the second one's bracket and the blanks after
    it. The end of the event before and the comma may be damaged: the pattern looks for the line
    alone. It also matches before the end of the list, whose line is indented no deeper.
    """
    if separator is None:
        return None
    between, _, blanks = separator.rpartition(b"{")
    following = rb"(?=\{" + re.escape(blanks) + rb'")'
    start = _TELLING_START.search(between)
    by_keys = b"\n" in blanks and not blanks.endswith(b"\n") and between.endswith(b"\n")
    if start or by_keys:
        behind = start.group(1) if start else between
        line = b"\n" + behind.rpartition(b"\n")[2]
        text = re.escape(line) + following
    elif _TELLING_END.match(between):
        line, _, behind = between.partition(b"}")
        new_line = re.escape(behind[behind.index(b"\n") :]) if b"\n" in behind else b""
        text = re.escape(line) + rb'[^\n"][^\n]{0,63}?' + new_line + following
    else:
        return None
    most = len(line) - 1
    if b"\n" in blanks:  # lists inside events end at the indentation of keys, or deeper
        most = min(most, max(0, len(blanks.rpartition(b"\n")[2]) - 1))
    return re.compile(text + rb"|\n[ \t]{0,%d}%s" % (most, _LIST_ENDS))


class Resync:
    """Looks for the next event after damage; see the module."""

    def __init__(self, window: Window, limits: Limits, separator: bytes | None) -> None:
        self._window = window
        self._limits = limits
        self._telling = telling(separator)

    def after(self, start: int, broken: int, lists: int, *, at_any: bool = False) -> Resumed:
        """Where the list goes on after the damaged event at ``start``.

        ``broken`` is where it was noticed, ``lists`` how many lists of event-like objects were open
        there. ``at_any``: what is damaged is no event, and one may follow without a comma.
        """
        window, unknown = self._window, 0
        limit = start + self._limits.event_bytes
        told = self.telling_after(start, limit)
        if told is not None and window.byte(told) == b"{":
            between = at_any or not window.matches(EVENT_START, start)
            return Resumed(self._before(start, told) if between else told)
        # By the layout only the list's end follows: events of another layout may stand before it.
        limit = limit if told is None else told
        first = max(broken, start + 1)
        at = self._near(first) or self._candidate(first, limit, at_any=at_any)
        looked = broken
        while at is not None:
            lists += self._opened(looked, at)
            found = self.follow(at, start)
            if found.level is Level.INSIDE and window.byte(found.at) == b"]":
                return Resumed(found.at, unknown)
            if found.level is Level.INSIDE:
                lists = max(0, lists - 1)
                looked = at = found.at
                continue
            if found.level is Level.LIST or (found.level is Level.UNKNOWN and not lists):
                return Resumed(self._end_before(start, at) or at, unknown)
            if found.level is Level.UNKNOWN:
                unknown += found.passed
            looked = max(found.at, at + 1) if found.level is Level.UNKNOWN else at + 1
            at = self._candidate(looked, max(limit, looked + 1), at_any=at_any)
        if told is not None:
            return Resumed(told, unknown)
        return Resumed(self._list_end(broken) if window.ended else None, unknown)

    def _before(self, start: int, told: int) -> int:
        """The event between garbage at ``start`` and the one that the layout tells, or that one."""
        near = self._near(start)
        if near is None or near >= told:
            return told
        level = self.follow(near, start).level
        return near if level in (Level.LIST, Level.UNKNOWN) else told

    def telling_after(self, start: int, limit: int) -> int | None:
        """Offset of the next event or the list's end before ``limit`` by the layout alone."""
        if self._telling is None:
            return None
        window, searched = self._window, max(start - _LINE, self._window.base)
        while (match := window.find(self._telling, searched, limit)) is not None:
            if (found := match.end() + window.base) > start:
                return found
            searched = match.start() + window.base + 1
        return None

    def _near(self, offset: int) -> int | None:
        """Offset of an event's bracket close behind the byte or string that is damaged, if any.

        What stands between holds no quote: the separator itself may be damaged.
        """
        if self._window.matches(EVENT_START, offset):
            return None
        return self._window.match_end(_NEAR, offset, 512)

    def _candidate(self, offset: int, limit: int, *, at_any: bool) -> int | None:
        """Offset of the first bracket from ``offset`` on that may open an event."""
        if self._window.matches(EVENT_START, offset):
            return offset
        pattern = _START if at_any else _BOUNDARY
        searched = max(offset - 256, self._window.base)
        while (match := self._window.find(pattern, searched, limit)) is not None:
            found = match.end() + self._window.base
            if found >= offset:
                return found
            searched = match.start() + self._window.base + 1
        return None

    def _opened(self, start: int, end: int) -> int:
        """How many lists of event-like objects open in a stretch and do not close in it."""
        inner = Window([self._window.text(start, end + 64)])
        inner.more()
        count = at = 0
        while (match := _LIST_OF_EVENTS.search(inner.data, at)) and match.start() < end - start:
            nesting = Nesting(inner, match.start(), self._limits.nesting)
            closed = nesting.run(len(inner.data)) is State.CLOSED and nesting.at <= end - start
            count += not closed
            at = nesting.at if closed else match.end()
        return count

    def follow(self, candidate: int, since: int) -> Verdict:
        """Follow the objects from ``candidate`` on, as far as an event from ``since`` may reach."""
        window, at, passed = self._window, candidate, 0
        limit = since + self._limits.event_bytes
        while True:
            nesting = Nesting(window, at, self._limits.nesting)
            state = nesting.run(limit)
            if state is State.LARGE or nesting.at >= limit:
                return Verdict(Level.LIST, nesting.at, passed)
            if state is not State.CLOSED:
                return Verdict(Level.UNKNOWN, nesting.at, passed)
            passed += 1
            at = window.skip_blank(nesting.at)
            while window.byte(at) == b",":
                at = window.skip_blank(at, commas=True)
                if window.byte(at) == b"{":
                    break
                end = window.scalar_end(at)
                if end is None:
                    return Verdict(Level.UNKNOWN, at, passed)
                at = window.skip_blank(end)
            found = window.byte(at)
            if found == b"]":
                outside = self.outwards(at, limit)
                return Verdict(outside.level, outside.at, passed, outside.closed)
            if found != b"{":
                alone = found and passed == 1
                return Verdict(Level.NOWHERE if alone else Level.UNKNOWN, at, passed)

    def outwards(self, bracket: int, limit: int) -> Verdict:
        """Where a list ends, what its end says of its level: is there a list further out?"""
        window, at, closed = self._window, bracket + 1, 0
        outer: int | None = None
        while at < limit:
            at = window.skip_blank(at)
            found = window.byte(at)
            if found == b"}":
                at, closed = at + 1, closed + 1
                if window.matches(_NEXT_EVENT, at):
                    return Verdict(Level.INSIDE, window.skip_blank(at, commas=True), 0, closed)
            elif found == b"]":
                outer = at if outer is None and closed else outer
                at += 1
            elif found == b",":
                at = window.skip_blank(at, commas=True)
                if window.matches(EVENT_START, at):
                    return Verdict(Level.INSIDE, at, 0, closed)
                end = self.member_end(at, limit)
                if end is None:
                    return Verdict(Level.UNKNOWN, at, 0, closed)
                at = end
            else:
                break
        if outer is not None:
            return Verdict(Level.INSIDE, outer, 0, closed)
        whole = closed <= 1 and (at >= limit or not window.byte(at))
        return Verdict(Level.LIST if whole else Level.UNKNOWN, at, 0, closed)

    def member_end(self, at: int, limit: int) -> int | None:
        """Offset after a value, or a key and its value; None where there is none."""
        window = self._window
        if window.byte(at) == b'"':
            end = window.scalar_end(at)
            if end is None:
                return None
            after = window.skip_blank(end)
            if window.byte(after) != b":":
                return end
            at = window.skip_blank(after + 1)
        if window.byte(at) in (b"{", b"["):
            nesting = Nesting(window, at, self._limits.nesting)
            state = nesting.run(limit)
            return nesting.at if state in (State.CLOSED, State.LARGE) else None
        return window.scalar_end(at)

    def _list_end(self, start: int) -> int | None:
        """Offset of the bracket that ends the list of events, in the rest of the stream."""
        for bracket, found in self._ends(_LIST_END, start, self._window.end):
            if found.level is Level.LIST and found.closed <= 1:
                return bracket
        return None

    def _end_before(self, start: int, candidate: int) -> int | None:
        """The list's end, if what looks like an event stands in a field behind that."""
        for bracket, found in self._ends(_FIELDS_BEHIND, start, candidate):
            only_fields = found.level is Level.LIST and found.closed <= 1
            if only_fields and not self._window.byte(found.at):
                return bracket
        return None

    def _ends(
        self, pattern: re.Pattern[bytes], start: int, limit: int
    ) -> Iterator[tuple[int, Verdict]]:
        """Brackets that may end the list of events, and what the text behind each says."""
        while match := self._window.find(pattern, start, limit):
            bracket = match.end() - 1 + self._window.base
            yield bracket, self.outwards(bracket, bracket + self._limits.event_bytes)
            start = bracket + 1
