"""A slow place and the clocks of all hosts, told together from starts and ends of ring collectives.

Hosts of a cluster share no clock. But a ring is linear in max and plus (ring_model.paths): what a
rank's own call takes on its own clock depends on who came last and when, rings of two operations
go around in opposite ways, and one offset per host must fit all of it. So for every place that may
be slow, and for none, the offsets and times that explain the calls best are fitted; the losses tell
the places apart as far as they can be told without a common clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.metrics.calls import Call
from advisor.metrics.clock_bounds import Bounds, bounds_of
from advisor.metrics.clock_fit import Calls, Fit, best_offsets, calls_of, losses_at
from advisor.metrics.link_calls import kind_of, telling_kinds
from advisor.metrics.places import Home, Place, places_of
from advisor.metrics.ring_model import FEW_SHARES, GLOO_RINGS, edges, paths
from advisor.metrics.robust import Floats, binomial_tail

_FEWEST_CALLS = 8
_MOST_CALLS = 40
_MOST_RANKS = 16
_MOST_KINDS = 4
# Numbers in the largest array of a fit; larger groups are told from fewer of their calls.
_MOST_NUMBERS = 1_000_000
# The model is no better than this: places whose loss is nearer to the best explain it as well.
_NEAR, _NEAR_LOSS = 1.35, 4.0
# Hosts are normally synchronised: clocks that come this near (per kind of call) are right.
_RIGHT, _RIGHT_LOSS = 1.3, 60.0
# This near the best fit, only a coincidence would have them wrong by much.
_SURE, _SURE_LOSS = 1.5, 3.0
# A slow place must explain this much more than none does: healthy rings leave less.
_EXPLAINS, _EXPLAINS_LOSS = 1.3, 25.0
# More left unexplained per rank and kind of call, and the calls are no such rings.
_MISFIT = 40.0


@dataclass(frozen=True)
class Weighed:
    """What the calls say when no clock is believed.

    ``slow``: a slow place explains the calls and none does not. ``places`` are those that explain
    them alike, the best first; ``decided``: all of them are of one host. ``offsets_ns`` is what
    must be added per host at the best, beside the correction. ``shares`` (low, middle, high) of a
    call's time that is excess; ``p_value`` that as many of the ``calls`` would be explained better
    by chance. ``time_ns`` is what a call takes the rank that comes last.
    """

    slow: bool
    decided: bool
    places: tuple[Place, ...]
    offsets_ns: Mapping[Home, int]
    shares: tuple[float, float, float]
    p_value: float
    calls: int
    time_ns: float
    best: float
    kinds: tuple[Calls, ...]
    tables: tuple[Floats, ...]
    bounds: Bounds | None = None

    def loss(self, offsets_ns: Mapping[Home, int]) -> float:
        """What is left unexplained, with any place slow or none, if these are the offsets: endless
        where calls would end before the last of their ranks came."""
        hosts = tuple(self.offsets_ns)
        given = [1e-6 * offsets_ns[one] for one in hosts]
        if self.bounds is not None and self.bounds.broken(np.array(given)):
            return math.inf
        return float(losses_at(self.kinds, self.tables, hosts, given).min())

    def right(self, loss: float) -> bool:
        """Whether clocks that leave so much may be right."""
        return loss <= _RIGHT * self.best + _RIGHT_LOSS * len(self.kinds)

    def surely_right(self, loss: float) -> bool:
        """Whether they explain the calls so well that others hardly do better."""
        return loss <= _SURE * self.best + _SURE_LOSS


@dataclass(frozen=True)
class _Tables:
    """Hypotheses: the places of each (several make the same ring slow), its share, its paths."""

    places: list[tuple[Place, ...]]
    shares: list[float]
    paths: list[Floats]  # per kind of call: hypothesis, place in the ring, place in the ring


def weigh(
    columns: Sequence[Mapping[int, Call]],
    host: Mapping[int, Hashable],
    correction: Mapping[int, int],
) -> Weighed | None:
    """Weigh slow places with free clocks; ``correction`` (ns per rank) is what clocks are given.

    None where there are fewer than three hosts or too few ring collectives that all ranks are in.
    """
    kinds = _kinds(columns, host, correction)
    hosts = sorted({one for kind in kinds for one in kind.hosts}, key=str)
    if len(hosts) < 3:
        return None
    tables = _tables(kinds, host)
    numbers = max(table.size for table in tables.paths)
    kinds = [kind.thinned(max(_FEWEST_CALLS, _MOST_NUMBERS // numbers)) for kind in kinds]
    bounds = bounds_of(columns, host, lambda time, rank: time + correction[rank], gloo=True)
    bounds = bounds and bounds.of(hosts)
    fit = best_offsets(kinds, tables.paths, hosts)
    best = float(fit.losses.min())  # how good the model is, whatever the clocks
    if bounds is not None:
        fit = _possible(fit, kinds, tables.paths, bounds)
    near, nothing = _near(tables, fit.losses, best)
    slow = nothing >= _EXPLAINS * best + _EXPLAINS_LOSS and best <= _MISFIT * sum(
        len(kind.ranks) for kind in kinds
    )
    slow = slow and bool(near)
    chosen, decided = _common(tables, near)
    shares = sorted(tables.shares[number] for number in near) or [0.0]
    better = [loss[chosen] < loss[0] for loss in fit.each]
    count = sum(len(one) for one in better)
    return Weighed(
        slow=slow,
        decided=slow and decided,
        places=tuple(dict.fromkeys(one for number in near for one in tables.places[number])),
        offsets_ns={
            one: round(1e6 * by) for one, by in zip(hosts, fit.offsets[chosen], strict=True)
        },
        shares=(shares[0], shares[len(shares) // 2], shares[-1]),
        p_value=binomial_tail(int(sum(one.sum() for one in better)), count, 0.5),
        calls=count,
        time_ns=1e6 * max(kind.time for kind in kinds),
        best=best,
        kinds=tuple(kinds),
        tables=tuple(tables.paths),
        bounds=bounds,
    )


def _kinds(
    columns: Sequence[Mapping[int, Call]],
    host: Mapping[int, Hashable],
    correction: Mapping[int, int],
) -> list[Calls]:
    """The ring collectives between hosts that take most of the time, by operation, group, size."""
    found: dict[tuple[str, str, int, tuple[int, ...]], list[Mapping[int, Call]]] = defaultdict(list)
    telling = telling_kinds(columns)
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
        if len(own) >= _FEWEST_CALLS
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


def _tables(kinds: Sequence[Calls], home: Mapping[int, Home]) -> _Tables:
    """No slow place first, then every place that is not all of the connections between hosts."""
    rings = [edges(kind.op, kind.ranks) for kind in kinds]
    found: dict[tuple[frozenset[int], ...], list[Place]] = {}
    inside = [frozenset(n for n, (a, b) in enumerate(r) if home[a] == home[b]) for r in rings]
    for place in places_of([edge for ring in rings for edge in ring], home):
        slow = tuple(
            frozenset(n for n, edge in enumerate(ring) if place.slow(edge, home)) for ring in rings
        )
        told = tuple(
            own if len(own) + len(near) < len(ring) else frozenset[int]()
            for own, near, ring in zip(slow, inside, rings, strict=True)
        )
        if any(told):
            found.setdefault(told, []).append(place)
    places: list[tuple[Place, ...]] = [()]
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
    return _Tables(places, shares, [np.concatenate(part) for part in parts])


def _possible(fit: Fit, kinds: Sequence[Calls], tables: Sequence[Floats], bounds: Bounds) -> Fit:
    """The same, with the hypotheses that need impossible clocks held to possible ones."""
    wrong = np.flatnonzero(bounds.broken(fit.offsets))
    if not len(wrong):
        return fit
    held = best_offsets(kinds, [table[wrong] for table in tables], bounds.clocks, bounds)
    losses, offsets = fit.losses.copy(), fit.offsets.copy()
    losses[wrong], offsets[wrong] = held.losses, held.offsets
    each = [one.copy() for one in fit.each]
    for one, by in zip(each, held.each, strict=True):
        one[wrong] = by
    return Fit(losses, offsets, each)


def _near(tables: _Tables, losses: Floats, best: float) -> tuple[list[int], float]:
    """The best hypothesis of each place that explains the calls about as well as ``best``, the best
    first; and the loss of no slow place."""
    least: dict[tuple[Place, ...], int] = {}
    for number, places in enumerate(tables.places):
        if places and (places not in least or losses[number] < losses[least[places]]):
            least[places] = number
    ranked = sorted(least.values(), key=lambda number: losses[number])
    return [n for n in ranked if losses[n] <= _NEAR * best + _NEAR_LOSS], float(losses[0])


def _common(tables: _Tables, near: Sequence[int]) -> tuple[int, bool]:
    """The hypothesis to go by, and whether all are of one host: then its link as a whole if it is
    among them, else the best."""
    touched = [{one for place in tables.places[n] for one in place.homes} for n in near]
    common = set.intersection(*touched) if touched else set()
    for number in near:
        for place in tables.places[number]:
            if place.kind == "both" and place.homes[0] in common:
                return number, True
    return (near[0] if near else 0), bool(common)
