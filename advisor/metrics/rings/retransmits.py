"""Which host lost the packets that stalled calls of a ring: who was done meanwhile tells.

What a host sends is data for the next rank of the ring, and word to the one before it that it may
send. schedule.waiting has for each packet of a call who waits until it is sent again, and no two
hosts' packets leave the same ranks waiting, but for those that everybody waits for.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.schedule import GLOO_RINGS, waiting

# So many stalled calls lost packets of several segments, and leave any of the ranks waiting.
_ODD = 0.05
# A host is named when what was seen is this many times as likely as if it were the next.
_CLEAR = 10.0
_MOST_RANKS = 128


class Stall(NamedTuple):
    """A stalled call: its operation, its ranks in the ring's order, and those that waited."""

    op: str
    ranks: tuple[int, ...]
    late: frozenset[int]


def senders(stalls: Iterable[Stall], home: Mapping[int, Home]) -> set[Home]:
    """The hosts whose packets explain who waited, all about as likely; all hosts where nothing
    tells them apart."""
    hosts = sorted({home[rank] for rank in home}, key=str)
    likely = dict.fromkeys(hosts, 0.0)
    for stall in stalls:
        if not stall.late or len(stall.late) == len(stall.ranks) or stall.op not in GLOO_RINGS:
            continue  # lost early in the call: everybody waited
        if len(stall.ranks) > _MOST_RANKS:
            continue
        count = len(stall.ranks)
        for host, share in _shares(stall, hosts, home).items():
            likely[host] += float(np.log(share + _ODD / (count * (count - 1))))
    best = max(likely.values(), default=0.0)
    return {host for host, value in likely.items() if value > best - np.log(_CLEAR)}


def _shares(stall: Stall, hosts: Sequence[Home], home: Mapping[int, Home]) -> Mapping[Home, float]:
    """Of the packets that each host sends to others in such a call, those that leave just these
    ranks waiting."""
    count = len(stall.ranks)
    late = frozenset(place for place, rank in enumerate(stall.ranks) if rank in stall.late)
    direction, _ = GLOO_RINGS[stall.op]
    own = [home[rank] for rank in stall.ranks]
    packets = dict.fromkeys(hosts, 0)
    found = dict.fromkeys(hosts, 0)
    for (kind, place), number in _packets(stall.op, count).items():
        ends = own[(place + direction) % count], own[place]
        sender, receiver = ends if kind == "data" else ends[::-1]
        if sender != receiver:
            packets[sender] += number
            found[sender] += _leaving(stall.op, count).get((late, kind, place), 0)
    return {host: found[host] / packets[host] if packets[host] else 0.0 for host in hosts}


@lru_cache(maxsize=64)
def _packets(op: str, count: int) -> dict[tuple[str, int], int]:
    """How many packets go over the edge into each place: data, and the receiver's words."""
    kinds = Counter(kind for kind, _ in waiting(op, count))
    return {(kind, place): number for kind, number in kinds.items() for place in range(count)}


@lru_cache(maxsize=64)
def _leaving(op: str, count: int) -> dict[tuple[frozenset[int], str, int], int]:
    """How many of those leave just these places waiting."""
    return {
        (frozenset((one + place) % count for one in waits), kind, place): number
        for (kind, waits), number in Counter(waiting(op, count)).items()
        for place in range(count)
    }
