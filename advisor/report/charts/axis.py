"""Axes: grid lines, tick labels and titles with units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Line, Mark, RowLabel, Scene, Text
from advisor.report.numbers import decimals
from advisor.vocabulary.words import significant

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
