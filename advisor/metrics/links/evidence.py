"""The ends of ring collectives, as staggers.py explains them: who left how much after whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.clocks.fit import WEIGHT
from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.match import widest
from advisor.metrics.rings.informative_calls import informative_kinds, kind_of
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.schedule import GLOO_RINGS, SEGMENTS, segments
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.statistics import Floats, spread

_FEWEST_CALLS = 5
"""The spread of fewer ends, a median absolute deviation, says nothing."""
# The model's ends are off by this part of the stagger, and ranks wake up this late.
_MODEL_ERROR = 0.15
_WAKE_NS = 150_000


class Ring(NamedTuple):
    """The ends of one group's calls of one operation: ``lags`` has a row per call, in shares of
    the call's time, a column per rank of ``known``.

    Ends are compared among ranks of the same number in ``alike`` only: a clock that may hold
    stagger tells nothing of its ranks' ends against others'.
    """

    group: str | None
    op: str
    ranks: tuple[int, ...]
    known: tuple[int, ...]
    alike: tuple[int, ...]
    sure: bool  # whether a small offset of one of the clocks would have shown
    lags: Floats
    errors: Floats
    independent: float
    """How many calls the rows are worth: in a step, who came late to one call comes late to the
    next, and ends late because it came late."""
    segments: int = SEGMENTS
    """Of a chunk, in the calls that hold most bytes: the others' ends are left out."""


def observe(
    group: str | None,
    ranks: Sequence[int],
    columns: Sequence[Mapping[int, Call]],
    clocks: Mapping[int, Clock],
    home: Mapping[int, Home],
) -> Ring | None:
    """The ends of the calls of one operation and group; None where they can show nothing.

    One of the group's ranks may be missing (its file was lost or cut), or all of one host may have
    a clock of their own: the ends of the others still show the pattern, where at least three are
    left.
    """
    op = wire_name(next(iter(columns[0].values())))
    count = len(ranks)
    if op not in GLOO_RINGS or count < 2:
        return None
    large, each = _cut_alike(op, count, _telling(columns))
    if len(large) < _FEWEST_CALLS:
        return None
    # Where a rank is cut, calls of its own still tell more: what the model is good for stays.
    whole = sum(column.keys() >= set(ranks) for column in large)
    read = ranks if whole >= WEIGHT else widest(large)
    known = [rank for rank in ranks if rank in read]
    usable = [c for c in large if c.keys() >= set(known)]
    alike = _alike_clocks(known, clocks, home)
    if len(known) < max(count - 1, min(count, 3)) or alike.count(0) < min(count, 3):
        return None
    last = np.array(
        [[aligned(c[rank].end, rank, clocks) for rank in known] for c in usable], dtype=np.int64
    ).reshape(len(usable), len(known))
    times = np.array([max(c[rank].transfer or 0 for rank in known) for c in usable], dtype=float)
    steps = np.array([next(iter(c.values())).step or 0 for c in usable])[times > 0]
    last, times = last[times > 0], times[times > 0]
    if len(last) < _FEWEST_CALLS:
        return None
    late = (last - last.min(axis=1, keepdims=True)).astype(np.float64)
    lags = late / times[:, None]
    typical = float(np.median(times))
    doubt = np.array([0.5 * clocks[r].residual_ns if r in clocks else 0.0 for r in known])
    apart = lags - lags.mean(axis=1)[:, None]
    scatter = np.array([spread(column) for column in apart.T])
    independent = _independent(apart, steps)
    noise = 1.25 * scatter / np.sqrt(independent)
    stagger = _MODEL_ERROR * float(np.ptp(np.median(lags, axis=0)))
    errors = np.sqrt(noise**2 + stagger**2 + (doubt**2 + _WAKE_NS**2) / typical**2)
    return Ring(
        group=group,
        op=op,
        ranks=tuple(ranks),
        known=tuple(known),
        alike=alike,
        sure=any(alike) or all(clocks[r].identified for r in known if r in clocks),
        lags=centred(lags, errors, alike),
        errors=errors,
        segments=each,
        independent=independent,
    )


