"""Pairs of ranks compared like with like: links between hosts with those, memory with memory.

Inside one host messages go through memory or its own links, many times as fast as a network. So
pairs of one host and pairs of two are judged apart, and what all ranks of a host share is said of
the host, once.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from advisor.metrics.links.pair_timings import SLOW_FACTOR, Pair, Suspect, suspects


class Between(NamedTuple):
    """What pairs show: of hosts (numbers in ``names``), of ranks between hosts, inside hosts."""

    names: tuple[Hashable, ...]
    of_hosts: tuple[Suspect, ...]
    of_ranks: tuple[Suspect, ...]
    inside: tuple[Suspect, ...]
    directions: int


def compare(pairs: Sequence[Pair], hosts: Mapping[int, Hashable]) -> Between:
    """Suspects by kind of link. A rank is left out where its host explains it."""
    inner = [pair for pair in pairs if hosts[pair.src] == hosts[pair.dst]]
    across = [pair for pair in pairs if hosts[pair.src] != hosts[pair.dst]]
    # A host's network gives what the fastest of its ranks gets: others' ports may be slow.
    names, merged = by_host(across, hosts, of_ranks=min)
    several = len(across) > len(merged)
    of_hosts = suspects(merged) or _one_way(merged)
    place = {name: number for number, name in enumerate(names)}
    left = [
        pair for pair in across
        if not any(_explains(one, place[hosts[pair.src]], place[hosts[pair.dst]])
                   for one in of_hosts)
    ]  # fmt: skip
    of_ranks = suspects(left) if several else []
    return Between(names, tuple(of_hosts), tuple(of_ranks), tuple(suspects(inner)), len(merged))


def by_host(
    pairs: Sequence[Pair],
    hosts: Mapping[int, Hashable],
    of_ranks: Callable[[list[float]], float] = median,
) -> tuple[tuple[Hashable, ...], list[Pair]]:
    """The hosts' names, and one pair per direction between two of them: its ranks' median.

    Pairs inside one host are left out; ``src`` and ``dst`` are places in the names.
    """
    names = tuple(sorted(set(hosts.values()), key=str))
    place = {name: number for number, name in enumerate(names)}
    between: dict[tuple[int, int], list[Pair]] = defaultdict(list)
    for pair in pairs:
        ends = place[hosts[pair.src]], place[hosts[pair.dst]]
        if ends[0] != ends[1]:
            between[ends].append(pair)
    merged = [
        Pair(
            *ends,
            of_ranks([pair.ns_per_byte for pair in found]),
            median(pair.latency_ns for pair in found),
        )
        for ends, found in sorted(between.items())
    ]
    return names, merged


def _explains(one: Suspect, source: int, target: int) -> bool:
    if one.kind == "sender":
        return one.ranks == (source,)
    if one.kind == "receiver":
        return one.ranks == (target,)
    return one.ranks == (source, target)


def _one_way(merged: Sequence[Pair]) -> list[Suspect]:
    """Of two hosts only: a direction that is slower than the other, whose end stays open."""
    if len(merged) != 2:
        return []
    fast, slow = sorted(merged, key=lambda pair: pair.ns_per_byte)
    if slow.ns_per_byte <= SLOW_FACTOR * fast.ns_per_byte:
        return []
    ends = (slow.src, slow.dst)
    return [Suspect("candidates", ends, 1 / slow.ns_per_byte, 1 / fast.ns_per_byte, 1)]
