"""Axes: grid lines, tick labels and titles with units."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor.report.charts.scene import Line, Mark, RowLabel, Scene, Text
from advisor.report.numbers import decimals
from advisor.vocabulary.words import significant

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


AXIS_HEIGHT = 40


def bottom_axis(
    scale: Scale,
    *,
    top: float,
    bottom: float,
    title: str,
    label: Callable[[float], str] | None = None,
    divisor: float = 1.0,
) -> Iterator[Mark]:
    """Vertical grid lines with labels under ``bottom`` and the title under the labels.

    Labels are the ticks over ``divisor`` (1e6 for ns shown as ms), or what ``label`` says.
    """
    ticks = scale.ticks(6)
    label = label or _labels(ticks, divisor)
    for index, tick in enumerate(ticks):
        x = scale(tick)
        yield Line(x, top, x, bottom, "grid")
        anchor = "start" if x < 3 else "end" if x > 97 else "middle"
        # Every second label goes when the page is narrow.
        kind = "tick" if index % 2 == 0 or len(ticks) <= 4 else "tick wide-only"
        yield Text(x, bottom + 14, label(tick), kind, anchor)  # type: ignore[arg-type]
    yield Line(0, bottom, 100, bottom, "axis")
    yield Text(50, bottom + 32, title, "axis-title", "middle")


def left_axis(scene: Scene, scale: Scale, *, title: str, divisor: float = 1.0) -> None:
    """Horizontal grid lines with labels in the left margin; the title stands over the plot."""
    ticks = scale.ticks(4)
    label = significant if scale.log else _labels(ticks, divisor)
    for tick in ticks:
        y = scale(tick)
        scene.marks.append(Line(0, y, 100, y, "grid"))
        scene.row_labels.append(RowLabel(y + 4, label(tick), "tick"))
    # A bare unit stands over the tick labels, words over the plot.
    if len(title) <= 4:
        scene.row_labels.append(RowLabel(12, title, "axis-title"))
    else:
        scene.marks.append(Text(0, 12, title, "axis-title", "start"))


def _labels(ticks: Sequence[float], divisor: float) -> Callable[[float], str]:
    """Neighbouring ticks must differ in their labels, however far from zero they are."""
    step = abs(ticks[1] - ticks[0]) / divisor if len(ticks) > 1 else 0.0
    return lambda tick: decimals(tick / divisor, step) if step else significant(tick / divisor)
