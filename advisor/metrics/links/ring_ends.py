"""How likely each slow location makes the order in which ranks leave rings, with any clocks.

Which hosts' clocks are off is weighed with what is slow: none, one host's, or all. A clock that is
off may be off by anything, so that the ends must be far likelier with it than with all as recorded.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.links.by_duration import SLOWDOWNS
from advisor.metrics.links.cost import Inputs, homes
from advisor.metrics.links.locations import (
    MOST_HOSTS,
    MOST_RANKS,
    Location,
    locations,
    slots_of,
)
from advisor.metrics.links.ring_blocks import LONG, Lags
from advisor.metrics.links.ring_errors import freed
from advisor.metrics.links.ring_lags import ring_kinds, ring_lags
from advisor.metrics.links.ring_patterns import Patterns, mean_of
from advisor.metrics.links.ring_reach import FACTORS
from advisor.metrics.rings.locations import Home
from advisor.metrics.timeline.intervals import Int64s
from advisor.statistics import Floats

HEALTHY = 0.9
"""Of the jobs that are looked at, so many have no slow link: of 419 interruptions in 54 days of
Llama 3's 16,384 GPUs 10 % were the network's and its NICs' (arXiv:2407.21783, table 5). As many
have no clock that is off: neither is held for likelier where the ends alone may be either's."""
REST = 0.1
"""Of what is not healthy, what the locations that are told leave out; and times when unread ranks
came are weighed as one where none is so much of the likeliest apart."""
NEAREST = np.abs(np.log(SLOWDOWNS)[:, None] - np.log(FACTORS)[None]).argmin(axis=1)
"""By slowdown, the level whose pattern it has."""


class RingEnds(NamedTuple):
    """Logarithms of how likely the ends are: by location and slowdown, and if nothing is slow."""

    places: Mapping[Location, Floats]
    nothing: float

    def of(self, places: Sequence[Location]) -> Floats:
        """The same beside nothing; what is in no ring is as likely as that."""
        level = np.full(len(SLOWDOWNS), self.nothing)
        return np.array([self.places.get(one, level) for one in places]) - self.nothing


def ring_ends(
    data: Inputs, home: Mapping[int, Home], places: Sequence[Location], ends: Sequence[Lags]
) -> RingEnds:
    """With the clocks as estimated, and as well as they are known."""
    found, nothing = _by_ends(ends, places, Patterns(home, slots_of(home, data.infos)))
    return RingEnds(dict(zip(places, found, strict=True)), nothing)


def clocks_beside_links(data: Inputs) -> tuple[dict[int, Clock], RingEnds | None]:
    """The likeliest clocks, whatever is slow; and how likely that makes the ends, over all of them.

    Without rings between hosts the clocks stay as estimated.
    """
    home = homes(data)
    kinds = ring_kinds(data)
    if not (ends := ring_lags(kinds, data, home)):
        kinds = ring_kinds(data, lost=True)
        ends = ring_lags(kinds, data, home)
    members = [block.members for one in ends for block in one.blocks]
    hosts = sorted({home[rank] for own in members for rank in own.ranks}, key=str)
    slot = slots_of(home, data.infos)
    places = locations(members, home, slot, gloo=data.gloo)
    if not places:
        return dict(data.clocks), None
    off = [frozenset(hosts)]
    if 2 < len(hosts) <= MOST_HOSTS:
        off += [frozenset({host}) for host in hosts]
    chances = {frozenset[Home](): HEALTHY}
    chances |= dict.fromkeys(off, (1 - HEALTHY) / len(off))
    prior = prior_of(places)[:, None] - math.log(len(SLOWDOWNS))
    patterns, weighed, tried = Patterns(home, slot), [], []
    for free, chance in chances.items():
        lags = ring_lags(kinds, data, home, free)
        found, nothing = _by_ends(lags, places, patterns)
        each = np.append(found.ravel(), nothing) + math.log(chance)
        weighed.append(each)
        own = each + np.append(prior.repeat(len(SLOWDOWNS)), math.log(HEALTHY))
        tried.append((float(np.logaddexp.reduce(own)), free, int(own.argmax()), lags))
    *all_places, nothing = np.logaddexp.reduce(weighed)
    rows = np.reshape(all_places, (len(places), -1))
    _, free, best, lags = max(tried, key=lambda one: one[0])
    place, level = divmod(best, len(SLOWDOWNS))
    at = places[place] if place < len(places) else None
    late = patterns.late_ns(lags, at, level if at and at.latency else int(NEAREST[level]))
    clocks = _moved(freed(data.clocks, home, free | {*home.values()} - {*hosts}), late, home, free)
    return clocks, RingEnds(dict(zip(places, rows, strict=True)), float(nothing))


