"""The passive sign of a slow link: ranks leave a ring collective in a pattern that points at it.

The pattern that each possible place would give comes from schedule.py: a host that sends slowly,
receives slowly, or both, and a single edge between two hosts. Ranks of one host reach each other
through memory, so that only edges between hosts can be slow. All rings of a run (groups, and
operations that go around the other way) must agree on the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.posterior import NEAR_LOSS
from advisor.metrics.links.evidence import Ring, centred, freed
from advisor.metrics.rings.locations import Home, Location, locations_of
from advisor.metrics.rings.schedule import SHARES, edges, ends
from advisor.metrics.timeline.statistics import Floats, binomial_tail

# What is not stagger makes a call longer: its ends are as far apart as the model has them, or less.
_SCALES: Floats = np.array([0.8, 0.9, 1.0])
# Of what speaks against no place at all (chi squared), a place must explain this share and so much.
_MOST = 0.3
_EXPLAINS = 6.0
# More left unexplained per rank than this, and one host's clock may be off.
_MISFIT = 2.0
# Hosts are normally synchronised: that one's clock is off, by milliseconds, counts against it.
_CLOCK_OFF = 8.0


class Explained(NamedTuple):
    """What the rings say: ``places`` fit alike, the best first.

    ``edges`` are the rings' slow ones at the best place.
    ``share`` is (5 %, middle, 95 %) of the time of a call over the slow link that is excess.
    """

    places: tuple[Location, ...]
    edges: tuple[tuple[int, int], ...]
    share: tuple[float, float, float]
    p_value: float
    calls: int


def explain(rings: Sequence[Ring], home: Mapping[int, Home]) -> Explained | None:
    """The places that explain the ends of all rings best; None when no place explains them.

    Messages of one size cannot tell stagger from a clock that is a little off. So what speaks
    against it is weighed: one host's clock off without any slow place, and with each of them. Where
    even the best leaves much unexplained, nothing is named.
    """
    if not rings:
        return None
    views = [(list(rings), 0.0)]
    if not all(ring.sure for ring in rings):
        own = sorted({home[rank] for ring in rings for rank in ring.known}, key=str)
        views += [(one, _CLOCK_OFF) for host in own if (one := _freed(rings, host, home))]
    nothing = min(
        min(sum(_flat(ring) for ring in view), float(_alike(view, home).min())) + cost
        for view, cost in views
    )
    fits = {
        (number, place): losses + cost
        for number, (view, cost) in enumerate(views)
        for place in _places(view, home)
        if (losses := _losses(view, place, home)) is not None
    }
    if not fits:
        return None
    total = {key: _marginal(losses) for key, losses in fits.items()}
    near = sorted(total, key=lambda key: total[key])
    number, best = near[0]
    chosen, _ = views[number]
    losses = fits[near[0]]
    least = float(losses.min())
    if nothing - least < max(_EXPLAINS, _MOST * nothing):
        return None
    if least > _MISFIT * sum(len(ring.known) for ring in chosen):
        return None
    touched = [(ring, slow) for ring in chosen if (slow := _receivers(ring, best, home))]
    level = int(np.argmin(losses.min(axis=0)))
    likely = [
        place
        for view, place in near
        if view == number and total[view, place] <= total[near[0]] + NEAR_LOSS
    ]
    return Explained(
        places=tuple(likely),
        edges=tuple(
            sorted({e for ring in rings for e in edges(ring.op, ring.ranks) if best.slow(e, home)})
        ),
        share=_share(losses),
        p_value=min(1.0, len(touched) * min(_chance(*item, level, home) for item in touched)),
        calls=sum(len(ring.lags) for ring, _ in touched),
    )


def all_of(
    places: Sequence[Location], host: Home, rings: Sequence[Ring], home: Mapping[int, Home]
) -> bool:
    """Whether each of the places is of ``host``, or makes the same edges slow as one that is."""

    def slow(place: Location) -> tuple[frozenset[int], ...]:
        return tuple(_receivers(ring, place, home) for ring in rings)

    own = {slow(place) for place in places if host in place.homes}
    return all(host in place.homes or slow(place) in own for place in places)


def _freed(rings: Sequence[Ring], host: Home, home: Mapping[int, Home]) -> list[Ring]:
    """The rings if this host's clock is off; empty where one would have too little left."""
    found = [freed(ring, host, home) for ring in rings]
    return [ring for ring in found if ring is not None] if None not in found else []


