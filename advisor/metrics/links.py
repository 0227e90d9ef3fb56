"""Which link, rank or host makes transfers slow (METRICS section 6), and what that costs.

Two kinds of evidence are put together: the stagger with which ranks leave rings (rings.py), which
points at a host's link or an edge between two hosts, and groups or send/recv pairs that take longer
than their peers for the same work (peers.py), which name a set of ranks. Where ranks of one host
explain it alike the host is named, where several hosts do they stay candidates.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.metrics.breakdown import Occupancy
from advisor.metrics.calls import Call
from advisor.metrics.clock import Clock
from advisor.metrics.fits import link_kind, wire_name
from advisor.metrics.groups import Group, RankInfo
from advisor.metrics.operations import POINT_TO_POINT
from advisor.metrics.peers import PeerExcess, peer_excess
from advisor.metrics.rings import Explained, Home, Ring, explain, observe
from advisor.metrics.savings import interval, saved_per_step
from advisor.metrics.steps import Steps

_SIGNIFICANCE = 0.01
# Excess under this share of a call's time is within what healthy links differ by.
_SMALLEST_SHARE = 0.04
# A rank is named alone when it explains this many times as much as the next.
_CLEAR = 1.05
# What groups' medians are good for, of what is left of a call without the excess.
_PEER_SPREAD = 0.2
# Messages of less than this cost latency, which a slow link need not add to.
_SMALLEST_BYTES = 65_536


@dataclass(frozen=True)
class Inputs:
    """What the attribution needs of a run."""

    run: str
    columns: Sequence[Mapping[int, Call]]
    calls: Mapping[int, Sequence[Call]]
    groups: Mapping[str, Group]
    infos: Mapping[int, RankInfo]
    clocks: Mapping[int, Clock]
    exclusive: Mapping[int, Mapping[int, float]]
    occupancy: Mapping[int, Occupancy]
    steps: Mapping[int, Steps]
    gloo: bool


@dataclass(frozen=True)
class Culprit:
    """A place: calls with a rank of ``near`` and one of ``far`` (None: any other host's) use it."""

    kind: str
    src: int
    dst: int | None
    near: frozenset[int]
    far: frozenset[int] | None
    candidates: tuple[int, ...] = ()

    def used_by(self, ranks: Sequence[int]) -> bool:
        """Whether a call of these ranks goes over the slow place."""
        others = set(ranks) - self.near if self.far is None else set(ranks) & self.far
        return bool(others) and not self.near.isdisjoint(ranks)


def link_rows(data: Inputs) -> list[dict[str, Any]]:
    """Rows of ``link_excess``: the place and what it rests on. Empty when all is alike."""
    home = homes(data)
    found = _explained(data, home)
    peers = peer_excess(data.columns, data.groups, data.infos, data.exclusive)
    slow = [peer for peer in peers if peer.slow]
    if found is None and not slow:
        return []
    culprit = _by_rank(peers, found, home) if slow else _by_ring(found, home)
    if culprit is None:
        return []
    share = _share(found, [p for p in slow if culprit.used_by(p.ranks)])
    cuts = [_shorter(data, culprit, value) for value in share]
    saved = [
        interval(saved_per_step(data.calls, data.exclusive, cut, data.occupancy, data.steps))
        for cut in cuts
    ]
    measured = _bandwidth(data, cuts[1])
    return [
        {
            "run": data.run,
            "kind": culprit.kind,
            "src": culprit.src,
            "dst": culprit.dst,
            "host": data.infos[culprit.src].host if culprit.src in data.infos else None,
            "process_group": None,
            "candidates": json.dumps(culprit.candidates) if culprit.candidates else None,
            "calls": (found.calls if found else 0) + sum(p.calls for p in slow),
            "measured_gbps": measured,
            "expected_gbps": None if measured is None else measured / (1 - share[1]),
            "expected_from": "peer groups" if slow else "stagger",
            "excess_ns_per_step": round(saved[1][0]),
            "excess_low_ns": round(saved[0][1]),
            "excess_high_ns": round(saved[2][2]),
            "p_value": min([found.p_value if found else 1.0, *(p.p_value for p in slow)]),
            "evidence": json.dumps(
                {
                    "share": [round(value, 3) for value in share],
                    "near": sorted(culprit.near),
                    "far": None if culprit.far is None else sorted(culprit.far),
                    "places": [[p.kind, *map(str, p.homes)] for p in found.places] if found else [],
                    "groups": [vars(peer) for peer in peers],
                },
                default=str,
            ),
        }
    ]


def homes(data: Inputs) -> dict[int, Home]:
    """What stands for each rank's host; a rank of unknown host stands for itself."""
    ranks = {rank for group in data.groups.values() for rank in group.ranks or ()} | set(data.infos)
    named = {rank: info.host for rank, info in data.infos.items()}
    return {rank: named.get(rank) or f"rank {rank}" for rank in sorted(ranks)}


def _explained(data: Inputs, home: Mapping[int, Home]) -> Explained | None:
    if not data.gloo:
        return None
    found = explain(_sure(_rings(data), data), home)
    if found is None or found.p_value >= _SIGNIFICANCE or found.share[1] < _SMALLEST_SHARE:
        return None
    return found


def _rings(data: Inputs) -> list[Ring]:
    by_kind: dict[tuple[str, str], list[Mapping[int, Call]]] = defaultdict(list)
    for column in data.columns:
        call = next(iter(column.values()))
        compared = call.last_rank is not None and call.op not in POINT_TO_POINT
        if compared and call.group is not None:
            by_kind[call.group, wire_name(call)].append(column)
    found = []
    for (name, _), columns in sorted(by_kind.items()):
        group = data.groups.get(name)
        ranks = group.ranks if group is not None and group.ranks else tuple(sorted(columns[0]))
        if link_kind(next(iter(columns[0].values())), data.groups, data.infos) == "intra":
            continue  # ranks of one host: memory, not a link
        ring = observe(name, ranks, columns, data.clocks)
        if ring is not None:
            found.append(ring)
    return found


def _sure(rings: Sequence[Ring], data: Inputs) -> list[Ring]:
    """Without rings that a clock may feign: one operation's ends, one of the clocks ambiguous.

    Operations that go around the ring in opposite ways cannot be feigned by one offset.
    """
    return [
        ring
        for ring in rings
        if not any(r in data.clocks and data.clocks[r].ambiguous for r in ring.ranks)
        or len({other.op for other in rings if other.group == ring.group}) > 1
    ]


def _by_ring(found: Explained | None, home: Mapping[int, Home]) -> Culprit | None:
    """The host all likely places are of; else the edge that is in all of them; else candidates."""
    if found is None:
        return None
    ranks: dict[Home, list[int]] = defaultdict(list)
    for rank, own in home.items():
        ranks[own].append(rank)
    whole = {place.homes[0] for place in found.places if place.kind != "edge"}
    edges = {place.homes for place in found.places if place.kind == "edge"}
    if len(whole) == 1 and not edges:
        return _of_host(ranks[whole.pop()])
    if len(edges) == 1:
        ((source, target),) = edges
        if whole <= {source, target}:
            near, far = ranks[source], ranks[target]
            ends = found.edges[0] if len(found.edges) == 1 else (near[0], far[0])
            return Culprit("edge", *ends, frozenset(near), frozenset(far), ends)
    hosts = sorted({one for place in found.places for one in place.homes}, key=str)
    first = ranks[found.places[0].homes[0]]
    open_ranks = tuple(sorted(rank for host in hosts for rank in ranks[host]))
    return Culprit("candidates", first[0], None, frozenset(first), None, open_ranks)


def _of_host(ranks: Sequence[int]) -> Culprit:
    kind = "rank" if len(ranks) == 1 else "host"
    return Culprit(kind, ranks[0], None, frozenset(ranks), None)


def _by_rank(
    peers: Sequence[PeerExcess], found: Explained | None, home: Mapping[int, Home]
) -> Culprit | None:
    """The rank that explains most of what groups and rings say, and is in nothing that is fast."""
    scores: dict[int, float] = defaultdict(float)
    for peer in peers:
        for rank in peer.ranks:
            scores[rank] += peer.share if peer.slow else -peer.others_share
    for place in found.places if found else ():
        for rank, own in home.items():
            if found is not None and own in place.homes:
                scores[rank] += found.share[1] / len(found.places)
    ranked = sorted((r for r in scores if scores[r] > 0), key=lambda rank: (-scores[rank], rank))
    if not ranked:
        return None
    near = [rank for rank in ranked if scores[rank] * _CLEAR >= scores[ranked[0]]]
    if len(near) == 1:
        return _of_host(near)
    if len({home.get(rank) for rank in near}) == 1:
        return _of_host(sorted(near))
    culprits = frozenset(near)
    return Culprit("candidates", near[0], None, frozenset(near[:1]), None, tuple(sorted(culprits)))


def _share(found: Explained | None, slow: Sequence[PeerExcess]) -> tuple[float, float, float]:
    """Low, middle and high of the part of a call over the place that is excess."""
    if not slow:
        assert found is not None
        return found.share
    shares = [peer.share for peer in slow]
    low, high = min(shares), max(shares)
    return (
        max(1 - (1 - low) * (1 + _PEER_SPREAD), 0.5 * low),
        float(np.median(shares)),
        1 - (1 - high) * (1 - _PEER_SPREAD),
    )


def _shorter(data: Inputs, culprit: Culprit, share: float) -> dict[tuple[int, int], float]:
    """(rank, event_id) -> time that each call over the slow place would be shorter."""
    result = {}
    for column in data.columns:
        call = next(iter(column.values()))
        ranks = _members(call, data.groups) or tuple(sorted(column))
        if culprit.used_by(ranks) and (call.bytes or 0) >= _SMALLEST_BYTES:
            for rank, own in column.items():
                result[rank, own.event_id] = share * data.exclusive[rank][own.event_id]
    return result


def _members(call: Call, groups: Mapping[str, Group]) -> tuple[int, ...] | None:
    if call.op in POINT_TO_POINT:
        if call.peer is None:
            return None
        return (call.rank, call.peer) if call.op == "send" else (call.peer, call.rank)
    group = groups.get(call.group) if call.group is not None else None
    return group.ranks if group is not None else None


def _bandwidth(data: Inputs, shorter: Mapping[tuple[int, int], float]) -> float | None:
    """Bus bandwidth of the calls over the slow place."""
    measured = []
    for column in data.columns:
        rank, call = max(column.items(), key=lambda item: data.exclusive[item[0]][item[1].event_id])
        factor, time = call.factor, data.exclusive[rank][call.event_id]
        if (rank, call.event_id) in shorter and factor and call.bytes and time > 0:
            measured.append(call.bytes * factor / time)
    return float(np.median(measured)) if measured else None
