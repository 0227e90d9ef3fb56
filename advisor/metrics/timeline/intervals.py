"""Sets of time: disjoint, sorted, half-open intervals of int64 nanoseconds in numpy arrays.

Every union, intersection and difference is a sweep over the sorted end points, so that each
costs O(n log n) and stays exact: durations of concurrent events are never added up.
"""

from __future__ import annotations

from collections.abc import Callable
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
    def of(cls, start: ArrayLike, end: ArrayLike) -> Intervals:
        """The union of any spans; empty and negative ones are left out."""
        starts = np.asarray(start, dtype=np.int64)
        ends = np.asarray(end, dtype=np.int64)
        keep = ends > starts
        starts, ends = starts[keep], ends[keep]
        if not len(starts):
            return cls.empty()
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        first = np.empty(len(starts), dtype=bool)
        first[0] = True
        first[1:] = starts[1:] > ends[:-1]
        last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
        return cls(starts[first], ends[last])

    @classmethod
    def empty(cls) -> Intervals:
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
        index = np.searchsorted(self.start, at, side="right") - 1
        inside: Bools = (index >= 0) & (at < self.end[np.maximum(index, 0)])
        return inside

    def covered(self, low: ArrayLike, high: ArrayLike) -> Int64s:
        """Time of the set within each window ``[low, high)``, ns, by prefix sums."""
        lows = np.asarray(low, dtype=np.int64)
        highs = np.maximum(np.asarray(high, dtype=np.int64), lows)
        return self._before(highs) - self._before(lows)

    @cached_property
    def _totals(self) -> Int64s:
        """Time of the set before each of its intervals, and in all, ns."""
        total = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.end - self.start, out=total[1:])
        return total

    def _before(self, points: Int64s) -> Int64s:
        if not len(self):
            return np.zeros(points.shape, dtype=np.int64)
        total = self._totals
        index = np.searchsorted(self.start, points, side="right")
        previous = np.maximum(index - 1, 0)
        # Time of the last interval that starts before the point and lies after it.
        excess = np.where(index > 0, np.maximum(self.end[previous] - points, 0), 0)
        result: Int64s = total[index] - excess
        return result

    def clip(self, low: int, high: int) -> Intervals:
        """The part within ``[low, high)``."""
        return Intervals.of(np.maximum(self.start, low), np.minimum(self.end, high))

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.of(
            np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end])
        )

    def __and__(self, other: Intervals) -> Intervals:
        return self._where(other, np.logical_and)

    def __sub__(self, other: Intervals) -> Intervals:
        return self._where(other, lambda here, there: here & ~there)

    def _meeting(self, other: Intervals) -> Intervals:
        """Those of ``self`` that meet any of ``other``, found without looking at all of them."""
        first = np.searchsorted(self.end, other.start, side="right")
        count = np.searchsorted(self.start, other.end) - first
        index = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        index = index[np.append(True, index[1:] != index[:-1])] if len(index) else index
        return Intervals(self.start[index], self.end[index])

    def _where(self, other: Intervals, test: Callable[[Bools, Bools], Bools]) -> Intervals:
        if not len(self):
            return self
        other = other._meeting(self)
        points = np.concatenate([self.start, self.end, other.start, other.end])
        points.sort()
        points = points[np.append(True, points[1:] != points[:-1])]
        keep = test(self.contains(points[:-1]), other.contains(points[:-1]))
        return Intervals.of(points[:-1][keep], points[1:][keep])


def last_holding(low: ArrayLike, high: ArrayLike, times: ArrayLike) -> Int64s:
    """For each time the index of the last window ``[low, high)`` that holds it; -1: none does.

    The windows may overlap and come in any order: each claims, from the last on, what is still
    free between two end points, in O(n log n).
    """
    lows, highs = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
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
