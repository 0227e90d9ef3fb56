"""Fields that hold what they cannot: the record is kept without them, and they are named."""

from collections import Counter
from collections.abc import Mapping
from typing import Any


def count_unusable(given: Mapping[str, Any], read: Mapping[str, Any], counts: Counter[str]) -> None:
    """Count the fields of ``read`` of which nothing could be used, though ``given`` has them.

    None, zero and what is empty say that there is nothing.
    """
    for name, value in read.items():
        if not value and value != 0 and given.get(name):
            counts[name] += 1


def without_usable(records: str, counts: Counter[str]) -> list[str]:
    """What to say of it: 'calls without a usable duration_ms: 3'."""
    return [f"{records} without a usable {name}: {count:,}" for name, count in counts.items()]
