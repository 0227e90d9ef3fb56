"""Offsets and drifts of the hosts' clocks, from collectives that end together (METRICS 5-6).

After a synchronising collective every rank has heard from every other, so that the true ends differ
little, and what differs grows with the message (a slow edge staggers the ends) while a clock does
not. So the ends of two ranks are regressed on the bytes on the wire, operation by operation, and on
time: the intercept is the offset, the slope over time the drift. Ranks of one host share the result
unless one of them disagrees beyond doubt (an edited trace, a virtual machine). An offset that its
own uncertainty cannot tell from zero is zero: hosts normally are synchronised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.bounds import bounds_of
from advisor.metrics.clocks.ends import SIGNIFICANT, Difference, difference
from advisor.metrics.clocks.fit import ENDS
from advisor.metrics.clocks.posterior import Weighed, weigh
from advisor.metrics.clocks.prior import STAGGER_SHARE, impossible, is_zero
from advisor.metrics.collectives.call import TOLERANCE_NS, Call
from advisor.metrics.collectives.groups import RankInfo, hosts_of
from advisor.metrics.rings.locations import Home
from advisor.vocabulary.operations import SYNCHRONISING

# Bounds this narrow tell a clock, whatever the messages' sizes.
_TOLD_MS = 0.5
# No offset beyond this share of a call is taken where the clocks as recorded explain the calls.
_FAR_SHARE = 0.35


class Clock(NamedTuple):
    """Add ``offset_ns + drift_ppm * 1e-6 * (t - origin_ns)`` to a rank's time t.

    ``identified``: messages of several sizes told the clock from the stagger of a slow edge.
    ``ambiguous``: they did not, and an offset was taken all the same, which may hold stagger: the
    ends of this rank are no evidence of a slow edge. ``fitted``: starts and ends gave the offset,
    as well as ``residual_ns`` says. ``doubt_ns``: how far off a clock that is taken as it is may be
    by what the calls tell (standard deviation).
    """

    offset_ns: int
    drift_ppm: float
    residual_ns: int
    origin_ns: int = 0
    ambiguous: bool = False
    identified: bool = True
    fitted: bool = False
    doubt_ns: float = 0.0

    def correction(self, time_ns: int) -> int:
        """What to add at a time of this rank, ns."""
        return self.offset_ns + round(self.drift_ppm * 1e-6 * (time_ns - self.origin_ns))


def aligned(time_ns: int, rank: int, clocks: Mapping[int, Clock]) -> int:
    """A rank's time on the run's common clock; as it is when its clock was not estimated."""
    clock = clocks.get(rank)
    return time_ns if clock is None else time_ns + clock.correction(time_ns)


class Clocks(NamedTuple):
    """The clock of every rank that shares a synchronising collective with another; and how slow
    places explain the calls with no clock believed, where that was asked."""

    by_rank: dict[int, Clock]
    weighed: Weighed | None = None


def clocks(
    columns: Sequence[Mapping[int, Call]], infos: Mapping[int, RankInfo], *, gloo: bool
) -> Clocks:
    """All clocks; the lowest rank's host is the reference (offset 0).

    ``gloo``: the collectives are gloo's rings, of which starts and ends tell more.
    """
    usable = [c for c in columns if len(c) > 1 and next(iter(c.values())).op in SYNCHRONISING]
    if not usable:
        return Clocks({})
    origin = min(call.end for column in usable for call in column.values())
    neighbours: dict[int, set[int]] = defaultdict(set)
    for column in usable:
        for rank in column:
            neighbours[rank].update(column)
    raw: dict[int, Difference] = {}
    for root in sorted(neighbours):
        if root in raw:
            continue
        raw[root] = Difference(0.0, 0.0, 0.0, 0.0, True, 0.0)
        queue = [root]
        while queue:
            known = queue.pop(0)
            for rank in sorted(neighbours[known] - set(raw)):
                step = difference(usable, known, rank, origin)
                base = raw[known]
                raw[rank] = Difference(
                    base.offset + step.offset,
                    float(np.hypot(base.error, step.error)),
                    base.drift + step.drift,
                    max(base.spread, step.spread),
                    base.identified and step.identified,
                    step.transfer,
                )
                queue.append(rank)
    found = _possible(_by_host(raw, infos, origin, usable), infos, usable, gloo=gloo)
    return _checked(found, infos, usable) if gloo else Clocks(found)


def _possible(
    found: dict[int, Clock],
    infos: Mapping[int, RankInfo],
    columns: Sequence[Mapping[int, Call]],
    *,
    gloo: bool,
) -> dict[int, Clock]:
    """The same, moved as little as lets every call end after the last of its ranks has come."""
    home = hosts_of(infos)
    own = {rank: (home[rank], clock.offset_ns) for rank, clock in found.items()}
    bounds = bounds_of(columns, own, lambda time, rank: aligned(time, rank, found), gloo=gloo)
    if bounds is None or not bounds.broken(still := np.zeros(len(bounds.clocks))):
        return found
    moved = dict(zip(bounds.clocks, bounds.nearest(still), strict=True))
    first = own[min(found)]
    result = dict(found)
    for rank, clock in found.items():
        by = moved.get(own[rank], 0.0) - moved.get(first, 0.0)
        if by:
            moved_to = clock._replace(offset_ns=clock.offset_ns + round(1e6 * by))
            doubt = bounds.half_width(own[rank], first)
            if doubt <= _TOLD_MS:
                residual_ns = max(clock.residual_ns, round(1e6 * doubt))
                moved_to = moved_to._replace(
                    residual_ns=residual_ns, identified=True, ambiguous=False
                )
            result[rank] = moved_to
    return result


def _checked(
    found: dict[int, Clock], infos: Mapping[int, RankInfo], columns: Sequence[Mapping[int, Call]]
) -> Clocks:
    """The same after a look at starts as well (posterior.py): as recorded where that explains
    the calls; else with one host's clock off; else as the slow place has them that alone explains
    the calls; else as found, and offsets that only the ends gave tell nothing."""
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


def with_one_freed(
    found: Mapping[int, Clock], infos: Mapping[int, RankInfo], seen: Weighed
) -> Clocks | None:
    """The clocks with one host's anything: the one with which slow places explain the calls best.
    None where they do not, where none is slow then, or where it depends on whose clock that is."""
    home = hosts_of(infos)
    host = {rank: home[rank] for rank in found}
    one = seen.one_off({own: _middle(found, host, own) for own in seen.offsets_ns})
    if one is None or not (one.slow and one.agreed):
        return None
    return Clocks(_moved(found, host, one), one)


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


def _by_host(
    raw: Mapping[int, Difference],
    infos: Mapping[int, RankInfo],
    origin: int,
    columns: Sequence[Mapping[int, Call]],
) -> dict[int, Clock]:
    rest = [found for rank, found in raw.items() if rank != min(raw)]
    first = raw[min(raw)]._replace(
        error=max((found.error for found in rest), default=0.0),
        spread=max((found.spread for found in rest), default=0.0),
        identified=all(found.identified for found in rest),
        transfer=max((found.transfer for found in rest), default=0.0),
    )
    raw = {**raw, min(raw): first}  # what the others know about it
    home = hosts_of(infos)
    hosts: dict[object, list[int]] = defaultdict(list)
    for rank in sorted(raw):
        hosts[home[rank]].append(rank)
    # Offsets are what must be added, so the sign turns.
    offset = {rank: -found.offset for rank, found in raw.items()}
    for ranks in hosts.values():
        center = float(np.median([offset[rank] for rank in ranks]))
        for rank in ranks:
            found = raw[rank]
            doubt = max(TOLERANCE_NS, SIGNIFICANT * found.error, 2 * found.spread)
            if not found.identified:
                doubt = max(doubt, STAGGER_SHARE * found.transfer)
            if len(ranks) > 1 and abs(offset[rank] - center) <= doubt:
                offset[rank] = center
    # One value per clock: ranks of one host share theirs. The middle one that is a clock's own.
    own = sorted({(str(host), offset[rank]) for host, ranks in hosts.items() for rank in ranks})
    values = sorted(value for _, value in own)
    median = values[(len(values) - 1) // 2]
    settled = {}
    for rank, found in raw.items():
        away = offset[rank] - median
        others = list(values)
        others.remove(offset[rank])
        zero = is_zero(away, found, [abs(value - median) for value in others])
        if zero and abs(away) > TOLERANCE_NS:
            same = {one for one in raw if offset[one] == median}
            zero = not impossible(columns, rank, same)
        settled[rank] = 0.0 if zero else away
    reference = settled[min(raw)]
    return {
        rank: Clock(
            offset_ns=round(settled[rank] - reference),
            drift_ppm=-found.drift if found.drift else 0.0,
            residual_ns=0 if rank == min(raw) else round(2 * found.error),
            origin_ns=origin,
            ambiguous=not found.identified and settled[rank] != 0.0,
            identified=found.identified,
        )
        for rank, found in raw.items()
    }
