"""Sets of time: disjoint, sorted, half-open intervals of int64 nanoseconds in numpy arrays.

Every union, intersection and difference is a sweep over the sorted end points, so that each
costs O(n log n) and stays exact: durations of concurrent events are never added up.
Small ranks come by the thousand: what is asked here is asked in few calls of numpy.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Intervals:
    """Disjoint half-open intervals ``[start, end)``, sorted, none empty, none touching."""

    start: Int64s
    end: Int64s

    @classmethod
    def of(cls, start: ArrayLike, end: ArrayLike) -> "Intervals":
        """The union of any spans; empty and negative ones are left out."""
        starts = np.asarray(start, dtype=np.int64)
        ends = np.asarray(end, dtype=np.int64)
        keep = ends > starts
        starts, ends = starts[keep], ends[keep]
        if len(starts) < 2:
            return cls(starts, ends)
        order = starts.argsort(kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        apart = starts[1:] > ends[:-1]
        first, last = np.ones((2, len(starts)), dtype=bool)
        first[1:], last[:-1] = apart, apart
        return cls(starts[first], ends[last])

    @classmethod
    def empty(cls) -> "Intervals":
        """No time at all."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        """Total time, ns."""
        return int((self.end - self.start).sum())

    def contains(self, points: ArrayLike) -> Bools:
        """For each point whether it lies in the set."""
        at = np.asarray(points, dtype=np.int64)
        if not len(self):
            return np.zeros(at.shape, dtype=bool)
        index = self.start.searchsorted(at, side="right") - 1
        inside: Bools = (index >= 0) & (at < self.end[np.maximum(index, 0)])
        return inside

    def covered(self, low: ArrayLike, high: ArrayLike) -> Int64s:
        """Time of the set within each window ``[low, high)``, ns, by prefix sums."""
        lows = np.asarray(low, dtype=np.int64)
        highs = np.maximum(np.asarray(high, dtype=np.int64), lows)
        return self._before(highs) - self._before(lows)

    def within(self, low: int, high: int) -> int:
        """As :meth:`covered` for one window, in a fifth of the time."""
        first = int(self.end.searchsorted(low, side="right"))
        last = int(self.start.searchsorted(high))
        if last <= first or high <= low:
            return 0
        outside = max(low - self.start[first], 0) + max(self.end[last - 1] - high, 0)
        return int(self._totals[last] - self._totals[first] - outside)

    @cached_property
    def _totals(self) -> Int64s:
        """Time of the set before each of its intervals, and in all, ns."""
        total = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.end - self.start, out=total[1:])
        return total

    def _before(self, points: Int64s) -> Int64s:
        if not len(self):
            return np.zeros(points.shape, dtype=np.int64)
        # Before the first interval lies as little of the set as at its start.
        points = np.maximum(points, self.start[0])
        index = self.start.searchsorted(points, side="right")
        # Less the time of the last interval that starts before the point and lies after it.
        result: Int64s = self._totals[index] - np.maximum(self.end[index - 1] - points, 0)
        return result

    def clip(self, low: int, high: int) -> "Intervals":
        """The part within ``[low, high)``."""
        return Intervals.of(np.maximum(self.start, low), np.minimum(self.end, high))

    def __or__(self, other: "Intervals") -> "Intervals":
        return Intervals.of(
            np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end])
        )

    def __and__(self, other: "Intervals") -> "Intervals":
        return self._where(other, inside=True)

    def __sub__(self, other: "Intervals") -> "Intervals":
        return self._where(other, inside=False)

    def _meeting(self, other: "Intervals") -> "Intervals":
        """Those of ``self`` that meet any of ``other``, found without looking at all of them."""
        first = self.end.searchsorted(other.start, side="right")
        count = self.start.searchsorted(other.end) - first
        index = (first - count.cumsum() + count).repeat(count) + np.arange(count.sum())
        index = index[_unlike(index)]
        return Intervals(self.start[index], self.end[index])

    def _where(self, other: "Intervals", *, inside: bool) -> "Intervals":
        """The part of ``self`` that lies inside ``other``, or outside of it."""
        if not len(self):
            return self
        other = other._meeting(self) if len(other) else other
        if not len(other):
            return other if inside else self
        points = np.concatenate([self.start, self.end, other.start, other.end])
        points.sort()
        points = points[_unlike(points)]
        keep = self.contains(points[:-1]) & (other.contains(points[:-1]) == inside)
        return Intervals.of(points[:-1][keep], points[1:][keep])


def _unlike(values: Int64s) -> Bools:
    """Which of them differ from the one before."""
    found = np.ones(len(values), dtype=bool)
    found[1:] = values[1:] != values[:-1]
    return found


def last_holding(low: ArrayLike, high: ArrayLike, times: ArrayLike) -> Int64s:
    """For each time the index of the last window ``[low, high)`` that holds it; -1: none does.

    The windows may overlap and come in any order: each claims, from the last on, what is still
    free between two end points, in O(n log n).
    """
    lows, highs = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
    if (highs[:-1] <= lows[1:]).all() and (lows[:-1] <= lows[1:]).all():  # one after the other
        asked = np.asarray(times, dtype=np.int64)
        last: Int64s = lows.searchsorted(asked, side="right") - 1
        return np.where(asked < highs[last], last, -1) if len(lows) else last
    points = np.unique(np.concatenate([lows, highs]))
    first = np.searchsorted(points, lows).tolist()
    until = np.searchsorted(points, highs).tolist()
    free = list(range(len(points) + 1))  # a stretch, or one behind it that may be free
    holder = np.full(len(points) + 1, -1, dtype=np.int64)
    for index in range(len(first) - 1, -1, -1):
        at = first[index]
        while True:
            while free[at] != at:
                free[at] = at = free[free[at]]
            if at >= until[index]:
                break
            holder[at], free[at] = index, at + 1
    found: Int64s = holder[np.searchsorted(points, np.asarray(times), side="right") - 1]
    return found
