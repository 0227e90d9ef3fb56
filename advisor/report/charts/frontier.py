"""Time against memory: what was tried, and the settings that nothing beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis, left_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Dot, Line, Scene, Text

_HEIGHT = 220
_TOP = 28


@dataclass(frozen=True)
class Outcome:
    """One setting's step in ns and peak memory in bytes; ``on_frontier``: none beats it in both."""

    label: str
    step_ns: float
    memory_bytes: float
    on_frontier: bool


def time_against_memory(outcomes: Sequence[Outcome]) -> Scene:
    """A dot each, the frontier joined by steps and numbered (the table has the settings)."""
    steps = [item.step_ns for item in outcomes]
    memory = [item.memory_bytes for item in outcomes]
    across, along = _room(steps), _room(memory)
    start = max(min(steps) - across, 0.0)
    x_scale = Scale(start, max(steps) + across)
    y_scale = Scale(min(memory) - along, max(memory) + along, _HEIGHT, _TOP)
    scene = Scene(height=_HEIGHT + AXIS_HEIGHT, margin=72)
    title = "step time, ms" + (" (axis does not start at zero)" if start > 0 else "")
    scene.marks += bottom_axis(x_scale, top=_TOP, bottom=_HEIGHT, title=title, divisor=1e6)
    left_axis(scene, y_scale, title="peak memory of a rank, MB", divisor=1e6)
    frontier = sorted((o for o in outcomes if o.on_frontier), key=lambda o: o.step_ns)
    for left, right in pairwise(frontier):
        y = y_scale(left.memory_bytes)
        scene.marks += [
            Line(x_scale(left.step_ns), y, x_scale(right.step_ns), y, "curve"),
            Line(x_scale(right.step_ns), y, x_scale(right.step_ns), y_scale(right.memory_bytes),
                 "curve"),
        ]  # fmt: skip
    for item in outcomes:
        x, y = x_scale(item.step_ns), y_scale(item.memory_bytes)
        words = (
            f"{item.label}: {numbers.duration(item.step_ns)}, {numbers.traffic(item.memory_bytes)}"
        )
        scene.marks.append(Dot(x, y, 5, "dot chosen" if item.on_frontier else "dot open", words))
    for number, item in enumerate(frontier, 1):
        x, y = x_scale(item.step_ns), y_scale(item.memory_bytes)
        scene.marks.append(Text(x, y - 9, str(number), "label strong", "middle"))
    return scene


def _room(values: Sequence[float]) -> float:
    return (max(values) - min(values)) * 0.08 or max(values) * 0.05
