"""What may be slow in the ring collectives of a run, and how each of it would let ranks leave them.

A place is slow when what goes over it takes longer, so that what follows waits; a host is distant
when what goes over its link arrives later and nothing waits behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.fit import Calls, calls_of
from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.informative_calls import informative_kinds, kind_of
from advisor.metrics.rings.locations import Home, Location, locations_of
from advisor.metrics.rings.schedule import FEW_SHARES, GLOO_RINGS, distant, edges, paths
from advisor.metrics.timeline.statistics import Floats

FEWEST_CALLS = 8
"""Of a kind, to tell anything by."""
_MOST_CALLS = 40
"""Of a kind: medians of more are no surer than clocks are."""
_MOST_RANKS = 16
"""Of a group: a hypothesis is tried for every rank, and costs as the square of their number."""
_MOST_KINDS = 4
"""The heaviest: they hold most of the time."""


class Hypotheses(NamedTuple):
    """The places of each (several make the same ring slow), its share, its paths."""

    places: list[tuple[Location, ...]]
    shares: list[float]
    paths: list[Floats]  # per kind of call: hypothesis, place in the ring, place in the ring


def kinds_of(
    columns: Sequence[Mapping[int, Call]],
    host: Mapping[int, Hashable],
    correction: Mapping[int, int],
) -> list[Calls]:
    """The ring collectives between hosts that take most of the time, by operation, group, size."""
    found: dict[tuple[str, str, int, tuple[int, ...]], list[Mapping[int, Call]]] = defaultdict(list)
    telling = informative_kinds(columns)
    for column in columns:
        call = next(iter(column.values()))
        op, ranks = call.wire_op or call.op, tuple(sorted(column))
        if (
            op in GLOO_RINGS
            and kind_of(call) in telling
            and len(ranks) == (call.group_size or len(ranks)) <= _MOST_RANKS
            and len({host[rank] for rank in ranks}) > 1
        ):
            found[op, call.group or "", call.bytes or 0, ranks].append(column)
    taken = {
        key: sum(max(call.end - call.start for call in column.values()) for column in own)
        for key, own in found.items()
        if len(own) >= FEWEST_CALLS
    }
    heaviest = sorted(taken, key=lambda key: (-taken[key], key))[:_MOST_KINDS]
    return [
        calls_of(
            found[key][:: max(1, -(-len(found[key]) // _MOST_CALLS))],
            key[0],
            key[3],
            tuple(host[rank] for rank in key[3]),
            [correction[rank] for rank in key[3]],
        )
        for key in heaviest
    ]


def hypotheses_of(kinds: Sequence[Calls], home: Mapping[int, Home]) -> Hypotheses:
    """No slow place first, then every place that is not all of the connections between hosts."""
    rings = [edges(kind.op, kind.ranks) for kind in kinds]
    found: dict[tuple[frozenset[int], ...], list[Location]] = {}
    inside = [frozenset(n for n, (a, b) in enumerate(r) if home[a] == home[b]) for r in rings]
    for place in locations_of([edge for ring in rings for edge in ring], home):
        slow = tuple(
            frozenset(n for n, edge in enumerate(ring) if place.slow(edge, home)) for ring in rings
        )
        told = tuple(
            own if len(own) + len(near) < len(ring) else frozenset[int]()
            for own, near, ring in zip(slow, inside, rings, strict=True)
        )
        if any(told):
            found.setdefault(told, []).append(place)
    places: list[tuple[Location, ...]] = [()]
    shares = [0.0]
    parts = [
        [paths(k.op, len(k.ranks), frozenset(), n)] for k, n in zip(kinds, inside, strict=True)
    ]
    for told, same in found.items():
        places += [tuple(same)] * len(FEW_SHARES)
        shares += [float(share) for share in FEW_SHARES]
        for number, (kind, own) in enumerate(zip(kinds, told, strict=True)):
            table = paths(kind.op, len(kind.ranks), own, inside[number])
            parts[number].append(np.broadcast_to(table, (len(FEW_SHARES), *table.shape[1:])))
        whole = tuple(place for place in same if place.kind == "both")
        if not whole:
            continue
        both = [
            distant(kind.op, len(kind.ranks), own, near)
            for kind, own, near in zip(kinds, told, inside, strict=True)
        ]
        places += [whole] * len(FEW_SHARES)
        shares += [float(share) for share in np.max([excess for _, excess in both], axis=0)]
        for part, (table, _) in zip(parts, both, strict=True):
            part.append(table)
    return Hypotheses(places, shares, [np.concatenate(part) for part in parts])
