"""One posterior over (nothing is slow | a location times how slow) from all that calls tell.

Terms of the likelihood: what like calls of different groups take (durations.py), with what the data
sheet or a benchmark of the same links says of them; and the order in which ranks leave rings
(ring_lags.py). The prior holds most jobs for healthy, and every kind of location, and every
location of a kind, for as likely as the next.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from advisor.metrics.links.by_duration import ALIKE, SLOWDOWNS, likelihoods
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import CALL, Durations, all_members, durations
from advisor.metrics.links.expected import Assumption, assumed_links, nothing_known
from advisor.metrics.links.fixed_times import Fixed, few_bytes_ns, fixed_time
from advisor.metrics.links.locations import Location, Members, locations, slots_of
from advisor.metrics.links.ring_ends import HEALTHY, REST, prior_of, ring_ends
from advisor.metrics.links.ring_lags import ring_kinds, ring_lags
from advisor.metrics.links.ring_reach import ADDED_NS
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import PASSES
from advisor.metrics.timeline.intervals import Bools
from advisor.statistics import Floats

_TENTH = round(NormalDist().inv_cdf(0.9), 4)
"""Standard deviations from the middle of a normal distribution to its lowest tenth."""


@dataclass(frozen=True)
class Found:
    """``locations`` hold 90 % of what is not healthy, the likeliest first, with their parts of it;
    ``slowdown`` (5 %, middle, 95 %) if one of them is slow; ``nothing``: that none is.
    ``added_ns``: what each pass of a call takes longer, if that does not grow with its size.

    ``by_ends``: the order of ends tells it, not the groups' times. ``in_rings_between``: of NVLink
    only rings between hosts tell it. ``by_sheet``: only what such links should carry tells it, by
    the device's name: without that it is likelier that nothing is slow.
    ``against``: how many times as long calls between hosts take as on each machine that has the
    job's device. ``unsteady``: by how much the logarithm of one kind's times between hosts varies,
    and what the fastest tenth takes over the mean. ``rings``: of a slow NVLink, how many times as
    long as others of their kind calls between hosts take that have a ring over it (low, middle,
    high). ``fixed``: what calls between hosts take whatever their size, where that is far too much.
    ``usual_ns``: what one of a few bytes takes between hosts at most, on any such machine.
    ``shared``: calls of several groups go between hosts at once; where they share a host's NICs,
    messages of each arrive late by the others'.
    """

    locations: tuple[Location, ...]
    parts: tuple[float, ...]
    nothing: float
    added_ns: float | None
    slowdown: tuple[float, float, float]
    by_ends: bool
    by_sheet: bool
    in_rings_between: bool
    calls: int
    against: Mapping[str, float]
    unsteady: tuple[float, float]
    rings: tuple[float, float, float] | None = None
    fixed: Fixed | None = None
    usual_ns: float | None = None
    shared: bool = False


def slow_location(data: Inputs, home: Mapping[int, Home]) -> Found | None:
    """The posterior; None where no call compares links.

    Where no call between hosts has all its ranks, the ends of those that were read tell it: how
    long calls take they do not, as one that was not read may have come last.
    """
    slot = slots_of(home, data.infos)
    timed = durations(data, home)
    if lost := not any(one.kind.hosts > 1 for one in timed):
        timed = durations(data, home, lost)
    # gloo's were told with its clocks
    ends = [] if data.gloo else ring_lags(ring_kinds(data, lost), data, home)
    members = all_members(timed, [block.members for one in ends for block in one.blocks])
    places = locations(members, home, slot, gloo=data.gloo)
    if not places:
        return None
    assumed = assumed_links(data, home)
    slows = np.array([[place.slows(own, home) for own in members] for place in places])
    staggers = np.array([[place.staggers(own, home) for own in members] for place in places])
    column = {own: number for number, own in enumerate(members)}
    distant = np.array([place.latency for place in places])
    by_time, healthy_time = likelihoods(timed, slows, staggers & ~slows, distant, column, assumed)
    told = data.ring_ends or ring_ends(data, home, places, ends)
    by_ends = told.of(places)
    prior = prior_of(places)
    weights, nothing = _posterior(by_time + by_ends, healthy_time, prior)
    each = weights.sum(axis=1)
    chosen = _likeliest(each)
    best = chosen[0]
    level = int(weights[best].argmax())
    by_ends_most = by_ends[best, level] > by_time[best, level] - healthy_time
    beside = [slows[best, column[own]] for one in timed for own in one.groups
              if (one.kind.hosts == 1) == places[best].inside]  # fmt: skip
    by_sheet = not by_ends_most and all(beside)
    if by_sheet and nothing <= 0.5 and not places[best].inside:
        unrated = {True: assumed[True], False: [replace(one, takes=nothing_known)
                                                for one in assumed[False]]}  # fmt: skip
        own_time, own_healthy = likelihoods(
            timed, slows, staggers & ~slows, distant, column, unrated
        )
        by_sheet = _posterior(own_time + by_ends, own_healthy, prior)[1] > 0.5
        by_ends_most = not by_sheet
    by_amount = weights
    if any(beside) and not all(beside):
        # Groups beside it measure by how much it is slow; of ends a model of rings says that.
        amounts = np.exp(by_time - by_time.max(axis=1, keepdims=True))
        by_amount = each[:, None] * amounts / amounts.sum(axis=1, keepdims=True)
    whole = [one for one in timed if not one.kind.unread]
    between = [one for one in whole if one.kind.hosts > 1]
    named: dict[Location, float] = defaultdict(float)
    for number in chosen:
        # Of gloo's rings no size tells a distant host from a slow one: both are named alike.
        named[replace(places[number], latency=bool(distant[number]) and not data.gloo)] += each[
            number
        ]
    return Found(
        tuple(named),
        tuple(map(float, named.values())),
        nothing=nothing,
        added_ns=float(ADDED_NS[level]) if distant[best] and not data.gloo else None,
        slowdown=_slowdown(by_amount[chosen], distant[chosen], timed, slows[best], column),
        by_ends=bool(by_ends_most),
        by_sheet=by_sheet,
        in_rings_between=places[best].inside and not slows[best].any(),
        calls=sum(
            one.calls
            for one in timed
            if any(
                slows[best, column[own]] or places[best].staggers(own, home) for own in one.groups
            )
        ),
        against=_against(whole, assumed[False]),
        unsteady=_unsteady([] if data.gloo else between),  # of hosts, threads vary as well
        rings=_rings(places[best], timed, home),
        fixed=fixed_time(whole, assumed[False]),
        usual_ns=few_bytes_ns(between[0], assumed[False]) if between else None,
        shared=_shared(between),
    )


def _shared(between: Sequence[Durations]) -> bool:
    """Whether others' calls take more of these calls' time than sizes and rates leave open."""
    whole_ns = sum(one.total_ns for one in between)
    return sum(one.total_ns * one.alone for one in between) < (1 - CALL) * whole_ns


def _posterior(slow: Floats, healthy: float, prior: Floats) -> tuple[Floats, float]:
    """Of logarithms of likelihoods: each location by how slow it is, and nothing."""
    logs = slow + prior[:, None] - np.log(len(SLOWDOWNS))
    whole = healthy + float(np.log(HEALTHY))
    most = max(float(logs.max()), whole)
    weights, nothing = np.exp(logs - most), float(np.exp(whole - most))
    total = float(weights.sum()) + nothing
    return weights / total, nothing / total


def _unsteady(between: Sequence[Durations]) -> tuple[float, float]:
    """Spread of the logarithm and fastest tenth over mean, by the calls' time.

    A few very long calls show in no middle, but in how far the fastest are under the mean: the
    spread is at least that of a lognormal for which that is so.
    """
    if not between:
        return 0.0, 1.0
    weights = np.concatenate([np.full(len(one.groups), one.total_ns) for one in between])
    spreads = np.concatenate([one.spread for one in between])
    fastest = np.concatenate([one.fastest for one in between])
    under = float(np.average(fastest, weights=weights))
    implied = math.sqrt(_TENTH**2 - 2 * math.log(min(under, 1.0))) - _TENTH
    return max(float(np.average(spreads, weights=weights)), implied), under


def _rings(
    place: Location, timed: Sequence[Durations], home: Mapping[int, Home]
) -> tuple[float, float, float] | None:
    """Of calls between hosts with a ring over a slow NVLink, their time over that of like calls of
    other groups, by time; None where none are slower than groups differ by."""
    logs, errors, weights = [], [], []
    for one in timed if place.inside else ():
        over = np.array([place.staggers(own, home) for own in one.groups])
        if one.kind.hosts > 1 and over.any() and not over.all():
            logs.append(float(one.log_ns[over].mean() - np.median(one.log_ns[~over])))
            errors.append(float(np.hypot(one.errors[over].mean(), one.errors[~over].mean())))
            weights.append(one.total_ns)
    if not logs:
        return None
    middle, error = np.average(logs, weights=weights), np.average(errors, weights=weights)
    apart = 2 * math.hypot(float(error), ALIKE[1][1])
    low, high = math.exp(middle - apart), math.exp(middle + apart)
    return (low, math.exp(middle), high) if low > 1 else None


def _against(timed: Sequence[Durations], between: Sequence[Assumption]) -> dict[str, float]:
    """Machine -> how many times as long calls between hosts take as there, by their time."""
    result = {}
    for assumption in between:
        logs, weights = [], []
        for one in timed:
            expected = assumption.takes(one.kind, one.groups[0])
            if one.kind.hosts > 1 and expected is not None:
                logs.append(float(np.median(one.log_ns)) - expected[0])
                weights.append(one.total_ns)
        if assumption.name is not None and weights:
            result[assumption.name] = float(np.exp(np.average(logs, weights=weights)))
    return result


def _likeliest(each: Floats) -> list[int]:
    """The fewest locations that hold all but this rest of what is not healthy."""
    order = [int(number) for number in np.argsort(-each, kind="stable")]
    reached = np.cumsum(each[order])
    return order[: int(np.searchsorted(reached, (1 - REST) * reached[-1])) + 1]


def _slowdown(
    weights: Floats,
    distant: Bools,
    timed: Sequence[Durations],
    slow: Bools,
    column: Mapping[Members, int],
) -> tuple[float, float, float]:
    """5 %, middle and 95 % of how many times as long calls over the locations take."""
    took, passes = 0.0, 0.0
    for one in timed:
        touched = [slow[column[group]] for group in one.groups]
        took += float(np.mean(touched)) * one.calls * float(one.whole_ns.mean())
        passes += float(np.mean(touched)) * one.calls * PASSES.get(one.kind.op, 1)
    rest = 1.0 - passes * ADDED_NS / max(took, 1.0)
    factors = np.concatenate([SLOWDOWNS, 1.0 / np.maximum(rest, 1.0 / SLOWDOWNS[-1])])
    parts = np.concatenate([weights[~distant].sum(axis=0), weights[distant].sum(axis=0)])
    order = factors.argsort(kind="stable")
    reached = np.cumsum(parts[order]) - 0.5 * parts[order]
    low, middle, high = np.exp(
        np.interp(np.array([0.05, 0.5, 0.95]) * parts.sum(), reached, np.log(factors[order]))
    )
    return float(low), float(middle), float(high)
