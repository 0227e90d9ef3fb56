"""Which link, rank or host makes transfers slow (METRICS section 6), and what that costs.

Two kinds of evidence are put together: the stagger with which ranks leave rings, which
points at a host's link or an edge between two hosts, and groups or send/recv pairs that take longer
than their peers for the same work (peers.py), which name a set of ranks, or the edges that NCCL's
rings have between them where its log was given. Where ranks of one host explain it alike the host
is named, where several hosts do they stay candidates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.metrics.clocks.fit import ENDS
from advisor.metrics.clocks.offsets import with_one_freed
from advisor.metrics.clocks.posterior import weigh
from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.groups import link_kind
from advisor.metrics.links.cost import Culprit, Inputs, Seen, Share, link_row, of_host
from advisor.metrics.links.evidence import Ring, observe
from advisor.metrics.links.pair_timings import SPREAD
from advisor.metrics.links.peers import SIGNIFICANCE, PeerExcess, pair_direction, peer_excess
from advisor.metrics.links.probes import Probe, probe_rows
from advisor.metrics.links.reconcile import beside_starts, named, of_one_host
from advisor.metrics.links.staggers import Explained, explain
from advisor.metrics.rings.locations import Home, direction_of, homes_of

_BEYOND_CHANCE = 1e-6
"""Of two kinds of calls that agree: what remains is no matter of how many were compared."""


def link_rows(data: Inputs, probe: Probe | None = None) -> list[dict[str, Any]]:
    """Rows of ``link_excess``: locations and what they rest on. Empty when all is alike.

    ``probe`` is a measurement of the same links: it settles location and share, or says that the
    links are alike by now.
    """
    home = homes(data)
    found = _by_gloo(data, home) if data.gloo else _by_nccl(data, home)
    probed = probe.places(home) if probe is not None else None
    if not found:
        return probe_rows(data, probed or (), alone=True)
    seen, *beside = found
    same = next((one for one in probed or () if one.is_at(seen.culprit)), None)
    denied = probed is not None and probe is not None and probe.covers(seen.culprit, home)
    row = link_row(
        data,
        same.culprit if same else seen.culprit,
        same.share if same else seen.share,
        calls=seen.calls,
        expected_from="probe" if same else seen.expected_from,
        p_value=seen.p_value,
        evidence={
            "probe": "confirms" if same else "denies" if denied else None,
            **(same.numbers() if same else {}),
            **seen.evidence,
        },
    )
    whole = [
        link_row(data, one.culprit, one.share, calls=one.calls,
                 expected_from=one.expected_from, evidence=one.evidence)
        for one in beside
    ]  # fmt: skip
    others = [one for one in probed or () if one is not same]
    return [row, *whole, *probe_rows(data, others, alone=False)]


def _by_nccl(data: Inputs, home: Mapping[int, Home]) -> list[Seen]:
    from advisor.metrics.links.by_posterior import by_posterior  # with NCCL's cost model: large

    return by_posterior(data, home)


def _by_gloo(data: Inputs, home: Mapping[int, Home]) -> list[Seen]:
    found = _explained(data, home)
    peers = peer_excess(data.columns, data.groups, data.infos, data.exclusive)
    slow = [peer for peer in peers if peer.slow]
    culprit = _by_rank(peers, found, home) if slow else _by_ring(found, home)
    if culprit is None:
        return []
    seen = Seen(
        culprit,
        _share(found, [p for p in slow if culprit.used_by(p.ranks)]),
        (found.calls if found else 0) + sum(p.calls for p in slow),
        "peer groups" if slow else "stagger",
        min([found.p_value if found else 1.0, *(p.p_value for p in slow)]),
        {
            "places": [[p.kind, *map(str, p.homes)] for p in found.places] if found else [],
            "groups": [peer._asdict() for peer in peers],
        },
    )
    return [seen]


def homes(data: Inputs) -> dict[int, Home]:
    """What stands for each rank's host (rings/locations.py), of ranks that were not read too."""
    ranks = {rank for group in data.groups.values() for rank in group.ranks or ()} | set(data.infos)
    named = {rank: info.host for rank, info in data.infos.items() if info.host is not None}
    return {**homes_of(ranks, named)}


def _explained(data: Inputs, home: Mapping[int, Home]) -> Explained | None:
    if not data.gloo:
        return None
    rings = _rings(data, home)
    told = data.weighed is None or data.weighed.ends_tell
    found = explain(rings, home) if told else None
    if found is not None and data.weighed is not None:
        found = beside_starts(found, rings, data.weighed, data, home)
    found = found or _with_one_clock_freed(data, home) or _with_any_clocks(data, home)
    if found is None or found.p_value >= SIGNIFICANCE or found.share[1] < ENDS:
        return None
    return found


