"""How much of a file was not read, where damage took more than the one event that it is noticed in.

A stretch of zeroed bytes, or compressed data that cannot be decompressed, takes many events and
leaves one place that is malformed. What stood there is told in bytes, and the number of events is
estimated from the mean size of those that were read beside it.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from advisor.ingest.damage import share_of

ESTIMATED = "in bytes that could not be read (estimated)"
"""The reason under which an estimated number of events is counted."""

ERASED = b"\xff\xff\xff\xff"
HOLE = re.compile(rb"\x00[\x00\n]|" + ERASED)
"""What no program writes into JSON: zeroed or erased bytes, what stands for missing data."""
BLANKED = re.compile(rb"[^\s]\x20{256}|\x20{1024}")
"""Blanks that hardly any layout has: they tell how much was lost in text that cannot be read.

Text that can be read may hold them. Fewer behind a line's end may indent it.
"""
PHASE = b'"ph"'
_VISIBLE = bytes({*range(32, 256), *b"\t\n\r"})
_GARBLED = 16
"""So many control characters in what was passed over: it was overwritten."""
MANY = 16
"""So many phases in what was passed over: it is more than an event with a few like it inside."""


class Gap(NamedTuple):
    """A hole or garbled text: ``size`` bytes of several events, counted once as ``reason``.

    ``others`` events in it were counted by themselves.
    """

    reason: str
    size: int
    others: int = 0


@dataclass
class LostBytes:
    """The holes passed over, and how many bytes the events read beside them have."""

    places: list[Gap] = field(default_factory=list)
    events: int = 0
    event_bytes: int = 0

    def read(self, size: int) -> None:
        """An event of ``size`` bytes was read."""
        self.events += 1
        self.event_bytes += size

    def add(self, other: "LostBytes") -> None:
        """Take over what was found in another part of the file."""
        self.places += other.places
        self.events += other.events
        self.event_bytes += other.event_bytes

    def settle(
        self, dropped: Counter[str], total: int, head: bytes, undecompressed: int = 0
    ) -> str | None:
        """Count in ``dropped`` what damage took instead of its places; what a reader must know.

        ``total`` is how many bytes were read, ``undecompressed`` about how many more there were
        in compressed data that is damaged. Where no event was read beside the damage, those in
        ``head``, the file's beginning, tell their size.
        """
        mean = self.event_bytes / self.events if self.events else _mean_of(head)
        large = [place for place in self.places if place.size >= 2 * mean]
        events = 0
        for place in large:
            dropped[place.reason] -= 1
            events += max(1, round(place.size / max(mean, 1)) - place.others)
        missing = round(undecompressed / max(mean, 1))
        if events + missing:
            dropped[ESTIMATED] += events + missing
        for reason in [reason for reason, count in dropped.items() if not count]:
            del dropped[reason]
        parts = []
        if large:
            told = _told(len(large), sum(place.size for place in large), total)
            parts.append(f"{told}, about {events:,} event{'s' if events != 1 else ''}")
        if missing:
            parts.append(
                f"about {missing:,} event{'s' if missing != 1 else ''} stood in what could not be "
                "decompressed"
            )
        return "; ".join(parts) or None


def has_many(data: bytes | bytearray, start: int, end: int) -> bool:
    """Whether a stretch of text holds so many events that it cannot have been one."""
    return data.count(PHASE, max(start, 0), end) >= MANY


def has_hole(data: bytes | bytearray, start: int, end: int) -> bool:
    """Whether a stretch of text that could not be read was zeroed, erased or overwritten."""
    start = max(start, 0)
    if HOLE.search(data, start, end) or BLANKED.search(data, start, end):
        return True
    return len(data[start:end].translate(None, _VISIBLE)) >= _GARBLED


def _mean_of(text: bytes) -> float:
    """About the size of the events that a text holds, bytes."""
    return (len(text) - max(text.find(PHASE), 0)) / max(text.count(PHASE), 1)


def _told(places: int, size: int, total: int) -> str:
    where = "in 1 place" if places == 1 else f"in {places:,} places"
    return f"damaged {where}: {size:,} bytes ({share_of(size, total)} of the trace) were not read"
