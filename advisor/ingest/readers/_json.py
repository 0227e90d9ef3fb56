"""JSON that may be cut anywhere: every value before the damage is still delivered.

The standard decoder loses a whole document to one missing bracket. Here the top-level object is
walked key by key and its lists element by element, so that a report of a killed job gives all its
finished records.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.source import Source
from advisor.vocabulary.numbers import json_integer

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
_SPACE = " \t\r\n"


@dataclass(frozen=True)
class Item:
    """A value of the top-level object; ``index`` is its place in a list value, else None."""

    key: str
    index: int | None
    value: Any


def read_document(source: Source, limit: int = MAX_DOCUMENT_BYTES) -> tuple[str, str | None]:
    """The text of a JSON file and what was wrong with its container (or None).

    Raises :class:`AdvisorError` when it is larger than ``limit`` bytes.
    """
    data, damage = read_whole(source, limit, " of JSON, too much for a report of this format")
    return data.decode("utf-8-sig", errors="replace"), damage


def read_whole(source: Source, limit: int, too_much: str) -> tuple[bytes, str | None]:
    """The bytes of a file, not more than ``limit``, and what was wrong with its container."""
    stream, raw = source.open_raw()
    with stream:
        data = stream.read(limit + 1)
        damage = raw.damage
    if len(data) > limit:
        raise AdvisorError(f"holds more than {limit >> 20} MiB{too_much}", where=str(source.path))
    return data, damage


class TopLevel:
    """Iterates the items of a document's top-level object; ``cut`` says where it broke off."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = json.JSONDecoder(strict=False, parse_int=json_integer)
        self.cut: int | None = None

    def __iter__(self) -> Iterator[Item]:
        place: int | None = self._open(self._skip(0), "{")
        while place is not None and not self._at(place, "}"):
            key, after = self._value(place)
            if after is None:
                return
            place = self._open(self._skip(after), ":")
            if place is None or not isinstance(key, str):
                self.cut = after
                return
            if self._at(place, "["):
                index = 0
                place = self._open(place, "[")
                while place is not None and not self._at(place, "]"):
                    value, after = self._value(place)
                    if after is None:
                        return
                    yield Item(key, index, value)
                    index += 1
                    place = self._next(after, "]")
                after = None if place is None else place + 1
            else:
                value, after = self._value(place)
                if after is not None:
                    yield Item(key, None, value)
            place = None if after is None else self._next(after, "}")

    def _skip(self, place: int) -> int:
        while place < len(self._text) and self._text[place] in _SPACE:
            place += 1
        return place

    def _at(self, place: int, sign: str) -> bool:
        return self._text.startswith(sign, place)

    def _open(self, place: int, sign: str) -> int | None:
        """Past ``sign``, which must stand at ``place``."""
        if self._at(place, sign):
            return self._skip(place + 1)
        self.cut = place
        return None

    def _next(self, place: int, end: str) -> int | None:
        """Past the comma at ``place``, or at ``end``."""
        place = self._skip(place)
        return place if self._at(place, end) else self._open(place, ",")

    def _value(self, place: int) -> tuple[Any, int | None]:
        try:
            return self._decoder.raw_decode(self._text, place)
        except (ValueError, RecursionError):
            self.cut = place
            return None, None
