"""What stands around lists of events: fields, further lists of events, further documents.

A key ``traceEvents`` that comes a second time, and a second JSON document in the same file, are
lists of events like the first. What is neither a field nor a list of events is passed over.
"""

import re
from collections import Counter

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.json_value import KEYS, State, Value, read_value
from advisor.ingest.readers.kineto.window import Window

MAX_TEXT_BYTES = 64 * 1024 * 1024
OUTSIDE = "event outside the list of events"
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[(?=\s*(?:\]|' + KEYS + rb"))")
_DOCUMENT = re.compile(rb'\{\s*"|\[\s*' + KEYS)
_BARE_LIST = re.compile(rb"\[\s*" + KEYS)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_PHASE_KEY = b'"ph"'
_LOOK_BACK = 4096


class AroundLists:
    """Follows the text outside lists of events; ``documents`` are the texts of each document.

    ``damaged``: some of it was passed over.
    ``dropped`` counts what looks like an event there. ``in_object`` says whether the list at hand
    is a field of an object.
    """

    def __init__(self, window: Window, limits: Limits, *, in_object: bool) -> None:
        self._window = window
        self._limits = limits
        self._in_object = self._has_list = in_object
        self._has_phase = False
        self._kept = 0
        self.damaged = False
        self.documents = [bytearray()]
        self.dropped: Counter[str] = Counter()

    @property
    def in_object(self) -> bool:
        """Whether the list at hand is a field of an object."""
        return self._in_object

    def next_list(self, at: int) -> int | None:
        """Offset after the bracket of the next list of events; None at the end of the stream."""
        window = self._window
        while True:
            start = at
            window.drop_before(start)
            at = window.skip_blank(at, commas=True)
            found = window.byte(at)
            if not found:
                return None
            if found == b"}":
                at += 1
                self._close()
            elif self._in_object and found == b'"':
                end = self._field(at)
                if end is None:
                    return self._search(at)
                at, is_list = end
                if is_list:
                    return at
            elif not self._in_object and found == b"{":
                self.documents.append(bytearray())
                self._in_object, self._has_phase, self._has_list = True, False, False
                at += 1
            elif not self._in_object and window.matches(_BARE_LIST, at):
                self.documents.append(bytearray())
                return at + 1
            elif found == b"]":
                at += 1
            elif self._in_object:
                return self._search(at)
            else:
                match = self._find(_DOCUMENT, at)
                if match is None:
                    return None
                at = match.start() + window.base
                continue
            self._keep(start, at)

    def _close(self) -> None:
        """The object ends: it was an event if it is like one and holds no list of events."""
        if self._in_object and self._has_phase and not self._has_list and len(self.documents) > 1:
            self.dropped[OUTSIDE] += 1
            self.documents.pop()
        self._in_object = self._has_phase = False

    def _field(self, at: int) -> tuple[int, bool] | None:
        """After a key and its value, or after the bracket of a list of events; None if damaged."""
        window = self._window
        key = self._value(at)
        colon = window.skip_blank(key.end)
        if key.state is not State.WHOLE or window.byte(colon) != b":":
            return None
        at = window.skip_blank(colon + 1)
        if window.byte(at) == b"[" and key.value == "traceEvents":
            self._has_list = True
            return at + 1, True
        self._has_phase = self._has_phase or key.value == "ph"
        found = self._value(at)
        if found.state is State.LARGE:
            end = self._end_of_large(at)
        else:
            end = found.end if found.state is State.WHOLE else None
        return None if end is None else (end, False)

    def _value(self, at: int) -> Value:
        return read_value(self._window, at, self._limits.event_bytes, self._limits.nesting)

    def _end_of_large(self, at: int) -> int | None:
        """The end of a value that is too large to hold, by its brackets."""
        window, levels = self._window, 0
        while True:
            for token in _TOKEN.finditer(window.data, at - window.base):
                at = token.end() + window.base
                levels += (token.group() in b"[{") - (token.group() in b"]}")
                if not levels:
                    return at
            window.drop_before(at)
            if not window.more():
                return None

    def _search(self, at: int) -> int | None:
        """Where the text is damaged: the next thing that can only be a list of events.

        The events that are passed over are counted: the list's end may be the damage.
        """
        self.damaged = True
        match = self._find(_LIST, at, counted=True)
        return match.end() + self._window.base if match else None

    def _find(
        self, pattern: re.Pattern[bytes], at: int, *, counted: bool = False
    ) -> re.Match[bytes] | None:
        """The next match, its positions as indices of the window's data; what is passed is kept."""
        window = self._window
        while True:
            match = pattern.search(window.data, at - window.base)
            following = max(at, window.end - _LOOK_BACK)
            if match:
                following = match.start() + window.base
            elif not window.more():
                following = window.end
            self._keep(at, following)
            if counted:
                passed = window.data.count(_PHASE_KEY, at - window.base, following - window.base)
                self.dropped.update({OUTSIDE: passed} if passed else {})
            if match or following == window.end:
                return match
            at = following
            window.drop_before(at)

    def _keep(self, start: int, end: int) -> None:
        """Add a stretch to the text of the document, as long as there is room."""
        if start < self._window.base:
            return  # a value too large to hold
        text = self._window.text(start, end)
        self._kept += len(text)
        if self._kept <= MAX_TEXT_BYTES:
            self.documents[-1] += text
