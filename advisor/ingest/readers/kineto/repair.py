"""Reads stretches of a trace event by event, keeping every event that can be read.

The database parses whole chunks; a chunk that is not a list of whole events comes here. Brackets
are followed from the start of an event to its end (:mod:`.nesting`), so that nothing inside an
event is taken for one. Each event is tried as it stands, then with the repairs that do not change
its meaning (bytes that are not UTF-8, lone surrogates, stray backslashes, NaN); what still cannot
be read is counted by reason, and :mod:`.resync` finds where the list goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.around_lists import AroundLists
from advisor.ingest.readers.kineto.embedded_events import EmbeddedEvents
from advisor.ingest.readers.kineto.event_text import parse_event
from advisor.ingest.readers.kineto.list_end import ListEnd
from advisor.ingest.readers.kineto.lost_bytes import (
    HOLE,
    PHASE,
    Gap,
    LostBytes,
    has_hole,
    has_many,
)
from advisor.ingest.readers.kineto.nesting import Nesting, State
from advisor.ingest.readers.kineto.overwritten_start import is_overwritten
from advisor.ingest.readers.kineto.resync import Resync
from advisor.ingest.readers.kineto.window import PIECE, Window

_LOOK_BACK = 4096
UNKNOWN_DEPTH = "object at an unknown depth after damage"

Normalise = Callable[[dict[str, Any]], dict[str, Any]]


class Repairer:
    """Iterate over the readable events of a stream from some event on.

    ``pieces`` are its bytes from offset ``start``, where the list of events goes on; ``separator``
    is the text between two events where that is known (:mod:`.resync`), ``examples`` gives some
    events, asked for only where one is damaged. Afterwards ``dropped``
    counts what was lost by reason and ``unread`` how much that was, ``at_end`` says whether the
    stream came to its end and ``ended`` whether the list did, and ``documents`` holds the text
    after it: the rest of the object, then that of further documents.
    """

    def __init__(
        self,
        pieces: Iterable[bytes],
        limits: Limits,
        *,
        start: int = 0,
        separator: bytes | None = None,
        in_object: bool = True,
        examples: Callable[[], Iterable[dict[str, Any]]] = tuple,
    ) -> None:
        self.window = Window(pieces, start)
        self._limits = limits
        self._resync = Resync(self.window, limits, separator)
        self._list_end = ListEnd(self.window, limits, self._resync)
        self._embedded = EmbeddedEvents(self.window, limits, self._resync, examples)
        self._around = AroundLists(self.window, limits, in_object=in_object)
        self._at = self._begin = start
        self._damaged = False
        self.dropped: Counter[str] = Counter()
        self.unread = LostBytes()
        self.event_start = start
        self.ended = False
        self.at_end = False

    @property
    def documents(self) -> list[bytes]:
        """The text outside the list of events, by document; the first without its head."""
        return [bytes(text) for text in self._around.documents]

    @property
    def document(self) -> int:
        """Number of the document whose events are read at present."""
        return len(self._around.documents) - 1

    def skip_to(self, offset: int) -> None:
        """Go on at ``offset``, where an event starts."""
        self.window.skip_to(offset)
        self._at = self._begin = offset

    def events(
        self, stop: Callable[[int, int], bool] = lambda previous, at: False
    ) -> Iterator[dict[str, Any]]:
        """The events, in order, until ``stop``, asked with the offsets between two of them."""
        window = self.window
        while True:
            window.drop_before(self._at)
            before = self._at
            at = window.skip_blank(before, commas=True)
            if stop(before, at):
                return
            self._at = at
            found = window.byte(at)
            if not found or (found == b"]" and not self._end_of_list(before)):
                self.at_end = True
                return
            if found == b"]":
                continue
            if is_overwritten(window, self._limits, before, at):
                self._skip_blanked(before)
            elif found == b"{":
                self.event_start = at
                event = self._event()
                if event is not None:
                    yield event
            elif self._around.in_object and (field := self._list_end.lost_end(at)) is not None:
                self._drop("not an event")
                if not self._leave_list(field):
                    self.at_end = True
                    return
            else:
                self._skip_other(found)

    def _end_of_list(self, before: int) -> bool:
        """Whether events go on behind a closing bracket: it was a stray one, or there is a list."""
        at = self._at
        if self._list_end.was_opening(before, at, first=before == self._begin):
            others = self._resume(at, at + 1, 0, at_any=True)
            self._lose("malformed event", at, others=others)
            return True
        event = self._list_end.goes_on(at, damaged=self._damaged, in_object=self._around.in_object)
        if event is not None:
            self._drop("not an event")
            self._at = event
            return True
        return self._leave_list(at + 1)

    def _leave_list(self, behind: int) -> bool:
        """Go on in the next list of events from ``behind`` on; False where there is none."""
        window = self.window
        self.ended = True
        following = self._around.next_list(behind)
        self.dropped.update(self._around.dropped)
        self._around.dropped.clear()
        self._at = window.end if following is None else following
        self.ended = following is None
        return following is not None

    def _event(self) -> dict[str, Any] | None:
        window, start = self.window, self._at
        nesting = Nesting(window, start, self._limits.nesting)
        state = nesting.run(start + self._limits.event_bytes)
        if state is State.CLOSED and nesting.at - start > self._limits.event_bytes:
            state = State.LARGE
        if state is State.CLOSED:
            self._at = nesting.at
            text = window.text(start, nesting.at)
            # Zeroed bytes in a string may hide the end of this event and the start of a later one.
            event = None if nesting.too_deep or HOLE.search(text) else parse_event(text)
            if event is not None:
                self._embedded.learn(event, text)
                self.unread.read(nesting.at - start)
                return event
        if self._leave_embedded(start, nesting):
            return None
        if state is State.CLOSED:
            self._lose(self._malformed(nesting), start, one=True)
        elif state is State.LARGE:
            self._pass_over(start, nesting)
        else:
            others = self._resume(start, nesting.at, nesting.lists)
            cut = state is State.CUT and not nesting.too_deep and self._at == window.end
            reason = "cut off" if cut else self._malformed(nesting)
            self._lose(reason, start, one=cut or nesting.too_deep, others=others)
        return None

    def _leave_embedded(self, start: int, nesting: Nesting) -> bool:
        """Go on with the first of the events that a damaged one seems to hold, if any."""
        found = None if nesting.too_deep else self._embedded.first(start, nesting.at)
        if found is None:
            return False
        self._at = found
        self._lose("malformed event", start)
        if not self._has_hole(start, found):  # else its bytes tell how many were lost
            self.dropped["malformed event"] += self.unread.events_in(found - start) - 1
        return True

    def _malformed(self, nesting: Nesting) -> str:
        """The reason why an event cannot be read."""
        deep = f"event nested deeper than {self._limits.nesting} levels"
        return deep if nesting.too_deep else "malformed event"

    def _resume(self, start: int, broken: int, lists: int, *, at_any: bool = False) -> int:
        """Go on behind damage; how many objects were counted that stand between."""
        window, unknown = self.window, 0
        while True:
            found = self._resync.after(start, broken, lists, at_any=at_any)
            if found.unknown:
                self.dropped[UNKNOWN_DEPTH] += found.unknown
                unknown += found.unknown
            if found.at is not None or window.ended:
                self._at = window.end if found.at is None else found.at
                return unknown
            start = broken = max(start + 1, window.end - _LOOK_BACK)
            window.drop_before(start)

    def _pass_over(self, start: int, nesting: Nesting) -> None:
        """Leave an event behind that is larger than allowed, without holding it."""
        telling = self._resync.telling_after(start, nesting.at)
        if telling is not None:
            self._at = telling
            self._lose("malformed event", start)
            return
        hole = self._has_hole(start, nesting.at)
        state, others = State.LARGE if nesting.open else State.CLOSED, 0
        while state is State.LARGE:
            state = nesting.run(nesting.at + PIECE, hold=False)
        if state is State.BROKEN:
            others = self._resume(nesting.at, nesting.at, nesting.lists)
        else:
            self._at = nesting.at
        reason = f"event larger than {self._limits.event_bytes >> 20} MiB"
        self._lose(reason, start, hole=hole, one=True, others=others)

    def _skip_other(self, found: bytes) -> None:
        """Pass over what is no object: a scalar or list, or garbage up to the next event."""
        window, start = self.window, self._at
        if found == b"[":
            nesting = Nesting(window, start, self._limits.nesting)
            closed = nesting.run(start + self._limits.event_bytes) is State.CLOSED
            end = nesting.at if closed else None
        else:
            end = window.scalar_end(start)
        if end is not None:
            after = window.skip_blank(end)
            if window.byte(after) == b"]" or self._is_item(after):
                self._at = end
                self._lose("not an event", start, one=True)
                return
        others = self._resume(start, start, 0, at_any=True)
        passed = window.data[max(0, start - window.base) : self._at - window.base]
        self._lose("malformed event" if PHASE in passed else "not an event", start, others=others)

    def _skip_blanked(self, start: int) -> None:
        """Go on behind blanks that no layout has: what they overwrote may end further on."""
        behind = self._at
        others = self._resume(start, start, 0, at_any=True)
        if self._at != behind:
            self._lose("malformed event", start, others=others)

    def _is_item(self, comma: int) -> bool:
        """Whether a comma comes there, and then an item of a list rather than a key."""
        window = self.window
        if window.byte(comma) != b",":
            return False
        at = window.skip_blank(comma, commas=True)
        end = window.scalar_end(at)
        return end is None or window.byte(window.skip_blank(end)) != b":"

    def _drop(self, reason: str) -> None:
        self._damaged = self._damaged or reason != "not an event"
        self.dropped[reason] += 1

    def _lose(
        self,
        reason: str,
        start: int,
        *,
        hole: bool | None = None,
        one: bool = False,
        others: int = 0,
    ) -> None:
        """Count what was passed over from ``start`` on, ``others`` of which are counted already.

        ``one``: brackets tell that it is one event, unless there is a hole in it. Text without a
        hole is taken for more than one event only where nothing was found behind it.
        """
        self._drop(reason)
        size, base = self._at - start, self.window.base
        if hole is None:
            hole = self._has_hole(start, self._at)
        to_end = self._at == self.window.end and self.window.ended and not one
        if hole or (to_end and has_many(self.window.data, start - base, self._at - base)):
            self.unread.places.append(Gap(reason, size, others))

    def _has_hole(self, start: int, end: int) -> bool:
        """Whether it was overwritten there; also where the stretch was too long to hold."""
        base = self.window.base
        return start < base or has_hole(self.window.data, start - base, end - base)
