"""Horizontal stacked bars on one scale: where the time of each row goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import KINDS, Rect, RowLabel, Scene, Text

_BAR = 22
_PITCH = 28


@dataclass(frozen=True)
class Bar:
    """One row: its label, its parts in ns by kind (they add up to the row), and its emphasis."""

    label: str
    parts_ns: Mapping[str, float]
    emphasis: bool = False


def stacked_bars(
    bars: Sequence[Bar], *, axis: str = "ms per step", longest_ns: float = 0.0
) -> Scene:
    """Bars from zero on a common scale; a part is labelled where its text fits.

    ``longest_ns`` widens the scale, so that pictures of several runs can be compared.
    """
    longest = max(longest_ns, max((sum(bar.parts_ns.values()) for bar in bars), default=0.0)) or 1.0
    dense = len(bars) > 24
    bar_height, pitch = (12, 14) if dense else (_BAR, _PITCH)
    scale = Scale(0, longest)
    bottom = len(bars) * pitch + 4
    wide = any(len(bar.label) > 9 for bar in bars)
    scene = Scene(height=bottom + AXIS_HEIGHT, margin=104 if wide else 72)
    scene.marks += bottom_axis(scale, top=0, bottom=bottom, title=axis, divisor=1e6)
    for index, bar in enumerate(bars):
        y = index * pitch + 2
        emphasis = "label strong" if bar.emphasis else "label"
        if not dense or bar.emphasis or index % 2 == 0:
            scene.row_labels.append(RowLabel(y + bar_height - 5 + 2 * dense, bar.label, emphasis))
        position = 0.0
        for kind in KINDS:
            part = bar.parts_ns.get(kind, 0.0)
            if part <= 0:
                continue
            width = scale(part)
            title = f"{bar.label}: {KINDS[kind]} {numbers.duration(part)}"
            scene.marks.append(Rect(position, y, width, bar_height, kind, title))
            if width > 6 and not dense:
                fits = "in" if width > 15 else "in wide-only"
                text = numbers.milliseconds(part)
                scene.marks.append(
                    Text(position + width / 2, y + 15, text, f"{fits} on-{kind}", "middle")
                )
            position += width
    return scene
