"""When each rank leaves a ring collective of gloo, if some of the ring's edges are slow.

Both of gloo's rings move a chunk per rank and round in two segments (the all-reduce in more where
these would be above 1 MiB: then the ends are closer together) and keep two segments in
flight: a rank asks for segment i when segment i - 2 has come and gone, and the sender holds it back
until it was asked for (allreduce.cc, allgather.cc; the rendezvous of its unbound buffers). From
that follow the ends that recordings show, with 2 to 8 ranks, one slow direction or both, one or two
ranks to a host: the receiver of the slow edge ends last, its sender one chunk before it, and ranks
further away on either side earlier by up to a chunk each. How much slower the edge is moves the
ends little once it is 1.5 times as slow, which is why a share of excess read off them has a wide
interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from advisor.metrics.timeline.statistics import Floats

# Operation on the wire -> (place of the sender relative to the receiver, passes over the ring).
GLOO_RINGS = {"all_reduce": (1, 2), "all_gather": (-1, 1)}
SEGMENTS = 2
LARGEST_SEGMENT = 1 << 20  # gloo/allreduce.h, kMaxSegmentSize
# An edge inside a host takes this part of the time of one between hosts, at most.
INSIDE = 0.2
# Shares of a slow edge's time that are excess, evenly spaced in the logarithm of its slowdown.
SHARES: Floats = 1.0 - np.exp(-np.linspace(0.03, 3.4, 50))
# As few as tell places apart where many hypotheses are weighed.
FEW_SHARES: Floats = 1.0 - np.exp(-np.array([0.1, 0.6, 1.2, 1.7, 2.2, 3.0]))
_LONG_AGO = -1e3  # in times of a segment over the slowest edge
_SHORT = 1e-6  # a segment's time, in those for which a lost packet is waited for


def edges(op: str, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """(sender, receiver) of every edge of the ring, the receivers in the order of ``ranks``."""
    direction, _ = GLOO_RINGS[op]
    count = len(ranks)
    return [(ranks[(place + direction) % count], ranks[place]) for place in range(count)]


def segments(op: str, count: int, size: int) -> int:
    """Of a chunk of a message of ``size`` bytes (gloo/allreduce.cc, numSegmentsPerRank)."""
    return max(SEGMENTS, -(-size // (LARGEST_SEGMENT * count))) if op == "all_reduce" else SEGMENTS


@lru_cache(maxsize=1024)
def ends(
    op: str, count: int, slow: frozenset[int], inside: frozenset[int], each: int = SEGMENTS
) -> Floats:
    """Row per share of ``SHARES``, column per place: end over the last end, ``slow`` receivers,
    chunks in ``each`` segments.

    The edges into the places in ``slow`` take 1 per segment, all others 1 - share, those into the
    places in ``inside`` (the sender is on the same host) a part of that.
    """
    takes = _takes(count, slow, inside, SHARES)
    done = _pass(op, takes, np.zeros_like(takes), each=each)
    result: Floats = done / done.max(axis=1, keepdims=True)
    return result


@lru_cache(maxsize=1024)
def paths(op: str, count: int, slow: frozenset[int], inside: frozenset[int]) -> Floats:
    """Per share of ``FEW_SHARES``, place i, place j: from the arrival of j to the end of i.

    j is so late that all others wait for it; the longest of these times is 1. With fixed times on
    the edges a ring is linear in max and plus: i ends at the latest of arrival j plus path (i, j),
    whoever comes when.
    """
    takes = _takes(count, slow, inside, FEW_SHARES if slow else np.zeros(1))
    result = np.zeros((len(takes), count, count))
    for place in range(count):
        starts = np.full_like(takes, _LONG_AGO)
        starts[:, place] = 0.0
        result[:, :, place] = _pass(op, takes, starts)
    result /= result.max(axis=(1, 2), keepdims=True)
    return result


@lru_cache(maxsize=1024)
def distant(
    op: str, count: int, far: frozenset[int], inside: frozenset[int]
) -> tuple[Floats, Floats]:
    """The same if the edges into the places in ``far`` are no slower but longer: what goes over
    them arrives later, either way, and holds up nothing that follows; and the shares of a call's
    time that are due to it."""
    shares = FEW_SHARES[:, None]
    takes = _takes(count, frozenset(), inside, np.zeros(len(FEW_SHARES))) * (1.0 - shares)
    delay = shares * np.isin(np.arange(count), list(far))
    together = np.zeros_like(takes)
    near_by = _pass(op, takes, together).max(axis=1)
    excess: Floats = 1.0 - near_by / _pass(op, takes, together, delay=delay).max(axis=1)
    result = np.zeros((len(takes), count, count))
    for place in range(count):
        starts = np.full_like(takes, _LONG_AGO)
        starts[:, place] = 0.0
        result[:, :, place] = _pass(op, takes, starts, delay=delay)
    result /= result.max(axis=(1, 2), keepdims=True)
    return result, excess


@lru_cache(maxsize=256)
def waiting(op: str, count: int) -> tuple[tuple[str, frozenset[int]], ...]:
    """For each packet that may be lost on the edge into place 0, one after the other: 'data' or
    'word' (that the receiver is ready, which it sends the other way), and who waits until it is
    sent again. Elsewhere in the ring the places turn with the edge."""
    _, passes = GLOO_RINGS[op]
    each = SEGMENTS * (count - 1)
    lost = [(kind, one) for kind in ("data", "word") for one in range(passes * each)]
    late = np.zeros((passes, each, len(lost)))
    for row, (_, one) in enumerate(lost):
        late[one // each, one % each, row] = 1.0
    is_data = np.array([kind == "data" for kind, _ in lost])
    takes = np.full((len(lost), count), _SHORT)
    done = _pass(op, takes, np.zeros_like(takes), (late * is_data, late * ~is_data))
    waits = done - done.min(axis=1, keepdims=True) > 0.5  # nobody is done early: all wait
    return tuple(
        (kind, frozenset(np.flatnonzero(row).tolist()) or frozenset(range(count)))
        for (kind, _), row in zip(lost, waits, strict=True)
    )


def _takes(count: int, slow: frozenset[int], inside: frozenset[int], shares: Floats) -> Floats:
    """Row per share: what the edge into each place takes per segment."""
    places = np.arange(count)
    other = np.where(np.isin(places, list(inside)), INSIDE, 1.0) * (1.0 - shares[:, None])
    takes: Floats = np.where(np.isin(places, list(slow)), 1.0, other)
    return takes


def _pass(
    op: str,
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
    direction, passes = GLOO_RINGS[op]
    done, free = starts, np.full_like(takes, _LONG_AGO)
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
