"""What each finding would give back, with its interval, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Line, Rect, RowLabel, Scene, Text

_PITCH = 26


@dataclass(frozen=True)
class Saving:
    """One finding's recoverable time per step in ns, with its interval."""

    label: str
    value_ns: float
    low_ns: float | None
    high_ns: float | None
    severity: str
    text: str
    """The gain in words."""


def savings_bars(savings: Sequence[Saving]) -> Scene:
    """Bars from zero; a whisker for the interval; the axis ends at the largest upper bound."""
    highest = max((max(s.value_ns, s.high_ns or 0.0) for s in savings), default=0.0) or 1.0
    # Room on the right for the label of the longest bar.
    scale = Scale(0, highest, 0, 58)
    bottom = len(savings) * _PITCH + 2
    scene = Scene(height=bottom + AXIS_HEIGHT, margin=48)
    scene.marks += bottom_axis(
        scale,
        top=0,
        bottom=bottom,
        title="recoverable, ms per step",
        divisor=1e6,
        about=4,
    )
    for index, saving in enumerate(savings):
        y = index * _PITCH + 4
        scene.row_labels.append(RowLabel(y + 13, saving.label))
        scene.marks.append(
            Rect(
                0,
                y,
                scale(saving.value_ns),
                16,
                f"sev-{saving.severity}",
                f"{saving.label}: {saving.text}",
            )
        )
        right = scale(saving.value_ns)
        if saving.low_ns is not None and saving.high_ns is not None:
            low, right = scale(saving.low_ns), max(scale(saving.high_ns), right)
            scene.marks.append(Line(low, y + 8, scale(saving.high_ns), y + 8, "whisker"))
            for end in (low, scale(saving.high_ns)):
                scene.marks.append(Line(end, y + 4, end, y + 12, "whisker"))
        scene.marks.append(Text(right, y + 12, saving.text, "label", dx=6))
    return scene
