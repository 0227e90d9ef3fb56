"""Clocks of gloo's rings after a look at starts as well as ends (posterior.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.fit import ENDS
from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.clocks.posterior import Weighed, weigh
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import RankInfo, hosts_of
from advisor.metrics.rings.locations import Home
from advisor.vocabulary.operations import SYNCHRONISING

# No offset beyond this share of a call is taken where the clocks as recorded explain the calls.
_FAR_SHARE = 0.35


class Clocks(NamedTuple):
    """The clock of every rank that shares a synchronising collective with another; and how slow
    places explain the calls with no clock believed, where that was asked."""

    by_rank: dict[int, Clock]
    weighed: Weighed | None = None


def checked(
    found: dict[int, Clock], infos: Mapping[int, RankInfo], columns: Sequence[Mapping[int, Call]]
) -> Clocks:
    """The same after a look at starts as well (posterior.py): as recorded where that explains
    the calls; else with one host's clock off; else as the slow place has them that alone explains
    the calls; else as found, and offsets that only the ends gave tell nothing."""
    columns = [c for c in columns if len(c) > 1 and next(iter(c.values())).op in SYNCHRONISING]
    home = hosts_of(infos)
    host = {rank: home[rank] for rank in found}
    seen = weigh(columns, host, {rank: clock.offset_ns for rank, clock in found.items()})
    if seen is None:
        return Clocks(found)
    as_recorded = dict.fromkeys(seen.given_ns, 0)
    recorded = seen.loss(as_recorded)
    if seen.right(recorded):
        far = max(map(abs, seen.given_ns.values())) > _FAR_SHARE * seen.time_ns
        seen = seen.with_clocks(as_recorded)
        if not (far and seen.surely_right(recorded)):
            return Clocks(found, seen)
        still = {
            rank: clock._replace(offset_ns=0, identified=False, ambiguous=False)
            for rank, clock in found.items()
        }
        return Clocks(still, seen)
    one = seen.one_off(as_recorded)
    if one is not None and one.agreed:
        return Clocks(_moved(found, host, one), one)
    if one is None and all(clock.identified for clock in found.values()):
        return Clocks(found, seen)
    if seen.decided:
        return Clocks(_moved(found, host, seen), seen)
    moved = any(clock.offset_ns for clock in found.values())
    if one is not None or (moved and not seen.right(seen.loss(seen.given_ns))):
        found = {rank: clock._replace(ambiguous=True) for rank, clock in found.items()}
    return Clocks(found, seen._replace(ends_tell=False))


def _moved(found: Mapping[int, Clock], host: Mapping[int, Home], seen: Weighed) -> dict[int, Clock]:
    """With the clocks as weighed; the first rank's host stays the reference."""
    by = {
        one: seen.given_ns[one] + more - _middle(found, host, one)
        for one, more in seen.offsets_ns.items()
    }
    first = by.get(host[min(found)], 0)
    # A fitted clock that may be off by more than the model is good for is ambiguous.
    doubtful = seen.doubt_ns > ENDS * seen.time_ns
    result = {}
    for rank, clock in found.items():
        moved = clock._replace(offset_ns=clock.offset_ns + by.get(host[rank], 0) - first)
        if seen.off is not None and host[rank] == seen.off:
            moved = moved._replace(
                residual_ns=round(2 * seen.doubt_ns),
                identified=False,
                ambiguous=doubtful,
                fitted=True,
            )
        elif host[rank] in by:
            moved = moved._replace(identified=True, ambiguous=False)
        result[rank] = moved
    return result


def _middle(found: Mapping[int, Clock], host: Mapping[int, object], one: object) -> int:
    return int(np.median([clock.offset_ns for rank, clock in found.items() if host[rank] == one]))
