"""What clocks cannot be: a collective ends nowhere before the last of its ranks has come.

Every call that waits for all of its ranks bounds how far two clocks differ: by its end on one of
them and its start on the other. The bounds are as wide as the shortest call, which is little where
small messages are sent, and they hold whatever is slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.clocks.prior import MOST_WRONG
from advisor.metrics.collectives.call import TOLERANCE_NS, Call
from advisor.metrics.rings.locations import Home
from advisor.metrics.timeline.statistics import Floats

# No rank leaves one of these before it has something of every other.
_WAITING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})
# Nor of an all-to-all where parts without a byte are sent as well.
_SENDS_EMPTY = frozenset({"all_to_all"})
_FEWEST_CALLS = round(1 / MOST_WRONG)  # of which one may be wrong
_MOST_CALLS = 200  # of each group
# Beyond so many clocks the pairs of them are too many to look at.
_MOST_CLOCKS = 64
_SWEEPS = 100
_BROKEN_MS = 1e-3


class Bounds(NamedTuple):
    """``most[a, b]``: how much more may be added to the clock of place b in ``clocks`` than to that
    of place a, ms; with a tolerance."""

    clocks: tuple[Home, ...]
    most: Floats

    def of(self, clocks: Sequence[Home]) -> Bounds:
        """The bounds among these clocks, in their order; others may be anything."""
        known = {one: number for number, one in enumerate(self.clocks)}
        most = np.full((len(clocks), len(clocks)), np.inf)
        np.fill_diagonal(most, 0.0)
        own = [place for place, one in enumerate(clocks) if one in known]
        at = [known[clocks[place]] for place in own]
        most[np.ix_(own, own)] = self.most[np.ix_(at, at)]
        return Bounds(tuple(clocks), most)

    def broken(self, offsets: Floats) -> NDArray[np.bool_]:
        """Which rows of offsets (ms to add per clock) break a bound."""
        return np.asarray(self._over(offsets).any(axis=(-2, -1)))

    def nearest(self, offsets: Floats) -> Floats:
        """The rows moved until they keep the bounds, each pair that breaks one by half of it."""
        result: Floats = np.array(offsets, dtype=np.float64)
        for _ in range(_SWEEPS):
            over = self._over(result)
            pairs = np.argwhere(over.reshape(-1, *self.most.shape).any(axis=0))
            if not len(pairs):
                break
            for a, b in pairs:
                apart = result[..., b] - result[..., a] - self.most[a, b]
                by = np.maximum(apart, 0.0) / 2
                result[..., b] -= by
                result[..., a] += by
        return result

    def held(self, offsets: Floats, free: NDArray[np.bool_]) -> Floats:
        """The rows with the ``free`` clocks moved as little as keeps their bounds to the others."""
        result: Floats = np.array(offsets, dtype=np.float64)
        for own in np.flatnonzero(free):
            low = (result[:, ~free] - self.most[own, ~free]).max(axis=1)
            high = (result[:, ~free] + self.most[~free, own]).min(axis=1)
            result[:, own] = np.clip(result[:, own], low, np.maximum(low, high))
        return result

    def half_width(self, one: Home, other: Home) -> float:
        """How well the difference of two clocks is known by the bounds alone, ms either way."""
        a, b = self.clocks.index(one), self.clocks.index(other)
        return float(self.most[a, b] + self.most[b, a]) / 2

    def _over(self, offsets: Floats) -> NDArray[np.bool_]:
        apart = offsets[..., None, :] - offsets[..., :, None]
        result: NDArray[np.bool_] = apart > self.most + _BROKEN_MS
        return result


def bounds_of(
    columns: Sequence[Mapping[int, Call]],
    clock: Mapping[int, Home],
    when: Callable[[int, int], int],
    *,
    gloo: bool,
) -> Bounds | None:
    """The bounds on what may be added to the clocks; ``clock`` has the one of each rank.

    ``when`` (of a time and a rank, ns) is what the clocks are given before. ``gloo``: it sends
    empty parts too. None where there is nothing to bound, or where the calls contradict each other
    (clocks that jump, calls paired wrongly).
    """
    waiting = _WAITING | _SENDS_EMPTY if gloo else _WAITING
    usable = [
        column
        for column in columns
        if next(iter(column.values())).op in waiting and len({clock[rank] for rank in column}) > 1
    ]
    clocks = tuple(sorted({clock[rank] for column in usable for rank in column}, key=str))
    if len(clocks) < 2 or len(clocks) > _MOST_CLOCKS:
        return None
    starts, ends = _times(_thinned(usable), clock, when, clocks)
    most = np.full((len(clocks), len(clocks)), np.inf)
    for number in range(len(clocks)):
        # A clock that is not in a call bounds nothing by it: inf less or plus anything.
        left = np.sort(ends[:, number, None] - starts, axis=0)
        count = np.isfinite(left).sum(axis=0)
        place = (MOST_WRONG * count).astype(np.intp)
        told = count >= _FEWEST_CALLS
        most[number, told] = left[place, np.arange(len(clocks))][told] + TOLERANCE_NS / 1e6
    np.fill_diagonal(most, 0.0)
    for number in range(len(clocks)):
        most = np.minimum(most, most[:, number, None] + most[None, number, :])
    return None if np.diagonal(most).min() < 0 else Bounds(clocks, most)


def _thinned(columns: Sequence[Mapping[int, Call]]) -> list[Mapping[int, Call]]:
    """So many calls of each group at most, the shortest: they bound most."""
    by_group: dict[str | None, list[Mapping[int, Call]]] = defaultdict(list)
    for column in columns:
        by_group[next(iter(column.values())).group].append(column)
    return [
        column
        for own in by_group.values()
        for column in sorted(own, key=lambda c: min(call.end - call.start for call in c.values()))[
            :_MOST_CALLS
        ]
    ]


def _times(
    columns: Sequence[Mapping[int, Call]],
    clock: Mapping[int, Home],
    when: Callable[[int, int], int],
    clocks: Sequence[Home],
) -> tuple[Floats, Floats]:
    """The last start and the first end of each call by clock, ms after one of its starts."""
    starts = np.full((len(columns), len(clocks)), -np.inf)
    ends = np.full((len(columns), len(clocks)), np.inf)
    place = {one: number for number, one in enumerate(clocks)}
    for row, column in enumerate(columns):
        origin = when(column[min(column)].start, min(column))
        for rank, call in column.items():
            at = place[clock[rank]]
            starts[row, at] = max(starts[row, at], 1e-6 * (when(call.start, rank) - origin))
            ends[row, at] = min(ends[row, at], 1e-6 * (when(call.end, rank) - origin))
    return starts, ends
