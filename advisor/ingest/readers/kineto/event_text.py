"""Parses the text of one event, with the repairs that do not change its meaning.

Those are bytes that are not UTF-8, lone surrogates, stray backslashes, trailing commas and NaN.
"""

from __future__ import annotations

import json
import re
from typing import Any

_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_TRAILING_COMMA = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|,(?=\s*[}\]])', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Digits(str):
    """A number kept as its digits: a float would lose nanoseconds of epoch timestamps."""

    __slots__ = ()


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of duplicate keys the first counts, as in the database's parser."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        result.setdefault(key, value)
    return result


def parse_event(text: bytes) -> dict[str, Any] | None:
    """One event from its text, repaired where that is safe; None when it cannot be read."""
    decoded = text.decode("utf-8", errors="replace")
    for repair in (False, True):
        candidate = _BAD_ESCAPE.sub(r"\\\\", decoded) if repair else decoded
        if repair:
            candidate = _TRAILING_COMMA.sub(lambda found: found[1] or "", candidate)
        try:
            value = json.loads(
                candidate,
                strict=False,
                parse_float=_Digits,
                parse_constant=lambda _: None,
                object_pairs_hook=_first_wins,
            )
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


def clean(value: Any) -> Any:
    """The value with lone surrogates replaced, so that it can be written as UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value
