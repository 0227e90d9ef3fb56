"""What the ends of rings say of a slow place, beside what starts and ends say together.

Ends are compared between clocks; starts and ends within calls need no common clock
(posterior.py). So where both name places of one host, the second tells which of them it is, and
how much of a call is excess where the first rests on a clock that may be off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.metrics.clocks.posterior import Weighed
from advisor.metrics.collectives.groups import hosts_of
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.evidence import Ring
from advisor.metrics.links.staggers import Explained, all_of
from advisor.metrics.rings.locations import Home, Location


def beside_starts(
    found: Explained,
    rings: Sequence[Ring],
    seen: Weighed,
    data: Inputs,
    home: Mapping[int, Home],
) -> Explained:
    """What the ends say, by what starts and ends say: the host that these explain best if all that
    the ends name is of it. Where a clock is off, else the places that both name, if the best of
    either is among them. A share is as wide as both have it where that clock's ends tell nothing,
    and where the two contradict."""
    own = of_one_host(found, rings, seen, data, home)
    if own:
        found = found._replace(places=own)
    elif seen.off is not None and seen.slow:
        known = named(seen.places, data, home)
        both = tuple(place for place in found.places if place in known)
        # What is the best of neither is what their errors have in common.
        if {known[0], found.places[0]} & {*both}:
            found = found._replace(places=both)
    if not seen.slow or seen.rough:
        return found
    low, middle, high = found.share
    least, likely, most = seen.shares
    agree = least <= middle <= most
    if seen.off is None:
        wide = seen.decided and bool(own) and not agree
    else:
        wide = any(any(ring.alike) for ring in rings)
    if not wide:
        return found
    share = (min(low, least), middle if agree else likely, max(high, most))
    return found._replace(share=share)


def of_one_host(
    found: Explained,
    rings: Sequence[Ring],
    seen: Weighed,
    data: Inputs,
    home: Mapping[int, Home],
) -> tuple[Location, ...]:
    """The host's link, or its direction, that starts and ends explain best, if all that was found
    is of that host; else nothing."""
    best = named(seen.likeliest, data, home)
    if len(best) != 1 or best[0].kind == "edge":
        return ()
    return best if all_of(found.places, best[0].homes[0], rings, home) else ()


def named(
    places: Sequence[Location], data: Inputs, home: Mapping[int, Home]
) -> tuple[Location, ...]:
    """Places by ``groups.hosts_of`` as places by ``home``."""
    names = {own: home[rank] for rank, own in hosts_of(data.infos).items()}
    return tuple(
        place._replace(homes=tuple(names.get(one, one) for one in place.homes)) for place in places
    )
