"""A slow place and the clocks of all hosts, told together from starts and ends of ring collectives.

Hosts of a cluster share no clock. But a ring is linear in max and plus (schedule.paths): what a
rank's own call takes on its own clock depends on who came last and when, rings of two operations
go around in opposite ways, and one offset per host must fit all of it. So for every place that may
be slow, and for none, the offsets and times that explain the calls best are fitted; the losses tell
the places apart as far as they can be told without a common clock.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.bounds import Bounds, bounds_of
from advisor.metrics.clocks.fit import Calls, Fit, best_offsets, losses_at, one_free
from advisor.metrics.clocks.hypotheses import FEWEST_CALLS, Hypotheses, hypotheses_of, kinds_of
from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.locations import Home, Location
from advisor.metrics.timeline.statistics import Floats, binomial_tail

# Numbers in the largest array of a fit; larger groups are told from fewer of their calls.
_MOST_NUMBERS = 1_000_000
# The model is no better than this: places whose loss is nearer to the best explain it as well.
_NEAR, NEAR_LOSS = 1.35, 4.0
# Hosts are normally synchronised: clocks that come this near (per kind of call) are right.
_RIGHT, _RIGHT_LOSS = 2.0, 6.0
# One clock off must explain the calls about as well as all clocks off do.
_ONE_LOSS = 20.0
# Clocks that may be the one that is off: those that are farthest from the others at the best.
_MOST_OFF = 6
# A slow place must explain this much more than none does: healthy rings leave less.
_EXPLAINS, _EXPLAINS_LOSS = 1.3, 25.0
# More left unexplained per rank and kind of call, and the calls are no such rings.
_MISFIT = 40.0


class Weighed(NamedTuple):
    """What the calls say when no clock is believed.

    ``slow``: a slow place explains the calls and none does not. ``places`` are those that explain
    them alike, the best first; ``decided``: all of them are of one host. ``offsets_ns`` is what
    must be added per host at the best, beside the correction. ``shares`` (low, middle, high) of a
    call's time that is excess; ``p_value`` that as many of the ``calls`` would be explained better
    by chance. ``time_ns`` is what a call takes the rank that comes last; ``given_ns`` the
    correction per host. ``off``: the one host whose clock is not believed, where the others' are;
    ``doubt_ns``: how far places that explain the calls alike move it; ``agreed``: with any host's
    clock off that explains them alike, the place is of one and the same host, or rings of several
    kinds told it: those of one kind leave such places for a late rank whose clock is off, too.
    ``ends_tell``: the clocks that are used rest on more than the ends that they set, or fit what
    starts and ends say, so that those ends may name a place by themselves. ``likeliest`` explains
    the calls best with the clocks that are used; several make the same ring slow; empty where none
    explains them so much better than no slow place does. ``rough``: so much is left unexplained
    that ``shares`` tell little.
    """

    slow: bool
    decided: bool
    places: tuple[Location, ...]
    offsets_ns: Mapping[Home, int]
    shares: tuple[float, float, float]
    p_value: float
    calls: int
    time_ns: float
    best: float
    kinds: tuple[Calls, ...]
    tables: Hypotheses
    given_ns: Mapping[Home, int]
    bounds: Bounds | None = None
    off: Home | None = None
    doubt_ns: float = 0.0
    agreed: bool = True
    ends_tell: bool = True
    likeliest: tuple[Location, ...] = ()
    rough: bool = False

    def loss(self, clocks_ns: Mapping[Home, int]) -> float:
        """What is left unexplained, with any place slow or none, with these clocks (ns to add,
        instead of what was given): endless where calls would end before the last of their ranks
        came."""
        return float(self._losses(clocks_ns).min())

    def with_clocks(self, clocks_ns: Mapping[Home, int]) -> Weighed:
        """The same, with the place that is likeliest with these clocks."""
        return self._replace(likeliest=_likeliest(self.tables, self._losses(clocks_ns)))

    def _losses(self, clocks_ns: Mapping[Home, int]) -> Floats:
        given = self._beside(clocks_ns)
        if self.bounds is not None and self.bounds.broken(np.array(given)):
            return np.full(len(self.tables.places), math.inf)
        return losses_at(self.kinds, self.tables.paths, tuple(self.offsets_ns), given)

    def right(self, loss: float) -> bool:
        """Whether clocks that leave so much may be right."""
        return loss <= _RIGHT * self.best + _RIGHT_LOSS * len(self.kinds)

    def surely_right(self, loss: float) -> bool:
        """Whether they explain the calls so well that only a coincidence would have them wrong."""
        return loss <= _NEAR * self.best + NEAR_LOSS

    def one_off(self, clocks_ns: Mapping[Home, int]) -> Weighed | None:
        """The same with these clocks (ns to add, instead of what was given), but for one host's,
        which may be anything: the host with which that explains the calls best. None where it does
        not with any."""
        hosts, given = tuple(self.offsets_ns), self._beside(clocks_ns)
        away = np.array(list(self.offsets_ns.values())) - 1e6 * np.array(given)
        farthest = np.argsort(-np.abs(away - np.median(away)), kind="stable")[:_MOST_OFF]
        found = {int(number): self._freed(given, int(number)) for number in farthest}
        number = min(found, key=lambda one: (float(found[one].losses.min()), one))
        healthy = min(found, key=lambda one: (float(found[one].losses[0]), one))
        if not _explains(float(found[number].losses.min()), float(found[healthy].losses[0])):
            number = healthy  # a clock that is off explains it without any slow place
        fit = found[number]
        least = float(fit.losses.min())
        no_rings = _misfits(self.best, self.kinds)
        rough = _misfits(least, self.kinds)
        misfit = no_rings or (rough and least > _NEAR * self.best)
        worse = least > _NEAR * self.best + _ONE_LOSS * len(self.kinds)
        if not self.right(least) or worse or (misfit and not no_rings):
            return None
        told = _told(fit, self.tables, self.kinds, hosts, misfit=misfit)
        near = _NEAR * least + NEAR_LOSS
        rivals = [other for other in found.values() if other.losses.min() <= near]
        own = 1e6 * fit.offsets[:, number]
        likely = own[fit.losses <= near]
        return told._replace(
            best=self.best,
            bounds=self.bounds,
            given_ns=self.given_ns,
            off=hosts[number],
            doubt_ns=float(np.abs(likely - told.offsets_ns[hosts[number]]).max()),
            agreed=not told.slow or len(self.kinds) > 1 or self._is_common(rivals),
            ends_tell=not misfit,
            rough=rough,
            likeliest=_likeliest(self.tables, fit.losses) if told.slow else (),
        )

    def _is_common(self, rivals: Sequence[Fit]) -> bool:
        """Whether the best places of all of these are of one host."""
        best = [self.tables.places[int(fit.losses.argmin())] for fit in rivals]
        return bool(set.intersection(*({h for one in own for h in one.homes} for own in best)))

    def _freed(self, given: Sequence[float], number: int) -> Fit:
        hosts = tuple(self.offsets_ns)
        fit = one_free(self.kinds, self.tables.paths, hosts, given, number, self.bounds)
        if self.bounds is None:
            return fit
        wrong = self.bounds.broken(fit.offsets)
        return fit._replace(losses=np.where(wrong, np.inf, fit.losses))

    def _beside(self, clocks_ns: Mapping[Home, int]) -> list[float]:
        """What these clocks add beside what was given, ms per host."""
        return [1e-6 * (clocks_ns[one] - self.given_ns[one]) for one in self.offsets_ns]


def weigh(
    columns: Sequence[Mapping[int, Call]],
    host: Mapping[int, Hashable],
    correction: Mapping[int, int],
) -> Weighed | None:
    """Weigh slow places with free clocks; ``correction`` (ns per rank) is what clocks are given.

    None where there are fewer than three hosts or too few ring collectives that all ranks are in.
    """
    kinds = kinds_of(columns, host, correction)
    hosts = sorted({one for kind in kinds for one in kind.hosts}, key=str)
    if len(hosts) < 3:
        return None
    tables = hypotheses_of(kinds, host)
    numbers = max(table.size for table in tables.paths)
    kinds = [kind.thinned(max(FEWEST_CALLS, _MOST_NUMBERS // numbers)) for kind in kinds]
    bounds = bounds_of(columns, host, lambda time, rank: time + correction[rank], gloo=True)
    bounds = bounds and bounds.of(hosts)
    fit = best_offsets(kinds, tables.paths, hosts)
    best = float(fit.losses.min())  # how good the model is, whatever the clocks
    if bounds is not None:
        fit = _possible(fit, kinds, tables.paths, bounds)
    given = {
        one: int(np.median([by for rank, by in correction.items() if host.get(rank) == one]))
        for one in hosts
    }
    told = _told(fit, tables, kinds, hosts, best, misfit=_misfits(best, kinds))
    return told._replace(bounds=bounds, given_ns=given)


def _told(
    fit: Fit,
    tables: Hypotheses,
    kinds: Sequence[Calls],
    hosts: Sequence[Home],
    best: float | None = None,
    *,
    misfit: bool,
) -> Weighed:
    """What a fit says of slow places; ``best``: how well the calls can be explained at all."""
    best = float(fit.losses.min()) if best is None else best
    near, nothing = _near(tables, fit.losses, best)
    slow = _explains(best, nothing) and not misfit and bool(near)
    chosen, decided = _common(tables, near if slow else ())
    shares = _shares(tables, fit.losses, near, best)
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
        tables=tables,
        given_ns=dict.fromkeys(hosts, 0),
    )


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


def _likeliest(tables: Hypotheses, losses: Floats) -> tuple[Location, ...]:
    number = int(losses.argmin())
    best = float(losses[number])
    if not (np.isfinite(best) and _explains(best, float(losses[0]))):
        return ()
    alike = [tables.places[other] for other in np.flatnonzero(losses <= best + NEAR_LOSS)]
    hosts = {one for place in tables.places[number] for one in place.homes}
    shared = all(any(hosts & {*place.homes} for place in places) for places in alike)
    return tables.places[number] if shared else ()


def _near(tables: Hypotheses, losses: Floats, best: float) -> tuple[list[int], float]:
    """The best hypothesis of each place that explains the calls about as well as ``best``, the best
    first; and the loss of no slow place."""
    least: dict[tuple[Location, ...], int] = {}
    for number, places in enumerate(tables.places):
        if places and (places not in least or losses[number] < losses[least[places]]):
            least[places] = number
    ranked = sorted(least.values(), key=lambda number: losses[number])
    return [n for n in ranked if losses[n] <= _NEAR * best + NEAR_LOSS], float(losses[0])


def _shares(tables: Hypotheses, losses: Floats, near: Sequence[int], best: float) -> list[float]:
    """The shares with which the near places explain the calls about as well, ascending."""
    likely = {tables.places[number] for number in near}
    found = [
        share
        for places, share, loss in zip(tables.places, tables.shares, losses, strict=True)
        if places in likely and loss <= _NEAR * best + NEAR_LOSS
    ]
    return sorted(found) or [0.0]


def _misfits(loss: float, kinds: Sequence[Calls]) -> bool:
    """Whether so much is left that the calls are no such rings."""
    return loss > _MISFIT * sum(len(kind.ranks) for kind in kinds)


def _explains(best: float, nothing: float) -> bool:
    """Whether a slow place explains the calls so much better than none does."""
    return nothing >= _EXPLAINS * best + _EXPLAINS_LOSS


def _common(tables: Hypotheses, near: Sequence[int]) -> tuple[int, bool]:
    """The hypothesis to go by, and whether all are of one host: then its link as a whole if it is
    among them, else the best."""
    touched = [{one for place in tables.places[n] for one in place.homes} for n in near]
    common = set.intersection(*touched) if touched else set()
    for number in near:
        for place in tables.places[number]:
            if place.kind == "both" and place.homes[0] in common:
                return number, True
    return (near[0] if near else 0), bool(common)
