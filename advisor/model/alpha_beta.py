"""Latency-bandwidth (alpha-beta) cost of a collective, fitted to measured times.

t = k * alpha + m * S * beta with alpha the latency of a hop, beta the inverse bandwidth of the
slowest link, S the message size as nccl-tests counts it; k and m depend on the operation, the
algorithm and the number of ranks (Thakur, Rabenseifner, Gropp, "Optimization of Collective
Communication Operations in MPICH", 2005; Hockney 1994 for the model).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advisor.vocabulary.bandwidth import bus_factor

Floats = NDArray[np.float64]

_ROUNDS = 25
_HUBER = 1.345
_BOOTSTRAPS = 200
_SEED = 20_26
_FREE = 2  # the terms of the line
_LEAST = 0.05  # of a time on the line that a resampled one keeps
# Calls of two sizes differ by a tenth for other reasons too. Of sizes of a ratio r, that moves the
# latency's share by a tenth of r / (r - 1): under this ratio by half and more.
_SPAN = 1.25
# More distinct sizes than this are put in bins of an eighth of an octave.
_MOST_SIZES = 48


class AlphaBeta(NamedTuple):
    """A fit. Times ns, sizes bytes; ``*_low`` and ``*_high`` bound 95 % (bootstrap) and hold it.

    ``alpha_ns`` is None when all messages have about one size: latency cannot be told apart then
    and ``beta`` holds all of the time, an upper bound.
    """

    k: float
    m: float
    alpha_ns: float | None
    alpha_low_ns: float | None
    alpha_high_ns: float | None
    beta_ns_per_byte: float
    beta_low_ns_per_byte: float
    beta_high_ns_per_byte: float
    samples: int
    sizes: int
    smallest_bytes: int
    largest_bytes: int
    r2: float | None

    @property
    def n_star_bytes(self) -> float | None:
        """Size at which latency and bandwidth cost the same; None when it cannot be told."""
        if self.alpha_ns is None or self.beta_ns_per_byte <= 0 or self.m <= 0:
            return None
        return self.k * self.alpha_ns / (self.m * self.beta_ns_per_byte)

    def time_ns(self, size_bytes: float) -> float:
        """Predicted time of one call, ns."""
        latency = self.k * self.alpha_ns if self.alpha_ns is not None else 0.0
        return latency + self.m * size_bytes * self.beta_ns_per_byte

    def latency_share(self, size_bytes: float) -> float | None:
        """Part of the predicted time that does not depend on the size; None when unknown."""
        if self.alpha_ns is None:
            return None
        time = self.time_ns(size_bytes)
        return self.k * self.alpha_ns / time if time > 0 else None


def terms(op: str, ranks: int, algorithm: str = "ring") -> tuple[float, float] | None:
    """(k, m) of an operation on ``ranks`` ranks; None for operations without data or unknown.

    ``algorithm`` is 'ring' or 'tree'; operations that have only one form take it.
    """
    carried = bus_factor(op, ranks)
    if ranks < 2 or carried is None:
        return None
    hops = math.ceil(math.log2(ranks))
    tree = algorithm == "tree"
    if op == "all_reduce":
        return (2.0 * hops, 2.0) if tree else (2.0 * (ranks - 1), carried)
    if op in ("all_gather", "reduce_scatter"):
        return float(hops if tree else ranks - 1), carried
    if op in ("all_to_all", "gather", "scatter"):
        return float(ranks - 1), carried
    if op in ("broadcast", "reduce"):
        return float(hops), carried
    return (1.0, carried) if op in ("send", "recv") else None


def fit(
    op: str,
    ranks: int,
    sizes_bytes: ArrayLike,
    times_ns: ArrayLike,
    algorithm: str = "ring",
    *,
    misfit: bool = False,
) -> AlphaBeta | None:
    """Fit alpha and beta to measured calls of one operation on one number of ranks.

    Robust (medians per size, Huber weights on relative errors) and non-negative. None when the
    operation has no (k, m) or no call has a positive size and time. With ``misfit`` the intervals
    hold how far the sizes lie off one line, as in a benchmark that times each size once or twice;
    else they hold the scatter of calls of one size.
    """
    coefficients = terms(op, ranks, algorithm)
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    times = np.asarray(times_ns, dtype=np.float64)
    usable = (sizes > 0) & (times > 0)
    sizes, times = sizes[usable], times[usable]
    if coefficients is None or not len(sizes):
        return None
    k, m = coefficients
    single = bool(sizes.max() < _SPAN * sizes.min())
    groups = [np.arange(len(sizes))] if single else _by_size(sizes)
    alpha, beta = _solve(*_medians(groups, sizes, times), k, m)
    generator = np.random.default_rng(_SEED)
    draws = []
    if misfit and len(groups) > _FREE:
        centres, typical, counts = _medians(groups, sizes, times)
        line = k * alpha + m * centres * beta
        # Two terms are fitted, so that what is left of few sizes understates their errors.
        off = (typical / line - 1.0) * math.sqrt(len(groups) / (len(groups) - _FREE))
        for _ in range(_BOOTSTRAPS):
            moved = 1.0 + off[generator.integers(0, len(off), len(off))]
            draws.append(_solve(centres, line * np.maximum(moved, _LEAST), counts, k, m))
    else:
        for _ in range(_BOOTSTRAPS):
            picked = [g[generator.integers(0, len(g), len(g))] for g in groups]
            draws.append(_solve(*_medians(picked, sizes, times), k, m))
    low, high = np.quantile(np.array(draws), [0.025, 0.975], axis=0)
    low, high = np.minimum(low, (alpha, beta)), np.maximum(high, (alpha, beta))
    predicted = k * alpha + m * sizes * beta
    total = float(((times - times.mean()) ** 2).sum())
    return AlphaBeta(
        k=k,
        m=m,
        alpha_ns=None if single else alpha,
        alpha_low_ns=None if single else float(low[0]),
        alpha_high_ns=None if single else float(high[0]),
        beta_ns_per_byte=beta,
        beta_low_ns_per_byte=float(low[1]),
        beta_high_ns_per_byte=float(high[1]),
        samples=len(sizes),
        sizes=len(np.unique(sizes)) if single else len(groups),
        smallest_bytes=int(sizes.min()),
        largest_bytes=int(sizes.max()),
        r2=1.0 - float(((times - predicted) ** 2).sum()) / total
        if total > 0 and not single
        else None,
    )


def _by_size(sizes: Floats) -> list[NDArray[np.intp]]:
    keys = sizes if len(np.unique(sizes)) <= _MOST_SIZES else np.round(np.log2(sizes) * 8)
    return [np.flatnonzero(keys == key) for key in np.unique(keys)]


def _medians(
    groups: Sequence[NDArray[np.intp]], sizes: Floats, times: Floats
) -> tuple[Floats, Floats, Floats]:
    return (
        np.array([sizes[g].sum() / len(g) for g in groups]),
        np.array([_median(times[g]) for g in groups]),
        np.array([float(len(g)) for g in groups]),
    )


def _median(values: Floats) -> float:
    """As np.median, which takes ten times as long for the few values that there are here."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _solve(sizes: Floats, times: Floats, counts: Floats, k: float, m: float) -> tuple[float, float]:
    """Weighted, robust, non-negative least squares on relative errors; (alpha, beta)."""
    if len(sizes) == 1:
        return 0.0, float(times[0] / (m * sizes[0]))
    # Errors grow with the time itself, so they are compared as shares of it.
    design = np.stack([k / times, m * sizes / times], axis=1)
    weights = np.sqrt(counts)
    alpha = beta = 0.0
    for _ in range(_ROUNDS):
        new = _non_negative(design, weights)
        error = np.abs(design @ np.array(new) - 1.0)
        scale = max(1.4826 * _median(error), 1e-9)
        weights = np.sqrt(counts) * np.minimum(1.0, _HUBER * scale / np.maximum(error, 1e-12))
        if all(
            abs(now - before) <= 1e-10 * abs(before)
            for now, before in zip(new, (alpha, beta), strict=True)
        ):
            break
        alpha, beta = new
    return new


def _non_negative(design: Floats, weights: Floats) -> tuple[float, float]:
    """Two-variable non-negative least squares of design @ x = 1: the free solution or an edge."""
    root = np.sqrt(weights)
    a, b = design[:, 0] * root, design[:, 1] * root
    aa, bb, ab = float(a @ a), float(b @ b), float(a @ b)
    at, bt = float(a @ root), float(b @ root)
    determinant = aa * bb - ab * ab
    if determinant > 1e-12 * aa * bb:
        alpha = (at * bb - bt * ab) / determinant
        beta = (bt * aa - at * ab) / determinant
        if alpha >= 0 and beta >= 0:
            return alpha, beta
    only_alpha, only_beta = max(at / aa, 0.0), max(bt / bb, 0.0)
    loss_alpha = float(((a * only_alpha - root) ** 2).sum())
    loss_beta = float(((b * only_beta - root) ** 2).sum())
    return (only_alpha, 0.0) if loss_alpha < loss_beta else (0.0, only_beta)
