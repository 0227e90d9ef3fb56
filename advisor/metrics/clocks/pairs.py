"""What calls say of two clocks: bounds, and what remains of the ends' difference in no time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from advisor.metrics.timeline.statistics import huber, median, quantile, spread

STAGGER = 0.15
"""Standard deviation of the stagger between two hosts' ends, in the call's time: of a ring's
2(n-1) rounds a slow edge holds ranks up to n - 2 apart (rings/schedule.py), which is half of the
call; the mean over a host's ranks leaves half of that, and a third of the range is typical."""
WAKE_NS = 10_000.0
"""Kernels end within about 10 us of their last data; device times are converted to host times as
well as that."""
HOST_WAKE_NS = 300_000.0
"""Threads of hosts that compute beside it end later: a standard deviation is half of that."""
SIGNIFICANT = 4.0
"""An offset must exceed this many standard errors, and ranks of one host differ by as many."""
MOST_WRONG = 0.05
"""Share of spans that were paired wrongly."""
# A drift needs this much time to show (50 ppm, a poor clock, is 50 us after one second).
_DRIFT_SPAN_NS = 2_000_000_000
# No clock drifts by more: NTP and the kernel correct up to 500 ppm, and quartz is off by under 100.
# Ends that move apart faster do so for another reason.
_MOST_DRIFT = 500e-6
RANGE_NS = 20e9
"""A clock that nobody sets may be off by seconds either way."""
_UNLIKE = 0.03
"""Calls of one kind stagger by this share of their time for other reasons than their rings."""


Times = list[tuple[int, int]]
"""Differences, each with when it was seen, ns."""


@dataclass
class Pair:
    """What calls say of a second clock against a first. ``apart``: ends by the first less ends by
    the second; ``longer``: the first's duration less the second's; ``least`` and ``most``: bounds
    of what must be added to the second."""

    apart: Times = field(default_factory=list)
    takes: list[int] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    longer: list[int] = field(default_factory=list)
    least: Times = field(default_factory=list)
    most: Times = field(default_factory=list)

    def kinds(self) -> dict[tuple[str, int], list[int]]:
        """The calls of one operation and about one length: their stagger is the same, however many
        they are."""
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for number, (op, time) in enumerate(zip(self.ops, self.takes, strict=True)):
            found[op, round(2 * math.log2(max(time, 1)))].append(number)
        return found


class Offset(NamedTuple):
    """To add to a clock, ns, with its bounds, the error of the noise alone, and with stagger."""

    value: float = 0.0
    noise: float = 0.0
    error: float = 0.0
    low: float = 0.0
    high: float = 0.0
    drift_ppm: float = 0.0
    doubt: float = 0.0

    def plus(self, more: Offset, sign: int) -> Offset:
        bounds = (more.low, more.high) if sign > 0 else (-more.high, -more.low)
        return Offset(
            self.value + sign * more.value,
            math.hypot(self.noise, more.noise),
            math.hypot(self.error, more.error),
            self.low + bounds[0],
            self.high + bounds[1],
            self.drift_ppm + sign * more.drift_ppm,
        )


def middle_of(values: Iterable[int]) -> int:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def offset_of(pair: Pair, origin: int) -> Offset:
    """What to add to the second clock of a pair, at ``origin``."""
    drift = _drift(pair, origin)
    apart, least, most = (
        [by - round(drift * (when - origin)) for by, when in own]
        for own in (pair.apart, pair.least, pair.most)
    )
    low = quantile(least, 1 - MOST_WRONG) if least else -math.inf
    high = quantile(most, MOST_WRONG) if most else math.inf
    low, high = low - WAKE_NS, high + WAKE_NS
    if low > high:  # spans that were paired wrongly, or a clock that jumps
        low, high = -math.inf, math.inf
    width = (high - low) / math.sqrt(12)
    if not apart:
        nearest = min(max(0.0, low), high)
        middle = (low + high) / 2 if math.isfinite(width) else nearest
        return Offset(middle, 0.5 * WAKE_NS, min(width, RANGE_NS), low, high)
    fitted = _regressed(pair, apart)
    inside = min(max(fitted.value, low), high)
    # Beyond its bounds the value is as wrong as they put it off.
    error = min(max(fitted.error, abs(fitted.value - inside)), width)
    return fitted._replace(value=inside, error=error, low=low, high=high, drift_ppm=1e6 * drift)


def _regressed(pair: Pair, ends: Sequence[int]) -> Offset:
    """The ends' difference in a call that takes no time: what stagger there is grows with that."""
    middle = middle_of(ends)  # differences first: nanoseconds since 1970 do not fit a double
    apart = np.array([value - middle for value in ends], dtype=np.float64)
    takes = np.array(pair.takes, dtype=np.float64)
    kinds = pair.kinds()
    skew = np.abs(np.array(pair.longer, dtype=np.float64))
    left = np.zeros(len(apart))
    times, late, errors = [], [], []
    for numbers in kinds.values():
        # Where one side came late the ends depend on that, too.
        near = np.array(sorted(numbers, key=lambda n: skew[n])[: max(1, len(numbers) // 2)])
        noise = 1.2533 * spread(apart[near]) / math.sqrt(len(near))
        late.append(median(apart[near]))
        times.append(median(takes[near]))
        errors.append(math.hypot(noise, _UNLIKE * times[-1], 0.5 * WAKE_NS))
        left[numbers] = apart[numbers] - late[-1]
    ops = [op for op, _ in kinds]
    own = np.array([[t * (op == one) for one in sorted(set(ops))]
                    for op, t in zip(ops, times, strict=True)])  # fmt: skip
    design = np.concatenate([np.ones((len(late), 1)), own], axis=1) / np.array(errors)[:, None]
    prior = np.diag([0.0, *(own.shape[1] * [STAGGER**-2])])
    variance = np.linalg.inv(design.T @ design + prior)
    value = float((variance @ design.T @ (np.array(late) / np.array(errors)))[0])
    alone = 1.2533 * spread(left) / math.sqrt(len(left))
    return Offset(
        middle + value, math.hypot(alone, 0.5 * WAKE_NS), math.sqrt(float(variance[0, 0]))
    )


def _drift(pair: Pair, origin: int) -> float:
    """How much faster the second clock must run, if like calls' ends move apart for sure."""
    when = np.array([time - origin for _, time in pair.apart], dtype=np.float64)
    if len(when) < 20 or np.ptp(when) < _DRIFT_SPAN_NS:
        return 0.0
    left = np.zeros(len(when))
    for numbers in pair.kinds().values():
        middle = middle_of(pair.apart[n][0] for n in numbers)
        left[numbers] = [pair.apart[n][0] - middle for n in numbers]
    fit = huber(np.stack([np.ones(len(when)), when], axis=1), left)
    slope = float(fit.coefficients[1])
    return slope if SIGNIFICANT * fit.errors[1] < abs(slope) <= _MOST_DRIFT else 0.0
