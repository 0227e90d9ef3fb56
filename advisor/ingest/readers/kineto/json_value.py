"""One JSON value at a place of a stream: where it ends, or where that it is damaged is noticed.

The standard decoder reads text whose characters are the file's bytes, so that its offsets are the
file's. What does not change an event's meaning is repaired: bytes that are not UTF-8, stray
backslashes, trailing commas and NaN; lone surrogates when it is written (:func:`clean`).
"""

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from advisor.ingest.readers.kineto.window import Window
from advisor.vocabulary.numbers import is_beyond_64_bits

KEYS = rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s|sf|cname|tdur|tts)"\s*:'
EVENT_START = re.compile(KEYS)
_ROOM = 4096
_GROWTH = 8
_LONGEST_WORD = 12
"""``-Infinity`` and escapes are cut at most so far from the end of what was read."""
_ESCAPE = re.compile(r'(\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})|\\')
_TRAILING_COMMA = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|,(?=\s*[}\]])', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"{}[]")


class Digits(str):
    """A number kept as its digits: a float would lose nanoseconds of epoch timestamps."""

    __slots__ = ()


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of duplicate keys the first counts."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        result.setdefault(key, value)
    return result


def _any_int(digits: str) -> int | Digits:
    """Python converts no more than 4,300 digits and raises; no field holds so many."""
    return Digits(digits) if is_beyond_64_bits(digits) else int(digits)


def decoder(*, strict: bool, parse_int: Callable[[str], Any] = _any_int) -> json.JSONDecoder:
    """Python's, exact; ``strict``: strings hold no control characters as they are."""
    return json.JSONDecoder(
        strict=strict,
        parse_float=Digits,
        parse_int=parse_int,
        parse_constant=lambda _: None,
        object_pairs_hook=_first_wins,
    )


_DECODER = decoder(strict=False)


class State(Enum):
    """How far a value could be read."""

    WHOLE = "whole"
    BROKEN = "broken"
    CUT = "cut"
    LARGE = "large"
    DEEP = "deep"


class Value(NamedTuple):
    """``end`` is the offset after the value, or where it cannot go on (of CUT and LARGE: of what
    was looked at).
    """

    state: State
    end: int
    value: Any = None


def read_value(window: Window, at: int, most_bytes: int, most_levels: int) -> Value:
    """The value at offset ``at``, of at most so many bytes and levels of brackets."""
    room = _ROOM
    while True:
        room = min(room, most_bytes)
        window.reach(at + room)
        text = window.text(at, at + room).decode("latin-1")
        is_all = len(text) < room
        state, end, value = _decode(text, whole=is_all)
        if state is not State.CUT or is_all:
            break
        if room == most_bytes:
            state = State.LARGE
            break
        room *= _GROWTH
    if state is State.WHOLE:
        raw = window.text(at, at + end)
        if is_deeper(raw, most_levels):
            state = State.DEEP
        elif value is None or not raw.isascii():
            value = _decode(_mended(raw.decode(errors="replace"), r"\\"), whole=True)[2]
    return Value(state, at + end, value)


def _decode(text: str, *, whole: bool) -> tuple[State, int, Any]:
    """State, offset and value; without a value where it can be read once it is mended."""
    state, end, value = _parsed(text, whole=whole)
    if state is State.BROKEN and text[end] in "\\,}]":
        state, end, _ = _parsed(_mended(text, "/", " "), whole=whole)
        value = None
    return state, end, value


def _parsed(text: str, *, whole: bool) -> tuple[State, int, Any]:
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        near = len(text) if whole else len(text) - _LONGEST_WORD
        if error.pos >= near or error.msg.startswith("Unterminated"):
            return State.CUT, len(text), None
        return State.BROKEN, error.pos, None
    except RecursionError:
        return State.DEEP, 1, None
    if end == len(text) and not whole and text[end - 1] not in '"}]':
        return State.CUT, end, None
    return State.WHOLE, end, value


def _mended(text: str, backslash: str, comma: str = "") -> str:
    """The text without trailing commas, and with ``backslash`` for those that escape nothing."""
    text = _ESCAPE.sub(lambda found: found[1] or backslash, text)
    return _TRAILING_COMMA.sub(lambda found: found[1] or comma, text)


def clean(value: Any) -> Any:
    """The value with lone surrogates replaced, so that it can be written as UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def is_deeper(text: bytes | bytearray, most: int) -> bool:
    """Whether brackets stand more than ``most`` levels deep."""
    return _may_be_deeper(text, most) and _may_be_deeper(_STRING.sub(b"", text), most)


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
