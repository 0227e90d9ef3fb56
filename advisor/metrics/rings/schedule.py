"""When each rank leaves a ring collective of gloo, if some of the ring's edges are slow.

Both of gloo's rings move a chunk per rank and round in two segments (the all-reduce in more where
these would be above 1 MiB: then the ends are closer together) and keep two segments in
flight: a rank asks for segment i when segment i - 2 has come and gone, and the sender holds it back
until it was asked for (allreduce.cc, allgather.cc; the rendezvous of its unbound buffers). From
that follow the ends that recordings show, with 2 to 8 ranks, one slow direction or both, one or two
ranks to a host: the receiver of the slow edge ends last, its sender one chunk before it, and ranks
further away on either side earlier by up to a chunk each. How much slower the edge is moves the
ends little once it is 1.5 times as slow.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from advisor.statistics import Floats

# Operation on the wire -> (place of the sender relative to the receiver, passes over the ring).
GLOO_RINGS = {"all_reduce": (1, 2), "all_gather": (-1, 1)}
SEGMENTS = 2
LARGEST_SEGMENT = 1 << 20  # gloo/allreduce.h, kMaxSegmentSize
# An edge inside a host takes this part of the time of one between hosts, at most.
INSIDE = 0.2
_LONG_AGO = -1e6  # in times of a segment over the slowest edge
_SHORT = 1e-6  # a segment's time, in those for which a lost packet is waited for


def ring_of(op: str, ranks: Sequence[int]) -> tuple[int, ...] | None:
    """The ranks in the order that data goes through them; None where it is no ring."""
    if op not in GLOO_RINGS:
        return None
    return tuple(ranks[:: -GLOO_RINGS[op][0]])


def paths_through(op: str, takes: Floats, delays: Floats, each: int) -> Floats:
    """Row per ring, position i, position j: from the arrival of j to when i leaves.

    j is so late that all others wait for it. With fixed times on the edges a ring is linear in max
    and plus: i leaves at the latest of arrival j plus path (i, j), whoever comes when. Positions
    are in the order that data goes through them (``ring_of``); ``takes``: what a segment takes
    over the edge out of each, row per ring; ``delays``: by how much later it arrives, and the word
    that it may be sent; ``each``: segments of a chunk.
    """
    count = takes.shape[1]
    into, later = np.roll(takes, 1, axis=1), np.roll(delays, 1, axis=1)
    starts = np.where(np.eye(count, dtype=bool), 0.0, _LONG_AGO * takes.max())
    done = _pass(
        -1,
        GLOO_RINGS[op][1],
        np.repeat(into, count, axis=0),
        np.tile(starts, (len(takes), 1)),
        delay=np.repeat(later, count, axis=0),
        each=each,
    )
    return np.ascontiguousarray(done.reshape(len(takes), count, count).transpose(0, 2, 1))


def segments(op: str, count: int, size: int) -> int:
    """Of a chunk of a message of ``size`` bytes (gloo/allreduce.cc, numSegmentsPerRank)."""
    return max(SEGMENTS, -(-size // (LARGEST_SEGMENT * count))) if op == "all_reduce" else SEGMENTS


@lru_cache(maxsize=256)
def waiting(op: str, count: int) -> tuple[tuple[str, frozenset[int]], ...]:
    """For each packet that may be lost on the edge into place 0, one after the other: 'data' or
    'word' (that the receiver is ready, which it sends the other way), and who waits until it is
    sent again. Elsewhere in the ring the places turn with the edge."""
    direction, passes = GLOO_RINGS[op]
    each = SEGMENTS * (count - 1)
    lost = [(kind, one) for kind in ("data", "word") for one in range(passes * each)]
    late = np.zeros((passes, each, len(lost)))
    for row, (_, one) in enumerate(lost):
        late[one // each, one % each, row] = 1.0
    is_data = np.array([kind == "data" for kind, _ in lost])
    takes = np.full((len(lost), count), _SHORT)
    done = _pass(direction, passes, takes, np.zeros_like(takes), (late * is_data, late * ~is_data))
    waits = done - done.min(axis=1, keepdims=True) > 0.5  # nobody is done early: all wait
    return tuple(
        (kind, frozenset(np.flatnonzero(row).tolist()) or frozenset(range(count)))
        for (kind, _), row in zip(lost, waits, strict=True)
    )


def _pass(
    direction: int,
    passes: int,
    takes: Floats,
    starts: Floats,
    lost: tuple[Floats, Floats] | None = None,
    delay: Floats | float = 0.0,
    each: int = SEGMENTS,
) -> Floats:
    """When each place is done, where it comes at ``starts``.

    ``lost``: by how much data into place 0, and its word to its sender, come later; by pass,
    segment and row. What follows on the same connection waits as well. ``delay``: by how much data
    into each place, and its word to its sender, arrive later.
    """
    count = takes.shape[1]
    done, free = starts, np.full_like(takes, -np.inf)
    word = free
    for number in range(passes):
        asked = done
        arrived: list[Floats] = []
        sent: list[Floats] = []
        for segment in range(each * (count - 1)):
            if segment >= SEGMENTS:
                before = np.maximum(arrived[segment - SEGMENTS], sent[segment - SEGMENTS])
                asked = np.maximum(asked, before)
            word = np.maximum(word, asked)
            if lost is not None:
                word[:, 0] += lost[1][number, segment]
            leaves = np.maximum(np.roll(asked, -direction, axis=1), word + delay)
            free = np.maximum(leaves, free) + takes
            if lost is not None:
                free[:, 0] += lost[0][number, segment]
            arrived.append(free + delay)
            sent.append(np.roll(leaves, direction, axis=1))
        done = np.maximum.reduce([*arrived[-SEGMENTS:], *sent[-SEGMENTS:]])
    return done
