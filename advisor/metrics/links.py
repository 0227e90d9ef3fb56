"""Which link, rank or host makes transfers slow (METRICS section 6), and what that costs.

Two kinds of evidence are put together: the stagger with which ranks leave a ring (rings.py), which
names an edge, and groups or send/recv pairs that take longer than their peers for the same work,
which name a set of ranks. The rank that explains most of it, and is in nothing that is fast, is
named; ranks that explain it equally well stay candidates.
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
from advisor.metrics.rings import SlowEdge, slow_edge
from advisor.metrics.savings import interval, saved_per_step
from advisor.metrics.steps import Steps

_SIGNIFICANCE = 0.01
# Excess under this share of a call's time is within what healthy links differ by.
_SMALLEST_SHARE = 0.04
# A slow edge speaks for its sender a little more than for its receiver: a host that is slow both
# ways shows as its sending side.
_RECEIVER = 0.9
# A rank is named alone when it explains this many times as much as the next.
_CLEAR = 1.05


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


def link_rows(data: Inputs) -> list[dict[str, Any]]:
    """Rows of ``link_excess``: the place first, then what it rests on. Empty when all is alike."""
    edges = _sure([e for e in _edges(data) if _believable(e)], data) if data.gloo else []
    peers = peer_excess(data.columns, data.groups, data.infos, data.exclusive)
    slow = [p for p in peers if p.slow]
    if not edges and not slow:
        return []
    scores = _scores(edges, peers)
    if not scores:
        return []
    ranked = sorted(scores, key=lambda rank: (-scores[rank], rank))
    best = ranked[0]
    near = [r for r in ranked[1:] if scores[r] * _CLEAR >= scores[best] > 0]
    shorter = _shorter(data, best, edges, slow)
    saved, low, high = interval(
        saved_per_step(data.calls, data.exclusive, shorter, data.occupancy, data.steps)
    )
    measured, expected = _bandwidths(data, shorter)
    p_value = min([e.p_value for e in edges] + [p.p_value for p in slow])
    shares = [e.share_low / e.share for e in edges if e.share > 0]
    common = {
        "run": data.run,
        "src": best,
        "dst": None,
        "host": data.infos[best].host if best in data.infos else None,
        "process_group": None,
        "candidates": json.dumps([best, *near]) if near else None,
        "calls": sum(e.calls for e in edges) + sum(p.calls for p in slow),
        "measured_gbps": measured,
        "expected_gbps": expected,
        "expected_from": "stagger" if edges else "peer groups",
        "excess_ns_per_step": round(saved),
        "excess_low_ns": round(low * min([*shares, 1.0])),
        "excess_high_ns": round(
            max(high, high * max([e.share_high / e.share for e in edges] or [1.0]))
        ),
        "p_value": p_value,
        "evidence": json.dumps(
            {
                "scores": {str(rank): round(scores[rank], 4) for rank in ranked},
                "edges": [vars(e) for e in edges],
                "groups": [vars(p) for p in peers],
            },
            default=str,
        ),
    }
    only = _only_edge(edges, best) if not slow else None
    if only is not None:
        return [
            {
                **common,
                "kind": "edge",
                "src": only.sender,
                "dst": only.receiver,
                "process_group": only.group,
                "candidates": json.dumps([only.sender, only.receiver]),
            }
        ]
    return [{**common, "kind": "candidates" if near else "rank"}]


def _only_edge(edges: Sequence[SlowEdge], best: int) -> SlowEdge | None:
    """The single edge that all evidence is: no second edge and no other operation beside it."""
    places = {(e.sender, e.receiver) for e in edges}
    if len(places) == 1 and all(e.second is None for e in edges) and edges[0].sender == best:
        return edges[0]
    return None


def _edges(data: Inputs) -> list[SlowEdge]:
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
        edge = slow_edge(name, ranks, columns, data.clocks)
        if edge is not None:
            found.append(edge)
    return found


def _sure(edges: Sequence[SlowEdge], data: Inputs) -> list[SlowEdge]:
    """Without edges that a clock may feign: one operation's ends, one of the clocks ambiguous.

    Operations that go around the ring in opposite ways cannot be feigned by one offset.
    """
    result = []
    for edge in edges:
        group = data.groups.get(edge.group) if edge.group is not None else None
        ranks = group.ranks if group is not None and group.ranks else tuple(data.infos)
        unsure = any(r in data.clocks and data.clocks[r].ambiguous for r in ranks)
        if not unsure or len({e.op for e in edges if e.group == edge.group}) > 1:
            result.append(edge)
    return result


def _believable(edge: SlowEdge) -> bool:
    return edge.p_value < _SIGNIFICANCE and edge.share_low > 0 and edge.share >= _SMALLEST_SHARE


def _scores(edges: Sequence[SlowEdge], peers: Sequence[PeerExcess]) -> dict[int, float]:
    """How much of the evidence each rank explains, as shares of the calls' time.

    An edge speaks for both of its ends; two edges in a row for the rank between them. A slow group
    speaks for its members, a fast one of the same kind against them.
    """
    scores: dict[int, float] = defaultdict(float)
    for edge in edges:
        if edge.second is None:
            scores[edge.sender] += edge.share
            scores[edge.receiver] += _RECEIVER * edge.share
        else:
            scores[edge.sender] += edge.share
            scores[edge.receiver] += 0.5 * edge.share
            scores[edge.second] += 0.5 * edge.share
    for peer in peers:
        for rank in peer.ranks:
            scores[rank] += peer.share if peer.slow else -peer.others_share
    return {rank: score for rank, score in scores.items() if score > 0}


def _shorter(
    data: Inputs, culprit: int, edges: Sequence[SlowEdge], slow: Sequence[PeerExcess]
) -> dict[tuple[int, int], float]:
    """(rank, event_id) -> time that each call of the culprit's groups would be shorter."""
    by_group = {(e.group, e.op): e.share for e in edges}
    by_place = {(p.group, p.op, p.bytes, p.ranks): p.share for p in slow}
    overall = max([*by_group.values(), *by_place.values()], default=0.0)
    result = {}
    for column in data.columns:
        call = next(iter(column.values()))
        ranks = _members(call, data.groups) or tuple(sorted(column))
        if culprit not in ranks:
            continue
        op = wire_name(call)
        share = by_place.get((call.group, op, call.bytes or 0, ranks))
        if share is None:
            share = by_group.get((call.group, op))
        if share is None:
            # Another operation over the same link, without peers or a pattern of its own.
            if (call.bytes or 0) < 65_536 or any(p.op == op for p in slow):
                continue
            share = overall
        for rank, own in column.items():
            result[rank, own.event_id] = min(share, 0.95) * data.exclusive[rank][own.event_id]
    return result


def _members(call: Call, groups: Mapping[str, Group]) -> tuple[int, ...] | None:
    if call.op in POINT_TO_POINT:
        if call.peer is None:
            return None
        return (call.rank, call.peer) if call.op == "send" else (call.peer, call.rank)
    group = groups.get(call.group) if call.group is not None else None
    return group.ranks if group is not None else None


def _bandwidths(
    data: Inputs, shorter: Mapping[tuple[int, int], float]
) -> tuple[float | None, float | None]:
    """Bus bandwidth of the calls over the slow place, as measured and without the excess."""
    measured, expected = [], []
    for column in data.columns:
        rank, call = max(column.items(), key=lambda item: data.exclusive[item[0]][item[1].event_id])
        cut = shorter.get((rank, call.event_id))
        factor = call.factor
        time = data.exclusive[rank][call.event_id]
        if cut and factor and call.bytes and time > cut:
            measured.append(call.bytes * factor / time)
            expected.append(call.bytes * factor / (time - cut))
    if not measured:
        return None, None
    return float(np.median(measured)), float(np.median(expected))
