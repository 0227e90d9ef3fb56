"""How long a transfer would have taken alone, when several share a rank's link.

gloo runs two collectives of a group at a time, GPUs one per group: while n transfers are under way
each gets about 1/n of the link, so a transfer's own share of time is the integral of dt / n(t).
"""

import numpy as np
from numpy.typing import ArrayLike

from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.statistics import Floats


def exclusive_ns(start: ArrayLike, end: ArrayLike, *, within: Intervals | None = None) -> Floats:
    """For each span ``[start, end)`` the integral over it of dt / (spans open at t), ns.

    With ``within`` only that time counts: the results then add up to what all spans cover of it.
    """
    starts = np.asarray(start, dtype=np.int64)
    ends = np.asarray(end, dtype=np.int64)
    if not len(starts):
        return np.empty(0)
    points: Int64s = np.unique(np.concatenate([starts, ends]))
    change = np.zeros(len(points))
    np.add.at(change, np.searchsorted(points, starts), 1.0)
    np.add.at(change, np.searchsorted(points, ends), -1.0)
    open_spans = np.cumsum(change)[:-1]
    length = np.diff(points) if within is None else within.covered(points[:-1], points[1:])
    share = np.divide(length, open_spans, out=np.zeros(len(length)), where=open_spans > 0.5)
    total = np.concatenate([[0.0], np.cumsum(share)])
    result: Floats = total[np.searchsorted(points, ends)] - total[np.searchsorted(points, starts)]
    return result
