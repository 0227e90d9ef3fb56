"""Fits one offset per host and one time per kind of call to starts and ends of ring collectives.

Each hypothesis is a table of paths (schedule.paths): a rank's end is the latest of all starts
plus their paths to it. Where the latest start is known this is linear, so that the fit goes back
and forth between the two, from two beginnings; calls that fit badly weigh little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.clocks.bounds import Bounds
from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.locations import Home
from advisor.metrics.timeline.statistics import Floats

ENDS = 0.04
"""Ends within a call are off the model by this share of the call's time."""
CALL = 0.10
"""All ends of a call are, and its time is off what sizes and rates say."""
CUT, CUT_CALL = 9.0, 4.0
"""Residuals beyond these do not count more (squares of standard errors)."""
WEIGHT = 12.0
"""Calls of one kind are alike: all of them weigh as this many."""
# Ranks wake up this late.
_WAKE_MS = 0.1
_ROUNDS = 10  # until offsets and times agree
_LEAST_TIME = 0.1  # of the shortest duration of a call


class Calls(NamedTuple):
    """Starts and ends of one kind of call, ms; a row per call, a column per place in the ring."""

    op: str
    ranks: tuple[int, ...]
    hosts: tuple[Home, ...]
    starts: Floats
    ends: Floats

    @property
    def time(self) -> float:
        """What a call takes the rank that comes last, ms: clocks do not matter to it."""
        return max(float(np.median((self.ends - self.starts).min(axis=1))), 1e-3)

    def thinned(self, most: int) -> Calls:
        """At most so many of the calls, evenly."""
        every = max(1, -(-len(self.starts) // most))
        return self._replace(starts=self.starts[::every], ends=self.ends[::every])


class Fit(NamedTuple):
    """Per hypothesis: its loss, the offsets to add per host (ms), and per kind each call's loss."""

    losses: Floats
    offsets: Floats
    each: list[Floats]


def calls_of(
    columns: Sequence[Mapping[int, Call]],
    op: str,
    ranks: tuple[int, ...],
    hosts: tuple[Home, ...],
    correction: Sequence[int],
) -> Calls:
    """The calls of one kind, relative to the middle of each call's ends."""
    shift = np.array(correction, dtype=np.int64)
    starts = np.array([[c[rank].start for rank in ranks] for c in columns], dtype=np.int64) + shift
    ends = np.array([[c[rank].end for rank in ranks] for c in columns], dtype=np.int64) + shift
    middle = np.sort(ends, axis=1)[:, ends.shape[1] // 2][:, None]
    return Calls(
        op,
        ranks,
        hosts,
        (starts - middle).astype(np.float64) * 1e-6,
        (ends - middle).astype(np.float64) * 1e-6,
    )


def best_offsets(
    kinds: Sequence[Calls],
    tables: Sequence[Floats],
    hosts: Sequence[Home],
    bounds: Bounds | None = None,
) -> Fit:
    """Each hypothesis at its best; ``tables`` has its paths for each of the ``kinds``, ``bounds``
    hold the clocks of the ``hosts``."""
    problem = _Problem(kinds, tables, hosts)
    times = problem.times()
    found = [
        problem.solve(begin, times, bounds=bounds)
        for begin in (problem.staggered(times), problem.together())
    ]
    return _better(*found)


def losses_at(
    kinds: Sequence[Calls],
    tables: Sequence[Floats],
    hosts: Sequence[Home],
    offsets: Sequence[float],
) -> Floats:
    """The losses of the hypotheses with ``offsets`` (ms to add per host) instead of fitted ones."""
    problem = _Problem(kinds, tables, hosts)
    given = np.tile(np.array(offsets, dtype=np.float64), (len(tables[0]), 1))
    return problem.solve(given, problem.times(), free=np.zeros(len(hosts), dtype=bool)).losses


def one_free(
    kinds: Sequence[Calls],
    tables: Sequence[Floats],
    hosts: Sequence[Home],
    given: Sequence[float],
    number: int,
    bounds: Bounds | None = None,
) -> Fit:
    """Each hypothesis at its best if all clocks are as ``given`` (ms to add per host), and only
    that of host ``number`` is anything."""
    problem = _Problem(kinds, tables, hosts)
    times = problem.times()
    free = np.arange(len(hosts)) == number
    found = []
    for begin in (problem.staggered(times), problem.together()):
        start = np.tile(np.array(given, dtype=np.float64), (len(begin), 1))
        # The others stay: theirs is the common part of what the beginning adds.
        common = np.median(begin[:, ~free] - start[:, ~free], axis=1)
        start[:, number] = begin[:, number] - common
        found.append(problem.solve(start, times, free=free, bounds=bounds))
    return _better(*found)


def _better(first: Fit, second: Fit) -> Fit:
    use = second.losses < first.losses
    return Fit(
        np.where(use, second.losses, first.losses),
        np.where(use[:, None], second.offsets, first.offsets),
        [np.where(use[:, None], b, a) for a, b in zip(first.each, second.each, strict=True)],
    )


class _Problem:
    """The calls, the hypotheses, and which host each place of each ring is on."""

    def __init__(
        self, kinds: Sequence[Calls], tables: Sequence[Floats], hosts: Sequence[Home]
    ) -> None:
        self.kinds, self.tables = kinds, tables
        self.hosts = len(hosts)
        self.at = [np.array([hosts.index(one) for one in kind.hosts]) for kind in kinds]
        self.least = np.array([_LEAST_TIME * kind.time for kind in kinds])

    def times(self) -> Floats:
        """What a call takes by each hypothesis, by kind: from the rank that comes last."""
        return np.stack(
            [
                kind.time / np.median(np.diagonal(table, axis1=1, axis2=2), axis=1)
                for kind, table in zip(self.kinds, self.tables, strict=True)
            ],
            axis=1,
        )

    def together(self) -> Floats:
        """Offsets with which all ranks leave together."""
        return self._offsets([np.zeros(table.shape[:2]) for table in self.tables])

    def staggered(self, times: Floats) -> Floats:
        """Offsets with which ranks leave as they would if all came at once."""
        return self._offsets(
            [times[:, n, None] * table.max(axis=2) for n, table in enumerate(self.tables)]
        )

    def _offsets(self, patterns: Sequence[Floats]) -> Floats:
        total = np.zeros((len(patterns[0]), self.hosts))
        count = np.zeros(self.hosts)
        for kind, at, pattern in zip(self.kinds, self.at, patterns, strict=True):
            late = np.median(kind.ends, axis=0)
            for place, number in enumerate(at):
                total[:, number] += pattern[:, place] - np.median(pattern, axis=1) - late[place]
                count[number] += 1
        result: Floats = total / np.maximum(count, 1)
        return result

    def solve(
        self,
        offsets: Floats,
        times: Floats,
        *,
        free: NDArray[np.bool_] | None = None,
        bounds: Bounds | None = None,
    ) -> Fit:
        """Fit from a beginning; ``bounds`` hold the offsets, and those of hosts that are not
        ``free`` stay as they are."""
        moves = np.ones(self.hosts + len(self.kinds), dtype=bool)
        if free is not None:
            moves[: self.hosts] = free
        size = len(moves)
        for _ in range(_ROUNDS):
            normal = np.zeros((len(offsets), size, size))
            target = np.zeros((len(offsets), size))
            for number in range(len(self.kinds)):
                self._add(number, offsets, times, normal, target)
            diagonal = np.arange(size)
            normal[:, diagonal, diagonal] *= 1 + 1e-4
            normal[:, diagonal, diagonal] += 1e-6
            if free is None:
                normal[:, : self.hosts, : self.hosts] += 1.0  # the offsets' sum is nobody's
            step = np.zeros_like(target)
            step[:, moves] = np.linalg.solve(normal[:, moves][:, :, moves], target[:, moves, None])[
                ..., 0
            ]
            offsets = offsets + step[:, : self.hosts]
            if bounds is not None:
                offsets = bounds.nearest(offsets) if free is None else bounds.held(offsets, free)
            times = np.maximum(times + step[:, self.hosts :], self.least)
        each = [
            _loss(*self._residuals(number, offsets, times)[:2]) for number in range(len(self.kinds))
        ]
        return Fit(WEIGHT * sum(one.mean(axis=1) for one in each), offsets, each)

    def _residuals(
        self, number: int, offsets: Floats, times: Floats
    ) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.intp]]:
        """Within calls and of whole calls (in standard errors), these errors, who came last."""
        kind, table = self.kinds[number], self.tables[number]
        own = offsets[:, None, self.at[number]]
        came = (kind.starts[None] + own)[:, :, None, :]
        reach = came + (times[:, number, None, None] * table)[:, None, :, :]
        last = reach.argmax(axis=3)
        away = kind.ends[None] + own - np.take_along_axis(reach, last[..., None], 3)[..., 0]
        whole = away.mean(axis=2)
        unit = times[:, number]
        errors = np.stack([np.hypot(ENDS * unit, _WAKE_MS), np.hypot(CALL * unit, _WAKE_MS)])
        inner = (away - whole[:, :, None]) / errors[0][:, None, None]
        return inner, whole / errors[1][:, None], errors[0], errors[1], last

    def _add(
        self, number: int, offsets: Floats, times: Floats, normal: Floats, target: Floats
    ) -> None:
        """Add one kind's calls to the normal equations."""
        inner, whole, end_error, call_error, last = self._residuals(number, offsets, times)
        table, at = self.tables[number], self.at[number]
        trials, calls, count = inner.shape
        slopes = np.zeros((trials, calls, count, normal.shape[1]))
        slopes[:, :, np.arange(count), at] = 1.0
        trial, call, place = np.ogrid[:trials, :calls, :count]
        slopes[trial, call, place, at[last]] -= 1.0
        slopes[..., self.hosts + number] = -table[trial, place, last]
        middle = slopes.mean(axis=2)
        slopes = (slopes - middle[:, :, None]) / end_error[:, None, None, None]
        middle /= call_error[:, None, None]
        rows = slopes.reshape(trials, calls * count, -1)
        for one, left, cut in (
            (rows, inner.reshape(trials, -1), CUT),
            (middle, whole, CUT_CALL),
        ):
            weighed = (one / (1 + left**2 / cut)[..., None]).transpose(0, 2, 1)
            normal += weighed @ one / calls
            target -= (weighed @ left[..., None])[..., 0] / calls


def _loss(inner: Floats, whole: Floats) -> Floats:
    """Per hypothesis and call."""
    result: Floats = np.minimum(inner**2, CUT).sum(axis=2) + np.minimum(whole**2, CUT_CALL)
    return result
