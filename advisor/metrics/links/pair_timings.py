"""What pairwise timings say about each link: a slow sender, a slow receiver, or one slow edge.

Time per byte of a pair is the sender's, the receiver's and the link's slowest part. A rank whose
pairs are slow in one direction with every partner is itself slow in that direction; a pair that
is slow although both ends are fast with others is a slow link. With too few partners to decide,
all candidates are named.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from advisor.metrics.links.durations import CALL, FEWEST_CALLS

SPREAD = 2 * CALL
"""What a pair's rate, or the median of a group's calls, is good for."""
# A pair counts as slow when it takes this many times as long as the usual one: the median of the
# faster half, since one host that is slow both ways has half of all pairs among four hosts.
SLOW_FACTOR = (1 + SPREAD) / (1 - SPREAD)


class Pair(NamedTuple):
    """One direction between two ranks: nanoseconds per byte, and the round trip of one element."""

    src: int
    dst: int
    ns_per_byte: float
    latency_ns: float


def timed_pairs(times: Mapping[tuple[int, int], Mapping[int, float]]) -> list[Pair]:
    """Pairs from round trips in ns by (sender, receiver) and bytes; of two sizes or none.

    The large message's time less the latency, for which the median over all pairs stands: one
    small message that came late must not make its link look fast. No more than half of the
    time counts as latency, so that no rate exceeds twice what was seen.
    """
    sized = {ends: (min(found), max(found)) for ends, found in times.items() if len(found) > 1}
    if not sized:
        return []
    latency = median(times[ends][small] for ends, (small, _) in sized.items())
    pairs = []
    for (src, dst), (small, large) in sorted(sized.items()):
        took = times[src, dst][large]
        per_byte = max(took - latency, took / 2) / (large - small)
        pairs.append(Pair(src, dst, per_byte, times[src, dst][small]))
    return pairs


class Suspect(NamedTuple):
    """What is slow: ``kind`` is 'sender', 'receiver', 'edge' or 'candidates'."""

    kind: str
    ranks: tuple[int, ...]
    gbps: float
    expected_gbps: float
    pairs: int


def suspects(pairs: Sequence[Pair]) -> list[Suspect]:
    """Slow senders, receivers and edges, worst first; empty when every pair is alike."""
    if len(pairs) < FEWEST_CALLS:
        return []
    usual = _usual(pairs)
    slow = {(p.src, p.dst): p for p in pairs if p.ns_per_byte > SLOW_FACTOR * usual}
    outgoing: dict[int, list[Pair]] = defaultdict(list)
    incoming: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        outgoing[pair.src].append(pair)
        incoming[pair.dst].append(pair)
    found: list[Suspect] = []
    explained: set[tuple[int, int]] = set()
    for kind, table in (("sender", outgoing), ("receiver", incoming)):
        for rank, of_rank in table.items():
            hit = [pair for pair in of_rank if (pair.src, pair.dst) in slow]
            if len(of_rank) >= 2 and len(hit) == len(of_rank):
                found.append(_suspect(kind, (rank,), hit, usual))
                explained |= {(pair.src, pair.dst) for pair in hit}
    for (src, dst), pair in slow.items():
        if (src, dst) in explained:
            continue
        others = [p for p in (*outgoing[src], *incoming[dst]) if (p.src, p.dst) != (src, dst)]
        cleared = len(outgoing[src]) > 1 and len(incoming[dst]) > 1
        kind = "edge" if cleared and others else "candidates"
        found.append(_suspect(kind, (src, dst), [pair], usual))
    return sorted(found, key=lambda suspect: suspect.gbps)


def _usual(pairs: Sequence[Pair]) -> float:
    times = sorted(pair.ns_per_byte for pair in pairs)
    return median(times[: (len(times) + 1) // 2])


def _suspect(kind: str, ranks: tuple[int, ...], hit: Sequence[Pair], usual: float) -> Suspect:
    return Suspect(
        kind=kind,
        ranks=ranks,
        gbps=1 / median(pair.ns_per_byte for pair in hit),
        expected_gbps=1 / usual,
        pairs=len(hit),
    )
