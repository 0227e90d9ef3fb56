"""What may be slow: a NIC one way or both, a rail, a host's network, a switch, NVLink.

Between hosts data leaves by the NIC beside one GPU and comes in by the NIC beside another of the
same number: a rail. A location is a set of NICs that send or receive slowly, or of GPUs or pairs
of them whose NVLink is slow. Where several GPUs share a NIC, those of adjacent numbers do.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.config.hardware import gpus_per_nic
from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.rings.locations import Home

Nic = tuple[Home, int]
"""The host, and the number of the GPU beside it."""
MOST_HOSTS = 16
"""Of more, only whole powers of two are weighed as one switch's, and no clock is tried alone."""
MOST_RANKS = 512
"""Of a ring: to simulate one costs as the square of their number, as do pairs joined by NVLink."""


@dataclass(frozen=True)
class Members:
    """The ranks of a call: of a collective in its group's order, of a message the sender first.

    ``edges`` (sender, receiver) of its rings where NCCL's log has them.
    """

    ranks: tuple[int, ...]
    message: bool = False
    edges: frozenset[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Location:
    """``kind``: 'rank', 'edge', 'rail', 'host', 'switch' (several hosts), 'nvlink', 'pair', 'all'.
    ``inside``: of links within hosts. ``ranks`` are those beside it; ``direction``: 'both', 'send'
    or 'receive'. ``latency``: what crosses it arrives later, at the same rate."""

    kind: str
    inside: bool
    ranks: tuple[int, ...]
    direction: str = "both"
    latency: bool = False

    def slows(self, call: Members, home: Mapping[int, Home]) -> bool:
        """Whether calls among these ranks go over it."""
        if (len({home[rank] for rank in call.ranks}) > 1) == self.inside:
            return False
        if call.message and not self.inside:
            return self._is_on(call.ranks[0], call.ranks[1])
        if call.edges is not None and not self.inside:
            return any(self._is_on(a, b) for a, b in call.edges if home[a] != home[b])
        touched = len({*self.ranks} & {*call.ranks})
        return touched > 1 if self.kind in ("pair", "edge") else touched > 0

    def _is_on(self, source: int, target: int) -> bool:
        """Whether data from one rank to another on another host goes over it."""
        if self.kind == "edge":
            return (source, target) == self.ranks
        sends, receives = source in self.ranks, target in self.ranks
        return (sends and self.direction != "receive") or (receives and self.direction != "send")

    def staggers(self, call: Members, home: Mapping[int, Home]) -> bool:
        """Whether rings among these ranks have an edge over it, if only a fast one."""
        if not self.inside:
            return self.slows(call, home)
        hosts = [home[rank] for rank in call.ranks if rank in self.ranks]
        if self.kind == "pair":
            return len(hosts) > 1
        return any(sum(home[rank] == host for rank in call.ranks) > 1 for host in hosts)

    def slows_edge(self, source: Nic, target: Nic, nics: Sequence[Nic]) -> bool:
        """Whether data between these takes longer; ``nics`` are those of ``ranks``, GPUs if the
        edge is inside a host."""
        if (source[0] == target[0]) != self.inside:
            return False
        if self.kind == "edge":
            return (source, target) == tuple(nics)
        if self.kind == "pair":
            return source in nics and target in nics
        return (source in nics and self.direction != "receive") or (
            target in nics and self.direction != "send"
        )


def slots_of(home: Mapping[int, Home], infos: Mapping[int, RankInfo]) -> dict[int, int]:
    """Each rank's number on its host: its device's where that tells ranks apart, else in order."""
    hosts: dict[Home, list[int]] = defaultdict(list)
    for rank in sorted(home):
        hosts[home[rank]].append(rank)
    result = {}
    for ranks in hosts.values():
        devices = [infos[rank].device if rank in infos else None for rank in ranks]
        told = None not in devices and len(set(devices)) == len(devices)
        for place, (rank, device) in enumerate(zip(ranks, devices, strict=True)):
            result[rank] = device if told and device is not None else place
    return result


def locations(
    calls: Iterable[Members], home: Mapping[int, Home], slot: Mapping[int, int], *, gloo: bool
) -> list[Location]:
    """Everything that may slow some of these calls."""
    between: set[int] = set()
    inside: set[int] = set()
    within: set[Home] = set()  # hosts with calls of their own
    told: set[tuple[int, int]] = set()
    for call in calls:
        told |= {(call.ranks[0], call.ranks[1])} if call.message else (call.edges or set())
        hosts = Counter(home[rank] for rank in call.ranks)
        if len(hosts) > 1:
            between.update(call.ranks)
        if not call.message or len(hosts) == 1:
            inside.update(rank for rank in call.ranks if hosts[home[rank]] > 1)
        within |= {home[rank] for rank in call.ranks} if len(hosts) == 1 else set()
    found = _networks(sorted(between), home, slot, () if gloo else gpus_per_nic())
    if not gloo:
        found += _nvlinks(sorted(inside), home, within)
    return [*dict.fromkeys(found), *_edges(told, home)]


def _edges(told: Iterable[tuple[int, int]], home: Mapping[int, Home]) -> list[Location]:
    """Single ways between two ranks, which a switch may send over a bad cable."""
    return [
        Location("edge", False, edge) for edge in sorted(told) if home[edge[0]] != home[edge[1]]
    ]


def _networks(
    ranks: Sequence[int], home: Mapping[int, Home], slot: Mapping[int, int], widths: Sequence[int]
) -> list[Location]:
    if not ranks:
        return []
    by_host: dict[Home, list[int]] = defaultdict(list)
    rails: dict[tuple[int, int], list[int]] = defaultdict(list)
    shared: dict[tuple[Home, int, int], list[int]] = defaultdict(list)
    for rank in ranks:
        by_host[home[rank]].append(rank)
        for width in widths:
            rails[width, slot[rank] // width].append(rank)
            shared[home[rank], width, slot[rank] // width].append(rank)
    found = []
    for one in shared.values():
        found += [Location("rank", False, tuple(one), d) for d in ("both", "send", "receive")]
    for own in by_host.values():
        found += [Location("host", False, tuple(own), d) for d in ("both", "send", "receive")]
    whole = {tuple(own) for own in by_host.values()}
    found = [one for one in found if one.kind == "host" or one.ranks not in whole] + [
        Location("rank", False, one, d)
        for one in sorted(whole)
        if len(one) == 1
        for d in ("both", "send", "receive")
    ]
    found = [one for one in found if not (one.kind == "host" and len(one.ranks) == 1)]
    if not widths:
        # Of hosts alone: there is nothing that the network of all is slower than.
        return [*found, *(replace(one, latency=True) for one in found if one.direction == "both")]
    if len(by_host) > 1:
        found += [
            Location("rail", False, tuple(own))
            for own in rails.values()
            if 1 < len(own) < len(ranks) and len({home[rank] for rank in own}) > 1
        ]
    hosts = list(by_host.values())
    found += [
        Location("switch", False, tuple(rank for own in run for rank in own))
        for size in range(2, len(hosts) // 2 + 1)
        for at in (range(len(hosts) - size + 1) if len(hosts) <= MOST_HOSTS
                   else range(0, len(hosts) - size + 1, size))
        if size & (size - 1) == 0 or len(hosts) <= MOST_HOSTS
        for run in (hosts[at : at + size],)
    ]  # fmt: skip
    distant = [
        Location("host" if len(own) > 1 else "rank", False, tuple(own), latency=True)
        for own in hosts
    ]
    everything = Location("all", False, tuple(ranks))
    return [*found, everything, *distant, replace(everything, latency=True)]


def _nvlinks(ranks: Sequence[int], home: Mapping[int, Home], within: set[Home]) -> list[Location]:
    if not ranks:
        return []
    by_host: dict[Home, list[int]] = defaultdict(list)
    for rank in ranks:
        by_host[home[rank]].append(rank)
    found = []
    for own in by_host.values():
        if len(own) > 2:
            found += [Location("nvlink", True, (rank,)) for rank in own]
            if len(ranks) <= MOST_RANKS:
                found += [
                    Location("pair", True, (a, b))
                    for place, a in enumerate(own)
                    for b in own[place + 1 :]
                ]
        if home[own[0]] in within and (len(by_host) > 1 or len(own) == 2):
            found.append(Location("host", True, tuple(own)))
    return [*found, Location("all", True, tuple(ranks))] if within else found
