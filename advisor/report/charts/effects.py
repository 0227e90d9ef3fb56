"""Effects of settings: bars to either side of zero, shorter steps to the left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Line, Rect, Scene, Text

_LINE, _BAR, _GAP = 16, 12, 6


@dataclass(frozen=True)
class Share:
    """``share`` of the step: -0.05 = 5 % shorter. ``label`` may hold several lines."""

    label: str
    share: float

    @property
    def words(self) -> str:
        """'bucket_cap_mb=5: 5 % shorter'."""
        if round(abs(self.share), 4) == 0:
            return f"{self.label}: no change"
        direction = "shorter" if self.share < 0 else "longer"
        return f"{self.label}: {numbers.share(abs(self.share))} {direction}"


def share_bars(shares: Sequence[Share], *, title: str, error: float | None = None) -> Scene:
    """One bar each from zero; within ``error`` to either side (shaded) nothing is known."""
    reach = max([abs(item.share) for item in shares] + [error or 0.0]) or 0.01
    low = min([item.share for item in shares] + [-(error or 0.0)]) - 0.05 * reach
    high = max([item.share for item in shares] + [error or 0.0]) + 0.05 * reach
    scale = Scale(low, high)
    lines = [item.words.splitlines() for item in shares]
    bottom = sum(len(of_one) * _LINE + _BAR + _GAP for of_one in lines)
    scene = Scene(height=bottom + AXIS_HEIGHT, margin=0)
    if error:
        left, right = scale(-error), scale(error)
        scene.marks.append(Rect(left, 0, right - left, bottom, "band", "within the model's error"))
    scene.marks += bottom_axis(scale, top=0, bottom=bottom, title=title, divisor=0.01, about=5)
    zero = scale(0.0)
    scene.marks.append(Line(zero, 0, zero, bottom, "axis"))
    # The words stand over the bar and grow towards the wider side.
    x, anchor = (0.0, "start") if zero > 50 else (100.0, "end")
    y = 0
    for item, words in zip(shares, lines, strict=True):
        for text in words:
            y += _LINE
            scene.marks.append(Text(x, y - 3, text, "label", anchor))  # type: ignore[arg-type]
        end = scale(item.share)
        kind = "early4" if item.share < 0 else "late4"
        name = " ".join(words)
        scene.marks.append(Rect(min(zero, end), y + 1, abs(end - zero), _BAR, kind, name))
        y += _BAR + _GAP
    return scene
