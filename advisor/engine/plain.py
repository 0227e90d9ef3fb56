"""Values of a rule's rows as JSON holds them, so many of one finding and no more.

Rules from elsewhere are not trusted: three hundred lists of sixty thousand numbers would be a
report of 375 MB.
"""

import math
from typing import Any

MOST_ITEMS = 65_536
"""Of a list in a finding; rules from elsewhere may name any number of ranks."""
MOST_VALUES = 1 << 20
MOST_CHARACTERS = 4 << 20
"""Of a finding, in all of its facts and tables."""


class Room:
    """How much more the facts and tables of one finding may hold."""

    def __init__(self) -> None:
        self._values = MOST_VALUES
        self._characters = MOST_CHARACTERS

    def plain(self, value: Any) -> Any:
        """``value`` as JSON can hold it, without what there is no room for."""
        if isinstance(value, list | tuple):
            found = []
            for item in value[:MOST_ITEMS]:
                if self._values <= 0:
                    break
                self._values -= 1
                found.append(self.plain(item))
            return found
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if not isinstance(value, str):
            try:
                return float(value)
            except (TypeError, ValueError):
                value = str(value)
        text: str = value[: self._characters]
        self._characters -= len(text)
        return text


def named(items: list[Any] | tuple[Any, ...]) -> list[Any]:
    """What a finding names, as far as there is room."""
    room = Room()
    return [item for item in items[:MOST_ITEMS] if item is not None and room.plain(item) == item]
