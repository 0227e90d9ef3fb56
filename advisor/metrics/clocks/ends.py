"""How much later one rank ends the collectives it shares with another: offset, drift, spread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.timeline.statistics import Floats, huber, spread

SIGNIFICANT = 4.0
"""An offset must exceed this many standard errors, and ranks of one host differ by as many."""
# Largest message over smallest that lets a slope be told from an intercept.
SIZE_RANGE = 2.0
# A drift needs this much time to show (50 ppm, a poor clock, is 50 us after one second).
DRIFT_SPAN_NS = 2_000_000_000
# No clock drifts by more: NTP and the kernel correct up to 500 ppm, and quartz is off by under 100.
# Ends that move apart faster do so for another reason.
MOST_DRIFT = 500e-6
_MOST_CALLS = 4_000


class Difference(NamedTuple):
    """Ends of one rank less another's: intercept with error, drift and spread."""

    offset: float
    error: float
    drift: float
    spread: float
    identified: bool
    transfer: float


def difference(
    columns: Iterable[Mapping[int, Call]], one: int, other: int, origin: int
) -> Difference:
    """Ends of ``other`` less those of ``one``, over the calls that both are in, ns."""
    pairs = [(c[one], c[other]) for c in columns if one in c and other in c]
    if len(pairs) > _MOST_CALLS:
        pairs = pairs[:: len(pairs) // _MOST_CALLS + 1]
    # In time relative to the pair's own median, so that any offset leaves the numbers small.
    ends = np.array([b.end - a.end for a, b in pairs], dtype=np.int64)
    middle = int(np.median(ends))
    late = (ends - middle).astype(np.float64)
    when = np.array([a.end - origin for a, _ in pairs], dtype=np.float64)
    sizes, identified = _sizes(pairs)
    transfer = float(np.median([a.transfer or (a.end - a.start) for a, _ in pairs]))
    columns_of = [np.ones(len(pairs))]
    if identified:
        columns_of.extend(sizes)
    with_drift = np.ptp(when) > DRIFT_SPAN_NS and len(pairs) >= 20
    if with_drift:
        columns_of.append(when * 1e-6)
    design = np.stack(columns_of, axis=1)
    if len(pairs) <= design.shape[1] + 1:
        return Difference(float(middle), spread(late) or 1e6, 0.0, spread(late), False, transfer)
    scale = np.maximum(np.abs(design).max(axis=0), 1e-12)
    fit = huber(design / scale, late)
    coefficients, errors = fit.coefficients / scale, fit.errors / scale
    drift = 0.0
    slope = float(coefficients[-1]) * 1e-6 if with_drift else 0.0  # ns per ns
    if with_drift and SIGNIFICANT * errors[-1] * 1e-6 < abs(slope) <= MOST_DRIFT:
        drift = float(coefficients[-1])
    elif with_drift:
        fit = huber(design[:, :-1] / scale[:-1], late)
        coefficients, errors = fit.coefficients / scale[:-1], fit.errors / scale[:-1]
    return Difference(
        middle + float(coefficients[0]),
        float(errors[0]),
        drift,
        fit.spread,
        identified,
        transfer,
    )


def _sizes(pairs: Sequence[tuple[Call, Call]]) -> tuple[list[Floats], bool]:
    """Wire bytes by operation, one regressor each; whether they tell size from offset."""
    by_op: dict[str, Floats] = {}
    for index, (call, _) in enumerate(pairs):
        op = call.wire_op or call.op
        column = by_op.setdefault(op, np.zeros(len(pairs)))
        column[index] = float(call.bytes or 0)
    regressors = []
    identified = False
    for column in by_op.values():
        if not column.any():
            identified = True  # a barrier has no size at all
            continue
        regressors.append(column)
        known = column[column > 0]
        if known.max() >= SIZE_RANGE * known.min() and len(np.unique(known)) > 1:
            identified = True
    return regressors, identified
