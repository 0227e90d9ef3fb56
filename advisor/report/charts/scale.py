"""From values to percent of the plot's width (or pixels of its height), with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUND_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map of [low, high] onto [start, end]."""

    low: float
    high: float
    start: float = 0.0
    end: float = 100.0
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of ``value``, not clipped."""
        if self.log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
        else:
            low, high = self.low, self.high
        part = (value - low) / (high - low) if high > low else 0.5
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the scale: 1, 2 or 5 times a power of ten; decades when log."""
        if self.log:
            return _decades(self.low, self.high, about)
        if self.high <= self.low:
            return [self.low]
        raw = (self.high - self.low) / max(about, 1)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in _ROUND_STEPS if power * factor >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _decades(low: float, high: float, about: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = [10.0**power for power in range(first, last + 1)]
    if len(decades) < 3:
        return [
            factor * 10.0**power
            for power in range(first - 1, last + 1)
            for factor in (1, 2, 5)
            if low <= factor * 10.0**power <= high
        ]
    every = max(1, round(len(decades) / max(about, 1)))
    return decades[::every]
