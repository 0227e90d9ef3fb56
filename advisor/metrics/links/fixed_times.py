"""What calls between hosts take whatever their size, beside what NCCL's own hops take.

Ends in a tree show no place, nor do two hosts; but a network that moves a call of a quarter of the
bytes no sooner is not slow by its rate. TCP's round trips, shapers and lost packets do that.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.metrics.links.durations import CALL, Durations
from advisor.metrics.links.expected import USUAL_TIMES, Assumption
from advisor.metrics.rings.nccl import PASSES

MANY_TIMES = 28.0
"""Of each pass over the ranks, beyond any nccl-tests table of two hosts, whose rate grows with the
size as well (benchmarks/calibration.py: 27 for 67 MB and more on AWS p4d, 15 on GCP a3-mega)."""


@dataclass(frozen=True)
class Fixed:
    """``share`` of the calls' time (low, middle, high) beyond what hops usually take; ``added_ns``
    of each pass of a call over the ranks; ``calls``: how many tell it."""

    share: tuple[float, float, float]
    added_ns: float
    calls: int


def fixed_time(timed: Sequence[Durations], between: Sequence[Assumption]) -> Fixed | None:
    """Of the family of calls between hosts that takes most; None where sizes do not tell it, or
    where it is not far more than hops take on any machine with the job's device."""
    families: dict[object, list[Durations]] = defaultdict(list)
    for one in timed:
        if one.kind.hosts > 1:
            families[one.kind.op, one.kind.family].append(one)
    if not families:
        return None
    kinds = max(families.values(), key=lambda own: sum(one.total_ns for one in own))
    usual_ns = few_bytes_ns(kinds[0], between)
    calls = sum(one.calls for one in kinds)
    took = sum(math.exp(float(np.median(one.log_ns))) * one.calls for one in kinds) / calls
    # Calls of nearly one size are off together: the most of them tell that size.
    by_size: dict[int, Durations] = {}
    for one in sorted(kinds, key=lambda one: one.calls):
        by_size[round(8 * math.log2(one.kind.bytes))] = one
    kinds = list(by_size.values())
    if usual_ns is None or len(kinds) < 2:
        return None
    sizes = np.array([one.kind.bytes for one in kinds], dtype=np.float64)
    times = np.exp([float(np.median(one.log_ns)) for one in kinds])
    errors = times * np.hypot([float(np.median(one.errors)) for one in kinds], CALL)
    # A line through the sizes' typical times, weighted, and the error of where it begins.
    weights = errors**-2
    design = np.stack([np.ones_like(sizes), sizes], axis=1)
    spread = np.linalg.inv(design.T @ (weights[:, None] * design))
    begins = float((spread @ design.T @ (weights * times))[0])
    error = 2.0 * math.sqrt(float(spread[0, 0]))
    low, high = np.minimum((begins - error, begins + error), times.min()).tolist()
    passes = PASSES.get(kinds[0].kind.op, 1)
    if low < MANY_TIMES * passes * usual_ns:
        return None
    added = [max(0.0, ns - USUAL_TIMES * usual_ns) for ns in (low, min(begins, high), high)]
    share = (added[0] / took, added[1] / took, added[2] / took)
    return Fixed(share, added[1] / passes, calls)


def few_bytes_ns(one: Durations, between: Sequence[Assumption]) -> float | None:
    """The most that a call of a few bytes takes on a machine that the job may run on, by NCCL."""
    small = replace(one.kind, bytes=8)
    found = [assumption.takes(small, one.groups[0]) for assumption in between]
    return max((math.exp(taken[0]) for taken in found if taken is not None), default=None)
