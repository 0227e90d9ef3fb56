"""What the posterior of links says of a run: a location, the network as a whole, or nothing.

Where it leaves no doubt a location is slow; where it may be, that is said; where all links may be
slow or those of a smaller machine, or calls vary from one to the next, the network is named.
"""

import math
from collections.abc import Mapping

import numpy as np

from advisor.metrics.links.cost import Inputs, Seen, excess_of
from advisor.metrics.links.durations import CALL
from advisor.metrics.links.expected import EFFICIENCY
from advisor.metrics.links.fixed_times import MANY_TIMES
from advisor.metrics.links.named import LIKELY, SURE, culprit_of, network_culprit
from advisor.metrics.links.slow_location import Found, slow_location
from advisor.metrics.rings.locations import Home

# A machine's network is faster than the recorded one beyond what efficiencies differ by.
_CLEARLY_FASTER = math.exp(2 * EFFICIENCY[False][1])
# Standard deviation of the logarithm of like calls' times between hosts: twice a quiet network's.
_UNSTEADY = 2 * CALL


def by_posterior(data: Inputs, home: Mapping[int, Home]) -> list[Seen]:
    """What the calls say of the links, nothing where these are likely healthy.

    A location comes first; beside one that slows calls but little all links may be slow.
    """
    found = slow_location(data, home)
    seen = None if found is None else _seen(data, home, found)
    if found is None or seen is None:
        return []
    whole = None
    if seen.expected_from in ("stagger", "peer groups"):
        own = 1.0 if found.locations[0].inside else found.slowdown[2]
        whole = _by_sheet(data, home, found, beside=own)
    return [seen] if whole is None else [seen, whole]


def _seen(data: Inputs, home: Mapping[int, Home], found: Found) -> Seen | None:
    """The location, or the network as a whole."""
    if found.unsteady[0] > _UNSTEADY and (found.nothing > SURE or found.by_sheet):
        return _unsteady(data, home, found)
    machine_only = found.by_sheet and not found.locations[0].inside
    if machine_only or found.nothing > LIKELY or _everywhere(found) > LIKELY:
        # Machines with one device are sold with networks that differ a hundredfold, and what a
        # data sheet of some promises accuses no link of this one.
        return _by_fixed_time(data, home, found) or _by_sheet(data, home, found)
    culprit = culprit_of(found, data, home)
    if culprit.kind == "candidates":
        # Places without anything in common are nothing to look at where likelier nothing is slow,
        # or where messages between any two hosts may be what takes long, as on any network.
        # Nor does an order of ends tell that from calls that share a host's NICs.
        usual = found.shared or not _beyond_networks(found)
        of_latency = _everywhere(found) > SURE and _of_latency(found) and usual
        seen = _by_fixed_time(data, home, found)
        if seen is None and (found.nothing > 0.5 or of_latency):
            seen = _by_sheet(data, home, found)
        if seen is not None or of_latency:
            return seen
    return Seen(
        culprit,
        excess_of(found.slowdown),
        found.calls,
        "stagger" if found.by_ends else "data sheet" if found.by_sheet else "peer groups",
        None,
        {
            "healthy": found.nothing,
            "added_ns": found.added_ns,
            "locations": [
                [one.kind, list(one.ranks), one.direction, round(part, 4)]
                for one, part in zip(found.locations, found.parts, strict=True)
            ],
        },
    )


def _everywhere(found: Found) -> float:
    """How likely it is that messages between any two hosts take long to arrive: what a network is
    (TCP takes five times as long as InfiniBand), not a place in it to look at."""
    return sum(
        part
        for one, part in zip(found.locations, found.parts, strict=True)
        if one.kind == "all" and one.latency
    )


def _beyond_networks(found: Found) -> bool:
    """Whether messages arrive later by more than they take on any network."""
    added_ns, usual_ns = found.added_ns, found.usual_ns
    return added_ns is not None and usual_ns is not None and added_ns > MANY_TIMES * usual_ns


def _of_latency(found: Found) -> bool:
    return all(one.latency for one in found.locations)


def _by_fixed_time(data: Inputs, home: Mapping[int, Home], found: Found) -> Seen | None:
    """The network as a whole, where messages take long whatever their size.

    So late they also move fewer bytes, as few are on their way at once (NCCL_STEPS, 8 chunks of a
    channel): up to all that machines with the job's device do not take may go with it. What calls
    wait for is not in these times, so that no more than sure is said of it.
    """
    if found.fixed is None:
        return None
    whole, (low, middle, high) = network_culprit(data, home), found.fixed.share
    sheet = _by_sheet(data, home, found)
    return Seen(
        whole._replace(
            kind="candidates", words=f"{whole.words} (latency)", candidates=tuple(sorted(home))
        ),
        (low, middle, high if sheet is None else max(high, sheet.share[2])),
        found.fixed.calls,
        "calls of other sizes",
        None,
        {"healthy": SURE, "added_ns": found.fixed.added_ns},
    )


def _by_sheet(
    data: Inputs, home: Mapping[int, Home], found: Found, beside: float = 1.0
) -> Seen | None:
    """The network as a whole, where machines with the job's device have a faster one.

    ``beside``: how many times as long calls take at most for a location that is slow.
    """
    factors = sorted(factor / beside for factor in found.against.values())
    slower = [factor for factor in factors if factor > _CLEARLY_FASTER]
    if not slower:
        return None
    alike = (1 / _CLEARLY_FASTER <= factor <= _CLEARLY_FASTER for factor in found.against.values())
    return Seen(
        network_culprit(data, home),
        excess_of((slower[0], float(np.median(slower)), slower[-1])),
        found.calls,
        "data sheet",
        None,
        {
            "healthy": found.nothing,
            "machines": dict(found.against),
            "suits": any(alike),
            "usual_ns": found.usual_ns,
        },
    )


def _unsteady(data: Inputs, home: Mapping[int, Home], found: Found) -> Seen:
    """The network as a whole, where like calls take more or less long as it comes."""
    spread, fastest = found.unsteady
    # At least as fast as the median call, at most as the fastest.
    low, high = 1 - np.exp(-0.5 * spread**2), 1 - fastest * np.exp(-0.5 * spread)
    return Seen(
        network_culprit(data, home)._replace(kind="unsteady"),
        (float(low), 1 - fastest, float(high)),
        found.calls,
        "their fastest",
        None,
        {"spread": spread},
    )
