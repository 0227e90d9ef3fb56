"""Reads stretches of a trace event by event, keeping every event that can be read.

Whole chunks are parsed at once; a chunk that is not a list of whole events comes here. Each event
is read by itself (:mod:`.json_value`); what cannot be read is counted by reason, and :mod:`.resync`
finds where the list goes on.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.around_lists import AroundLists
from advisor.ingest.readers.kineto.json_value import KEYS, State, Value, read_value
from advisor.ingest.readers.kineto.lost_bytes import (
    BLANKED,
    HOLE,
    PHASE,
    Gap,
    LostBytes,
    has_hole,
    has_many,
)
from advisor.ingest.readers.kineto.resync import Resync
from advisor.ingest.readers.kineto.window import Window

UNKNOWN_DEPTH = "object at an unknown depth after damage"
_KEY = KEYS.removeprefix(rb'\{\s*"')
_EVENT_BEHIND = re.compile(rb'\][^"\[{:]{0,128}(?=' + KEYS + rb")")
_ENDS_FIELD = re.compile(rb'\]\s*(?:\Z|\}|,\s*"(?!' + _KEY + rb"))")
_ENDS_ARRAY = re.compile(rb"\]\s*+(?:\Z|[^,\]\w\"])")
_ITEM_ENDS = re.compile(rb'\s*(?:\]|,(?!\s*"[^"\\]{0,128}"\s*:))')
_FIELD_BEHIND = re.compile(rb'[^{:\]]{0,64}?(?="(?!' + _KEY + rb')[^"\\{}\[\]:]{1,128}"\s*:)')


class Repairer:
    """Iterate over the readable events of a stream from some event on.

    ``pieces`` are its bytes from offset ``start``, where the list of events goes on; ``examples``
    gives some events, asked for only where one is damaged. Afterwards ``dropped``
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
        in_object: bool = True,
        examples: Callable[[], Iterable[dict[str, Any]]] = tuple,
    ) -> None:
        self.window = Window(pieces, start)
        self._limits = limits
        self._resync = Resync(self.window, limits, examples)
        self._around = AroundLists(self.window, limits, in_object=in_object)
        self._at = start
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
        self._at = offset

    def events(
        self, stop: Callable[[int, int], bool] = lambda previous, at: False
    ) -> Iterator[dict[str, Any]]:
        """The events, in order, until ``stop``, asked with the offsets between two of them."""
        window = self.window
        while True:
            window.drop_before(self._at)
            before = self._at
            at = self._at = window.skip_blank(before, commas=True)
            if stop(before, at):
                return
            found = window.byte(at)
            if not found or (found == b"]" and self._is_end(at) and not self._leave_list(at + 1)):
                self.at_end = True
                return
            if self._at != at:
                continue
            item = self._value(at)
            if item.state is State.WHOLE and isinstance(item.value, dict):
                text = window.text(at, item.end)
                # Zeroed bytes in a string may hide this event's end and a later one's start.
                if not HOLE.search(text):
                    self.event_start, self._at = at, item.end
                    self._resync.learn(item.value, text)
                    self.unread.read(len(text))
                    yield item.value
                    continue
            self._resync.fail(item, at)
            if found == b"{":
                self._pass_event(at, item)
            elif item.state is State.WHOLE and self._is_item(item.end):
                self._at = item.end
                self._lose("not an event", at, one=True)
            else:
                blanked = BLANKED.search(window.data, before - window.base, at - window.base)
                self._pass_garbage(before if blanked else at, at)

    def _value(self, at: int) -> Value:
        return read_value(self.window, at, self._limits.event_bytes, self._limits.nesting)

    def _is_item(self, end: int) -> bool:
        """Whether a value that ends there is followed like an item of a list."""
        return self.window.matches(_ITEM_ENDS, end)

    def _is_end(self, bracket: int) -> bool:
        """Whether a closing bracket ends the list of events; else it is damage."""
        window, in_object = self.window, self._around.in_object
        event = window.match_end(_EVENT_BEHIND, bracket)
        if event is not None:
            field_goes_on = in_object and b"}" not in window.text(bracket, event)
            if field_goes_on or self._is_item(self._value(event).end):
                return False
        return window.matches(_ENDS_FIELD if in_object else _ENDS_ARRAY, bracket)

    def _leave_list(self, behind: int) -> bool:
        """Go on in the next list of events from ``behind`` on; False where there is none."""
        window = self.window
        following = self._around.next_list(behind)
        self.dropped.update(self._around.dropped)
        self._around.dropped.clear()
        self._at = window.end if following is None else following
        self.ended = following is None
        return following is not None

    def _pass_event(self, start: int, item: Value) -> None:
        """Go on behind an event that cannot be read."""
        self._resume(start + 1)
        window = self.window
        behind = self._at >= item.end
        reason = "malformed event"
        if item.state is State.DEEP:
            reason = f"event nested deeper than {self._limits.nesting} levels"
        elif item.state is State.LARGE and behind:
            reason = f"event larger than {self._limits.event_bytes >> 20} MiB"
        elif item.state is State.CUT and self._at == window.end:
            reason = "cut off"
        one = reason != "malformed event" or item.state is State.WHOLE
        self._lose(reason, start, one=one)

    def _pass_garbage(self, start: int, at: int) -> None:
        """Go on behind what is no event, from ``start`` on, that is noticed at ``at``."""
        field = self.window.match_end(_FIELD_BEHIND, at, 512) if self._around.in_object else None
        if field is not None and self._resync.leads_out(field) == "end":
            self.dropped["not an event"] += 1
            self._leave_list(field)
            return
        self._resume(at)
        if self._at == at:  # a list's end, however odd what comes behind it
            self._leave_list(at + 1)
            return
        base = self.window.base
        passed = self.window.data[max(0, start - base) : self._at - base]
        self._lose("malformed event" if PHASE in passed else "not an event", start)

    def _resume(self, start: int) -> None:
        found = self._resync.next_event(start)
        self._at = self.window.end if found is None else found

    def _lose(self, reason: str, start: int, *, one: bool = False) -> None:
        """Count what was passed over from ``start`` on.

        ``one``: brackets tell that it is one event, unless there is a hole in it. Text without a
        hole is taken for more than one event only where nothing was found behind it.
        """
        others, self._resync.unknown = self._resync.unknown, 0
        self.dropped[reason] += 1
        if others:
            self.dropped[UNKNOWN_DEPTH] += others
        size, base = self._at - start, self.window.base
        data = self.window.data
        alone = not one and self.window.byte(self._at) != b"{"  # no event was found behind it
        if start < base:  # too much to hold
            several = alone
        else:
            span = start - base, self._at - base
            several = has_hole(data, *span) or (alone and has_many(data, *span))
        if several:
            self.unread.places.append(Gap(reason, size, others))
