"""Reads again, event by event, what is no list of whole events, and numbers what it finds.

A chunk may be believed when it starts where an event starts and is valid by itself: then it ends
where an event ends, and the next one starts right. So from a malformed chunk on, nothing is
believed until reading it event by event comes to the start of a chunk between two events: a chunk
that was cut inside an event (its arguments may hold a list of objects that look like events) is
passed over, however valid it looks, and its rows are forgotten.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.ingest.readers.kineto.cutter import Chunk
from advisor.ingest.readers.kineto.event_fields import IDS_PER_CHUNK
from advisor.ingest.readers.kineto.lost_bytes import LostBytes
from advisor.ingest.readers.kineto.repair import Repairer

REREAD_IDS = IDS_PER_CHUNK // 2
"""Within a chunk's ids those of events read again start here; before them are those it had."""
_CHUNK_BYTES = 128 * 1024


@dataclass
class RepairedChunk(Chunk):
    """Events that were read one by one; ``used`` ids of the chunk's number are taken already."""

    events: list[dict[str, Any]] = field(default_factory=list)
    used: int = 0


@dataclass
class Reread:
    """What reading event by event found.

    ``covered`` are the numbers of chunks passed over, ``starts`` (number, id in it) of each further
    document's first event, ``documents`` the text outside the list by document. ``ended``: the list
    came to its end; None where reading stopped at a chunk that can be believed. ``unread`` is how
    much was passed over.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    covered: set[int] = field(default_factory=set)
    starts: list[tuple[int, int]] = field(default_factory=list)
    documents: list[bytes] = field(default_factory=list)
    ended: bool | None = None
    unread: LostBytes = field(default_factory=LostBytes)


def reread_all(repairer: Repairer, number: int, found: Reread) -> Iterator[RepairedChunk]:
    """The rest of the file, as events of one chunk."""
    yield from _written(repairer, lambda _: number, 0, found)
    _finish(repairer, found)


def reread_chunks(
    repairer: Repairer, chunks: Sequence[int], bad: Collection[int], found: Reread
) -> Iterator[RepairedChunk]:
    """What the ``bad`` ones of the chunks that start at the offsets ``chunks`` hold."""
    trusted = sorted(bad)
    following = 0

    def stop(previous: int, at: int) -> bool:
        nonlocal following
        while following < len(chunks) and chunks[following] <= at:
            if chunks[following] > previous and following not in bad:
                return True
            found.covered.add(following)
            following += 1
        return False

    while trusted:
        first = trusted[0]
        following = first + 1
        found.covered.add(first)
        repairer.skip_to(chunks[first])
        yield from _written(
            repairer, lambda offset: bisect_right(chunks, offset) - 1, REREAD_IDS, found, stop
        )
        if repairer.at_end:
            found.covered.update(range(following, len(chunks)))
            break
        trusted = [number for number in trusted if number > following]
    _finish(repairer, found)


def _finish(repairer: Repairer, found: Reread) -> None:
    found.dropped.update(repairer.dropped)
    found.unread = repairer.unread
    found.documents = repairer.documents
    found.ended = repairer.ended if repairer.at_end else None


def _written(
    repairer: Repairer,
    number_of: Callable[[int], int],
    base: int,
    found: Reread,
    stop: Callable[[int, int], bool] = lambda previous, at: False,
) -> Iterator[RepairedChunk]:
    """Readable events as chunks, of one number each and of a bounded size."""
    events: list[dict[str, Any]] = []
    start = used = 0
    number = -1
    for event in repairer.events(stop):
        at = repairer.event_start
        own = number_of(at)
        if own != number or at - start >= _CHUNK_BYTES:
            if events:
                yield RepairedChunk(number, start, at, bytearray(), events, base + used)
            used = used + len(events) if own == number else 0
            events, start, number = [], at, own
        while len(found.starts) < repairer.document:
            found.starts.append((number, base + used + len(events)))
        events.append(event)
    if events:
        yield RepairedChunk(number, start, repairer.event_start, bytearray(), events, base + used)
