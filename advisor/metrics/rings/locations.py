"""Places that may be slow in a ring: a host's link, one of its directions, an edge of two hosts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

Home = Hashable

_DIRECTIONS = {"out": "send", "in": "receive", "both": "both"}


class Location(NamedTuple):
    """``kind``: 'both', 'out' or 'in' (of ``homes[0]``), or 'edge' (``homes[0]`` to the other)."""

    kind: str
    homes: tuple[Home, ...]

    def slow(self, edge: tuple[int, int], home: Mapping[int, Home]) -> bool:
        """Whether an edge (sender, receiver) is slow if this place is."""
        source, target = home[edge[0]], home[edge[1]]
        if source == target:
            return False
        if self.kind == "edge":
            return (source, target) == self.homes
        sends, receives = source == self.homes[0], target == self.homes[0]
        return (sends and self.kind != "in") or (receives and self.kind != "out")


def homes_of(ranks: Iterable[int], named: Mapping[int, str]) -> dict[int, str]:
    """What stands for each rank's host, by those that are known; an unknown one for itself.

    Where the known hosts hold blocks of ranks, a rank that was not read is of its block's host;
    more than half of some host's ranks were read.
    """
    ranks = {*ranks}
    most = max(Counter(named.values()).values(), default=1)
    fitting = [
        (len(ranks) % block > 0, block, dict(blocks))
        for block in range(most, min(2 * most, len(ranks)) + 1)
        if len(blocks := {(rank // block, host) for rank, host in named.items()})
        == len({host for _, host in blocks})
        == len(dict(blocks))
    ]
    # Every host may lack a rank: a size that divides all ranks comes first.
    _, block, host_of = min(fitting, key=lambda one: one[:2], default=(False, most, {}))
    return {r: named.get(r) or host_of.get(r // block) or f"rank {r}" for r in sorted(ranks)}


def direction_of(places: Iterable[Location]) -> str | None:
    """Which way a host is slow if all places agree: 'send', 'receive' or 'both'; else None."""
    kinds = {place.kind for place in places}
    return _DIRECTIONS.get(kinds.pop()) if len(kinds) == 1 else None


def locations_of(edges: Iterable[tuple[int, int]], home: Mapping[int, Home]) -> list[Location]:
    """Every host as sender, receiver and both, and every pair of hosts next to each other."""
    pairs = {(home[a], home[b]) for a, b in edges if home[a] != home[b]}
    hosts = sorted({one for pair in pairs for one in pair}, key=str)
    found = [
        Location(kind, (host,)) for host, kind in itertools.product(hosts, ("both", "out", "in"))
    ]
    return [*found, *(Location("edge", pair) for pair in sorted(pairs, key=str))]
