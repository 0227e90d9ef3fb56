"""The communication roofline: FLOP per byte sent against FLOP/s, with the two limits, log-log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis, left_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Dot, Line, Scene, Text

_TOP, _BOTTOM = 24, 204
_CLOSE = 24  # pixels between dot and ceiling in which two lines of words do not fit


@dataclass(frozen=True)
class Level:
    """One limit: a bandwidth in GB/s (decimal) and its name."""

    name: str
    gbps: float


def roofline(
    ratio: float, achieved_flops: float, compute_flops: float, level: Level, *, roof: str
) -> Scene:
    """The run as a dot at (FLOP per byte, FLOP/s) under min(compute, ratio x bandwidth)."""
    ridge = compute_flops / (level.gbps * 1e9)
    x = Scale(min(ratio, ridge) / 8, max(ratio, ridge) * 8, log=True)
    lowest = min(achieved_flops, compute_flops, x.low * level.gbps * 1e9)
    y = Scale(lowest / 2, compute_flops * 3, _BOTTOM, _TOP, log=True)
    scene = Scene(height=_BOTTOM + AXIS_HEIGHT, margin=104)
    left_axis(scene, y, title="FLOP/s (log)", label=flops)
    scene.marks += bottom_axis(
        x,
        top=_TOP,
        bottom=_BOTTOM,
        title="FLOP per byte sent (log)",
        label=lambda value: numbers.scaled(value, ""),
    )
    left = x.low * level.gbps * 1e9
    scene.marks.append(Line(0, y(left), x(ridge), y(compute_flops), "curve"))
    scene.marks.append(Line(x(ridge), y(compute_flops), 100, y(compute_flops), "ceiling"))
    scene.marks.append(Text(99, y(compute_flops) - 5, roof, "label", "end"))
    scene.marks.append(Line(x(ridge), _TOP, x(ridge), _BOTTOM, "star"))
    side = x(ridge) > 50
    dot = y(achieved_flops)
    # Away from the words over the dot.
    low = _BOTTOM - 6 if dot < _BOTTOM - 48 else (_TOP + _BOTTOM) / 2
    scene.marks.append(
        Text(x(ridge), low, f"ridge {numbers.scaled(ridge, 'FLOP/B')}", "label",
             "end" if side else "start", -5 if side else 5)
    )  # fmt: skip
    words = f"this run: {flops(achieved_flops)}"
    scene.marks.append(Dot(x(ratio), dot, 6, "dot", words))
    anchor: Literal["start", "middle", "end"] = (
        "start" if x(ratio) < 30 else "end" if x(ratio) > 70 else "middle"
    )
    # Close under the ceiling its words stand over the dot's: there they go below it.
    close = dot - y(compute_flops) < _CLOSE
    scene.marks.append(
        Text(x(ratio), dot + 20 if close else dot - 11, words, "label strong", anchor)
    )
    return scene


def flops(value: float) -> str:
    """A rate such as '12.3 TFLOP/s'."""
    return numbers.scaled(value, "FLOP/s")