def _places(rings: Sequence[Ring], home: Mapping[int, Home]) -> list[Location]:
    """Every place that an edge of one of the rings is of."""
    return locations_of((e for ring in rings for e in edges(ring.op, ring.ranks)), home)


def _receivers(ring: Ring, place: Location, home: Mapping[int, Home]) -> frozenset[int]:
    """Places in the ring whose incoming edge is slow."""
    slow = (place.slow(edge, home) for edge in edges(ring.op, ring.ranks))
    return frozenset(number for number, is_slow in enumerate(slow) if is_slow)


def _patterns(ring: Ring, receivers: frozenset[int], inside: frozenset[int]) -> Floats:
    """Row per share: the ends of the known ranks, centred."""
    columns = [ring.ranks.index(rank) for rank in ring.known]
    pattern = ends(ring.op, len(ring.ranks), receivers, inside, ring.segments)[:, columns]
    return centred(pattern, ring.errors, ring.alike)


def _inside(ring: Ring, home: Mapping[int, Home]) -> frozenset[int]:
    """Places in the ring whose sender is on the same host."""
    own = (home[source] == home[target] for source, target in edges(ring.op, ring.ranks))
    return frozenset(number for number, is_own in enumerate(own) if is_own)


def _flat(ring: Ring) -> float:
    """Chi squared if all ranks leave together."""
    return float(_loss(np.median(ring.lags, axis=0), ring.errors))


def _loss(left: Floats, errors: Floats) -> Floats:
    result: Floats = ((left / errors) ** 2).sum(axis=-1)
    return result


def _losses(rings: Sequence[Ring], place: Location, home: Mapping[int, Home]) -> Floats | None:
    """Chi squared of all rings, row per scale, column per share; None where the place is in none.

    A place that is every connection between hosts is none: there is nothing that it is slower than.
    """
    result = np.zeros((len(_SCALES), len(SHARES)))
    shows = False
    for ring in rings:
        receivers, inside = _receivers(ring, place, home), _inside(ring, home)
        if receivers and len(receivers) + len(inside) < len(ring.ranks):
            shows = True
            result += _chi_squared(ring, receivers, inside)
        else:
            result += _flat(ring)
    return result if shows else None


def _alike(rings: Sequence[Ring], home: Mapping[int, Home]) -> Floats:
    """The same if all connections between hosts are alike, and slower than those inside."""
    result = np.zeros((len(_SCALES), len(SHARES)))
    for ring in rings:
        inside = _inside(ring, home)
        between = frozenset(range(len(ring.ranks))) - inside
        result += _chi_squared(ring, between, inside)
    return result


def _chi_squared(ring: Ring, receivers: frozenset[int], inside: frozenset[int]) -> Floats:
    pattern = _SCALES[:, None, None] * _patterns(ring, receivers, inside)[None, :, :]
    return _loss(np.median(ring.lags, axis=0) - pattern, ring.errors)


def _marginal(losses: Floats) -> float:
    """Chi squared with the share left open: every slowdown is as likely as its double."""
    least = float(losses.min())
    return least - 2 * float(np.log(np.exp(-(losses - least) / 2).mean()))


def _share(losses: Floats) -> tuple[float, float, float]:
    """5 %, mean and 95 % of the share of a call's time that is excess."""
    weights = np.exp(-(losses - losses.min()) / 2).sum(axis=0)
    reached = np.cumsum(weights) / weights.sum()
    low, middle, high = np.interp([0.05, 0.5, 0.95], reached, SHARES)
    return float(low), float(middle), float(high)


def _chance(ring: Ring, receivers: frozenset[int], level: int, home: Mapping[int, Home]) -> float:
    """That the calls would point at one and the same turn of the pattern by chance."""
    count = len(ring.ranks)
    inside = _inside(ring, home)
    turned = np.stack(
        [
            _patterns(ring, _turned(receivers, turn, count), _turned(inside, turn, count))[level]
            for turn in range(count)
        ]
    )
    norms = np.linalg.norm(turned, axis=1, keepdims=True)
    if not norms.all():
        return 1.0
    hits = int(((ring.lags @ (turned / norms).T).argmax(axis=1) == 0).sum())
    successes = round(hits * ring.independent / len(ring.lags))
    return min(1.0, count * binomial_tail(successes, round(ring.independent), 1 / count))


def _turned(places: frozenset[int], turn: int, count: int) -> frozenset[int]:
    return frozenset((place + turn) % count for place in places)