def _cut_alike(
    op: str, count: int, columns: Sequence[Mapping[int, Call]]
) -> tuple[list[Mapping[int, Call]], int]:
    """The calls whose chunks are cut into as many segments as most bytes are, and how many."""
    by_cut: dict[int, list[Mapping[int, Call]]] = defaultdict(list)
    moved: dict[int, int] = defaultdict(int)
    for column in columns:
        size = next(iter(column.values())).bytes or 0
        each = segments(op, count, size)
        by_cut[each].append(column)
        moved[each] += size
    each = max(
        (n for n in by_cut if len(by_cut[n]) >= _FEWEST_CALLS), key=moved.__getitem__, default=0
    )
    return by_cut[each], each


def _independent(rows: Floats, steps: Int64s) -> float:
    """The number of rows less what they tell twice: by how much the means of steps scatter more
    than those of as many independent rows (the design effect of samples in clusters, Kish 1965), on
    the mean over the ranks: the largest of estimates from few steps is too large."""
    names, of_row, sizes = np.unique(steps, return_inverse=True, return_counts=True)
    if len(names) < 2:
        return float(len(rows))
    sums = np.zeros((len(names), rows.shape[1]))
    np.add.at(sums, of_row, rows - rows.mean(axis=0))
    effect = (sums**2).mean(axis=0) / np.maximum(sizes.mean() * rows.var(axis=0), 1e-12)
    return len(rows) / float(np.clip(effect.mean(), 1.0, sizes.max()))


def freed(ring: Ring, own: Home, home: Mapping[int, Home]) -> Ring | None:
    """The same if one host's clock is off; None where too little is left to compare."""
    alike = tuple(int(home[rank] == own) for rank in ring.known)
    if alike.count(0) < min(len(ring.ranks), 3):
        return None
    lags = centred(ring.lags, ring.errors, alike)
    before = _MODEL_ERROR * float(np.ptp(np.median(ring.lags, axis=0)))
    after = _MODEL_ERROR * float(np.ptp(np.median(lags, axis=0)))
    errors = np.sqrt(ring.errors**2 - before**2 + after**2)
    return ring._replace(alike=alike, lags=centred(ring.lags, errors, alike), errors=errors)


def centred(rows: Floats, errors: Floats, alike: Sequence[int]) -> Floats:
    """Rows less their weighted mean, over the columns of each number in ``alike``."""
    result: Floats = np.array(rows, dtype=np.float64)
    for number in set(alike):
        own = [place for place, value in enumerate(alike) if value == number]
        middle = np.average(result[:, own], axis=1, weights=errors[own] ** -2.0)
        result[:, own] -= middle[:, None]
    return result


def _alike_clocks(
    known: Sequence[int], clocks: Mapping[int, Clock], home: Mapping[int, Home]
) -> tuple[int, ...]:
    """0 for ranks whose clocks are known, one number for each host whose clock is not."""
    unsure = [rank in clocks and clocks[rank].ambiguous for rank in known]
    if unsure.count(False) < min(len(known), 3):
        # Too few are left: fitted clocks will do, as well as they are known.
        unsure = [
            is_unsure and not clocks[rank].fitted
            for rank, is_unsure in zip(known, unsure, strict=True)
        ]
    hosts = sorted(
        {str(home[rank]) for rank, is_unsure in zip(known, unsure, strict=True) if is_unsure}
    )
    return tuple(
        1 + hosts.index(str(home[rank])) if is_unsure else 0
        for rank, is_unsure in zip(known, unsure, strict=True)
    )


def _telling(columns: Sequence[Mapping[int, Call]]) -> list[Mapping[int, Call]]:
    """The calls that show a link, of those whose ranks were compared."""
    kinds = informative_kinds(columns)
    own = ((column, next(iter(column.values()))) for column in columns)
    return [c for c, call in own if call.last_rank is not None and kind_of(call) in kinds]