def _moved(
    clocks: Mapping[int, Clock],
    late: Mapping[int, float],
    home: Mapping[int, Home],
    free: frozenset[Home],
) -> dict[int, Clock]:
    """Free clocks less what their ranks leave later than a place slows them (ns), beside others."""
    others = [by for rank, by in late.items() if home[rank] not in free]
    base = float(np.mean(others or list(late.values())[:1]))
    found = dict(clocks)
    for rank, clock in clocks.items():
        own = [by for one, by in late.items() if home[one] == home[rank]]
        if own and home[rank] in free:
            by_ns = round(float(np.mean(own)) - base)
            found[rank] = clock._replace(offset_ns=clock.offset_ns - by_ns)
    return found


def prior_of(places: Sequence[Location]) -> Floats:
    """The logarithm of each location's chance: all kinds are as likely, and all of a kind."""
    kinds = Counter((one.kind, one.inside, one.latency) for one in places)
    each = [kinds[one.kind, one.inside, one.latency] * len(kinds) for one in places]
    return np.log((1 - HEALTHY) / np.array(each))


def _by_ends(
    ends: Sequence[Lags], places: Sequence[Location], patterns: Patterns
) -> tuple[Floats, float]:
    """By location and slowdown the logarithm of how likely the ends are; and if nothing is slow."""
    result, healthy = np.zeros((len(places), len(SLOWDOWNS))), 0.0
    for one in ends:
        chosen, rest, alike = _at_first_look(one, places, patterns)
        looked, again = np.unique(alike, return_inverse=True)
        weighed = [None, *(places[n] for n in chosen)]
        few = one.came([one.unread[n] for n in looked]) if one.unread else one
        nothing, *found = _averaged(patterns.log_likelihoods(few, weighed, roughly=one.long), again)
        assert nothing is not None
        own = np.zeros_like(result)
        for number, logs in zip(chosen, found, strict=True):
            if logs is not None:
                own[number] = (logs[NEAREST] if len(logs) == len(FACTORS) else logs) - nothing[0]
        own[rest] = own[chosen].max(axis=1).min() if rest else 0.0
        result += own
        healthy += float(nothing[0])
    return result + healthy, healthy


def _averaged(found: Sequence[Floats | None], rows: Sequence[int] | Int64s) -> list[Floats | None]:
    """Over these rows: when ranks came that were not read."""
    return [None if one is None else mean_of(one[rows], 0) for one in found]


def _at_first_look(
    lags: Lags, places: Sequence[Location], patterns: Patterns
) -> tuple[list[int], list[int], list[int]]:
    """The locations worth a full look, which are the likeliest by a few calls where rings are long,
    and those that are no likelier than the least likely of these. For each time that unread ranks
    may have come, the number of the first that these calls make as likely with every location."""
    few = lags.first_look
    if few is None:
        return list(range(len(places))), [], list(range(max(1, len(lags.unread))))
    found = patterns.log_likelihoods(few, [None, *places], roughly=True)
    rows = np.concatenate([one for one in found if one is not None], axis=1)
    parts = np.exp(rows - rows.max(axis=0))
    apart = np.abs(parts[:, None] - parts).max(axis=2)
    alike = [int((row < REST).argmax()) for row in apart]
    alike = [alike[n] if alike[alike[n]] == alike[n] else n for n in range(len(alike))]
    means = _averaged(found[1:], range(len(rows)))
    likely = {number: float(one.max()) for number, one in enumerate(means) if one is not None}
    order = sorted(likely, key=lambda number: -likely[number])
    beside = [number for number in range(len(places)) if number not in likely]  # of other rings
    longest = max(len(one.noise_ns) for one in few.blocks)
    most = MOST_RANKS // (LONG if few.long else longest)
    return [*order[:most], *beside], order[most:], alike
