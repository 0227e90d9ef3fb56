"""What calls say of a second clock against a first: their ends, and what bounds them."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from advisor.statistics import Floats, huber, median, quantile, spread

SIGNIFICANT = 4.0
"""An offset must exceed this many standard errors, and ranks of one host differ by as many."""
MOST_DRIFT = 500e-6
"""No clock drifts by more: NTP and the kernel correct up to 500 ppm, and quartz is off by under
100. Ends that move apart faster do so for another reason."""
MOST_WRONG = 0.05
"""Share of spans that were paired wrongly: a rank that leaves more of its calls before another came
has another clock."""
MODEL_ERRORS = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Ends are off what is said of them by one of these shares of the call's time, alike in like calls
of all groups: by less in a ring whose order is known (links/ring_patterns.py)."""
DRIFT_SPAN_NS = 2_000_000_000
"""A drift needs this much time to show (50 ppm, a poor clock, is 50 us after one second)."""
STAGGER = 0.15
"""Standard deviation of the stagger between two hosts' ends, in the call's time: of a ring's
2(n-1) rounds a slow edge holds ranks up to n - 2 apart (rings/schedule.py), which is half of the
call; the mean over a host's ranks leaves half of that, and a third of the range is typical."""
WAKE_NS = 10_000.0
"""Kernels end within about 10 us of their last data; device times are converted to host times as
well as that."""
HOST_WAKE_NS = 50_000.0
"""Threads of a host wake up this late: Linux lets their timers slip by as much (timer_slack_ns,
include/linux/init_task.h)."""
RANGE_NS = 20e9
"""A clock that nobody sets may be off by seconds either way."""


@dataclass
class Pair:
    """What calls say of a second clock against a first, ns. ``apart``: ends by the first less ends
    by the second; ``longer``: the first's duration less the second's; ``least`` and ``most``:
    what must be added to the second at least and at most, and when. ``wake_ns``: how late ranks
    leave after their data.
    """

    wake_ns: float = WAKE_NS
    apart: list[int] = field(default_factory=list)
    takes: list[int] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    when: list[int] = field(default_factory=list)
    longer: list[int] = field(default_factory=list)
    least: list[tuple[int, int]] = field(default_factory=list)
    most: list[tuple[int, int]] = field(default_factory=list)


class Offset(NamedTuple):
    """To add to a clock, ns, with its bounds, the error of the noise alone, and with stagger."""

    value: float = 0.0
    noise: float = 0.0
    error: float = 0.0
    low: float = 0.0
    high: float = 0.0
    drift_ppm: float = 0.0
    doubt: float = 0.0

    def plus(self, more: "Offset", sign: int) -> "Offset":
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
    fitted = _regressed(pair, origin) if pair.apart else Offset()
    drift = 1e-6 * fitted.drift_ppm
    least, most = (
        [bound - round(drift * (when - origin)) for bound, when in own]
        for own in (pair.least, pair.most)
    )
    low = quantile(least, 1 - MOST_WRONG) if least else -math.inf
    high = quantile(most, MOST_WRONG) if most else math.inf
    low, high = low - pair.wake_ns, high + pair.wake_ns
    if low > high:  # what was first and is last, of a clock that moves; or spans paired wrongly
        times = [when for _, when in (*pair.least, *pair.most)]
        moves = low - high <= MOST_DRIFT * (max(times) - min(times))
        low, high = (high, low) if moves else (-math.inf, math.inf)
    width = max((high - low) / math.sqrt(12), 0.5 * pair.wake_ns)
    if not pair.apart:
        nearest = min(max(0.0, low), high)
        middle = (low + high) / 2 if math.isfinite(width) else nearest
        return Offset(middle, 0.5 * pair.wake_ns, min(width, RANGE_NS), low, high)
    inside = min(max(fitted.value, low), high)
    # Beyond its bounds the value is as wrong as they put it off.
    error = min(max(fitted.error, abs(fitted.value - inside)), width)
    return fitted._replace(value=inside, error=error, low=low, high=high)


def _regressed(pair: Pair, origin: int) -> Offset:
    """The ends' difference in a call that takes no time: what stagger there is grows with that.

    Calls of one operation and about one length show the same stagger however many they are.
    """
    middle = middle_of(pair.apart)  # differences first: nanoseconds since 1970 do not fit a double
    apart = np.array([value - middle for value in pair.apart], dtype=np.float64)
    takes = np.array(pair.takes, dtype=np.float64)
    kinds: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number, (op, time) in enumerate(zip(pair.ops, pair.takes, strict=True)):
        kinds[op, round(2 * math.log2(max(time, 1)))].append(number)
    when = np.array([value - origin for value in pair.when], dtype=np.float64)
    drift = _drift(apart, when, kinds.values())
    apart -= drift * when
    skew = np.abs(np.array(pair.longer, dtype=np.float64))
    left = np.zeros(len(apart))
    times, late, errors = [], [], []
    ends = math.hypot(*MODEL_ERRORS) / math.sqrt(len(MODEL_ERRORS))
    for numbers in kinds.values():
        # Where one side came late the ends depend on that, too.
        near = np.array(sorted(numbers, key=lambda n: skew[n])[: max(1, len(numbers) // 2)])
        noise = 1.2533 * spread(apart[near]) / math.sqrt(len(near))
        late.append(median(apart[near]))
        times.append(median(takes[near]))
        errors.append(math.hypot(noise, ends * times[-1], 0.5 * pair.wake_ns))
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
        middle + value,
        math.hypot(alone, 0.5 * pair.wake_ns),
        math.sqrt(float(variance[0, 0])),
        drift_ppm=1e6 * drift,
    )


def _drift(apart: Floats, when: Floats, kinds: Iterable[list[int]]) -> float:
    """How much faster the second clock must run, if ends of like calls move apart for sure."""
    if np.ptp(when) < DRIFT_SPAN_NS or len(when) < 20:
        return 0.0
    left = np.zeros(len(apart))
    for numbers in kinds:
        left[numbers] = apart[numbers] - median(apart[numbers])
    fit = huber(np.stack([np.ones(len(when)), when], axis=1), left)
    slope = float(fit.coefficients[1])
    sure = SIGNIFICANT * fit.errors[1] < abs(slope) <= MOST_DRIFT
    return slope if sure else 0.0