def _with_one_clock_freed(data: Inputs, home: Mapping[int, Home]) -> Explained | None:
    """What the rings say if one host's clock is off, though by so little that the clocks pass for
    right: where some place is slow whatever the clocks are."""
    seen = data.weighed
    if seen is None or not seen.slow or seen.off is not None:
        return None
    freed = with_one_freed(data.clocks, data.infos, seen)
    if freed is None or freed.weighed is None:
        return None
    rings = _rings(replace(data, clocks=freed.by_rank), home)
    found = explain(rings, home)
    return found and beside_starts(found, rings, freed.weighed, data, home)


def _with_any_clocks(data: Inputs, home: Mapping[int, Home]) -> Explained | None:
    """What explains the calls whatever the hosts' clocks are, where these may be wrong.

    Several places stay candidates only where they leave a host out, rings of several kinds agree
    and chance is out of the question: calls of one kind leave such candidates for a late rank whose
    clock is off, too.
    """
    moved = any(clock.ambiguous or clock.offset_ns for clock in data.clocks.values())
    if not moved and (data.weighed is None or data.weighed.ends_tell):
        return None
    given = {rank: data.clocks[rank].offset_ns if rank in data.clocks else 0 for rank in home}
    seen = data.weighed or weigh(data.columns, home, given)
    if seen is None or not seen.slow:
        return None
    places = named(seen.places, data, home)
    found = Explained(places, (), seen.shares, seen.p_value, seen.calls)
    found = found._replace(
        places=of_one_host(found, _rings(data, home), seen, data, home) or places
    )
    culprit = _by_ring(found, home)
    if culprit is not None and culprit.kind != "candidates":
        return found
    all_open = {one for place in places for one in place.homes} >= set(home.values())
    sure = len(seen.kinds) > 1 and seen.p_value < _BEYOND_CHANCE
    return found if sure and not all_open else None


def _rings(data: Inputs, home: Mapping[int, Home]) -> list[Ring]:
    by_kind: dict[tuple[str, str], list[Mapping[int, Call]]] = defaultdict(list)
    for column in data.columns:
        call = next(iter(column.values()))
        compared = call.last_rank is not None and not call.is_message
        if compared and call.group is not None:
            by_kind[call.group, wire_name(call)].append(column)
    found = []
    for (name, _), columns in sorted(by_kind.items()):
        group = data.groups.get(name)
        ranks = group.ranks if group is not None and group.ranks else tuple(sorted(columns[0]))
        if link_kind(next(iter(columns[0].values())), data.groups, data.infos) == "intra":
            continue  # ranks of one host: memory, not a link
        ring = observe(name, ranks, columns, data.clocks, home)
        if ring is not None:
            found.append(ring)
    return found


def _by_ring(found: Explained | None, home: Mapping[int, Home]) -> Culprit | None:
    """The host or the edge that all likely places are of; else candidates."""
    if found is None:
        return None
    ranks: dict[Home, list[int]] = defaultdict(list)
    for rank, own in home.items():
        ranks[own].append(rank)
    whole = {place.homes[0] for place in found.places if place.kind != "edge"}
    edges = {place.homes for place in found.places if place.kind == "edge"}
    if len(whole) == 1 and not edges:
        return of_host(ranks[whole.pop()], direction_of(found.places))
    if len(edges) == 1:
        ((source, target),) = edges
        if whole <= {source, target}:
            near, far = ranks[source], ranks[target]
            between = (e for e in found.edges if (home[e[0]], home[e[1]]) == (source, target))
            ends = next(between, (near[0], far[0]))
            return Culprit("edge", *ends, frozenset(near), frozenset(far), ends)
    common = set.intersection(*({*place.homes} for place in found.places))
    if len(edges) > 1 and len(common) == 1:
        return of_host(ranks[common.pop()])
    hosts = sorted({one for place in found.places for one in place.homes}, key=str)
    first = ranks[found.places[0].homes[0]]
    open_ranks = tuple(sorted(rank for host in hosts for rank in ranks[host]))
    return Culprit("candidates", first[0], None, frozenset(first), None, open_ranks)


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
    near = [rank for rank in ranked if scores[rank] * (1 + ENDS) >= scores[ranked[0]]]
    if len({home.get(rank) for rank in near}) == 1:
        rings = found.places if found is not None else ()
        own = all(place.homes == (home.get(near[0]),) for place in rings)
        direction = direction_of(rings) if rings and own else pair_direction(peers, near)
        return of_host(sorted(near), direction)
    culprits = frozenset(near)
    return Culprit("candidates", near[0], None, frozenset(near[:1]), None, tuple(sorted(culprits)))


def _share(found: Explained | None, slow: Sequence[PeerExcess]) -> Share:
    """Low, middle and high of the part of a call over the place that is excess."""
    if not slow:
        assert found is not None
        return found.share
    shares = [peer.share for peer in slow]
    low, high = min(shares), max(shares)
    return (
        max(1 - (1 - low) * (1 + SPREAD), 0.5 * low),
        float(np.median(shares)),
        1 - (1 - high) * (1 - SPREAD),
    )
