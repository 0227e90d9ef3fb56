"""Follows the brackets of one JSON value through a stream, however large, and notices damage.

Brackets are counted with their kind, and what stands before and after strings and brackets is
checked as far as needed to notice a stray quote or bracket soon: a string is followed by one of
``:,}`` in an object and by one of ``,]`` in a list. Values are not parsed. Every byte is looked at
about once, also in values larger than what is held.
"""

from __future__ import annotations

import re
from enum import Enum

from advisor.ingest.readers.kineto.window import Window

KEYS = rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s|sf|cname|tdur|tts)"\s*:'
EVENT_START = re.compile(KEYS)
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OBJECT_TEXT = rb'[^"\[\]{}]*+(?:' + _STRING + rb'(?=\s*+[:,}])[^"\[\]{}]*+)*+'
_LIST_TEXT = rb'[^"\[\]{}:]*+(?:' + _STRING + rb'(?=\s*+[,\]])[^"\[\]{}:]*+)*+'
_IN_OBJECT = re.compile(_OBJECT_TEXT, re.DOTALL)
_IN_LIST = re.compile(_LIST_TEXT, re.DOTALL)
_FLAT_OBJECT = rb"\{" + _OBJECT_TEXT + rb"\}"
_FLAT_LIST = rb"\[" + _LIST_TEXT + rb"\]"
_ONE_FLAT = {text[1]: re.compile(text, re.DOTALL) for text in (_FLAT_OBJECT, _FLAT_LIST)}
_FLAT_ONES = {
    text[1]: re.compile(text + rb"(?:\s*+,\s*+" + text + rb")*+", re.DOTALL)
    for text in (_FLAT_OBJECT, _FLAT_LIST)
}
_BAD_START = re.compile(rb"[\[{]\s*+[,:]")
_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_ANY_STRING = re.compile(_STRING, re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"{}[]")
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_QUOTE, _COMMA, _COLON = b'",:'
_BLANKS = b" \t\r\n"
_LOOK_AHEAD = 256


def is_deeper(text: bytes | bytearray, most: int) -> bool:
    """Whether brackets stand more than ``most`` levels deep, of which a chunk's list is one."""
    return _may_be_deeper(text, most) and _may_be_deeper(_ANY_STRING.sub(b"", text), most)


def _may_be_deeper(text: bytes | bytearray, most: int) -> bool:
    """As :func:`is_deeper`, but brackets in strings count too."""
    brackets = bytes(text.translate(_ONE_KIND, _NO_BRACKETS))
    levels = 0
    while levels <= most:
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):  # what is left stands in strings, or is damage
            break
        brackets, levels = inner, levels + 1
    return levels + brackets.count(b"[") > most


class State(Enum):
    """How far a value was followed."""

    CLOSED = "closed"
    BROKEN = "broken"
    CUT = "cut"
    LARGE = "large"


class Nesting:
    """Follows the value that starts with the bracket at ``start``.

    After :meth:`run`, ``at`` is the offset after the value (CLOSED), of what cannot stand there
    (BROKEN), or how far it was followed. ``lists`` says how many lists of event-like objects are
    open there, ``too_deep`` whether more than ``most`` levels were.
    """

    def __init__(self, window: Window, start: int, most: int) -> None:
        self._window = window
        self._most = most
        self._stack = bytearray()
        self._lists: list[int] = []
        self._before = _COLON
        self._in_string = False
        self._string = start
        self.at = start
        self.too_deep = False

    @property
    def lists(self) -> int:
        """How many lists of event-like objects are open."""
        return len(self._lists)

    @property
    def open(self) -> bool:
        """Whether the value goes on."""
        return bool(self._stack)

    def run(self, limit: int, *, hold: bool = True) -> State:
        """Follow the value up to the offset ``limit``; without ``hold`` what was seen is dropped.

        After LARGE it may be called again with a larger limit.
        """
        window = self._window
        while True:
            was_all = window.ended
            state = self._follow()
            if state is not None:
                return state
            if was_all:
                return State.CUT
            if self.at >= limit:
                return State.LARGE
            if not hold:
                window.drop_before(self.at)
            window.more()

    def _follow(self) -> State | None:
        """Go on as far as the data reaches; None when more is needed."""
        window, stack = self._window, self._stack
        data, base = window.data, window.base
        at = self.at - base
        while True:
            if self._in_string:
                rest = _REST.match(data, at)
                at = rest.end() if rest else at
                self.at = at + base
                if at + 1 >= len(data) and not window.ended:
                    return None
                if at >= len(data) or data[at] != _QUOTE:
                    return None  # the stream ends inside the string
                state = self._after_string(at + 1)
                if state is not None or self._in_string:
                    return state
                at = self.at - base
            in_list = bool(stack) and stack[-1] == _OPEN_LIST
            if stack:
                match = (_IN_LIST if in_list else _IN_OBJECT).match(data, at)
                end = match.end() if match else at
                self._note_before(at, end)
                at = end
            self.at = at + base
            if at >= len(data):
                return None
            found = data[at]
            if found == _QUOTE:
                self._in_string = True
                self._string = self.at
                self.at += 1
                at += 1
                continue
            if found == _COLON:
                return State.BROKEN
            if found in (_OPEN_OBJECT, _OPEN_LIST):
                if not window.ended and len(data) - at < _LOOK_AHEAD:
                    return None
                if not self._may_open(in_list) or _BAD_START.match(data, at):
                    return State.BROKEN
                at = self._open(at, found, in_list)
            else:
                if not stack or stack[-1] != (
                    _OPEN_OBJECT if found == _CLOSE_OBJECT else _OPEN_LIST
                ):
                    return State.BROKEN
                if self._lists and self._lists[-1] == len(stack):
                    self._lists.pop()
                stack.pop()
                self._before = found
                at += 1
            self.at = at + base
            if not stack:
                return State.CLOSED

    def _open(self, at: int, found: int, in_list: bool) -> int:
        """Enter the value whose bracket is at index ``at``, or pass flat ones that come there."""
        data, stack = self._window.data, self._stack
        is_event = found == _OPEN_OBJECT and in_list and EVENT_START.match(data, at)
        if is_event and (not self._lists or self._lists[-1] != len(stack)):
            self._lists.append(len(stack))
        self.too_deep = self.too_deep or len(stack) >= self._most
        flat = (_FLAT_ONES if in_list else _ONE_FLAT)[found].match(data, at)
        if flat:
            self._before = data[flat.end() - 1]
            return flat.end()
        stack.append(found)
        self._before = found
        return at + 1

    def _may_open(self, in_list: bool) -> bool:
        if in_list:
            return self._before in (_OPEN_LIST, _COMMA)
        return self._before == _COLON

    def _note_before(self, start: int, end: int) -> None:
        """Remember the last byte of a stretch that is no blank."""
        data = self._window.data
        while end > start and data[end - 1] in _BLANKS:
            end -= 1
        if end > start:
            self._before = data[end - 1]

    def _after_string(self, at: int) -> State | None:
        """Check what follows the string that ends before index ``at``; more may be needed."""
        window, data = self._window, self._window.data
        follows = at
        while follows < len(data) and data[follows] in _BLANKS:
            follows += 1
        if follows >= len(data) and not window.ended:
            return None
        allowed = b",]" if self._stack[-1] == _OPEN_LIST else b":,}"
        if follows < len(data) and data[follows] not in allowed:
            self.at = max(self._string, window.base)  # what ends here may have begun too early
            return State.BROKEN
        self._in_string = False
        self._before = _QUOTE
        self.at = at + window.base
        return None
