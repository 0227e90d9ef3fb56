"""A ring of ranks, each edge as wide as the time it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from advisor.report import numbers
from advisor.report.charts.scene import Dot, Line, Scene, Text

_SIZE = 360
_RADIUS = 128


def ring_drawing(order: Sequence[int], lost_ns: Mapping[tuple[int, int], float]) -> Scene:
    """Ranks on a circle in ring order; ``lost_ns`` per step on (sender, receiver) edges."""
    scene = Scene(height=_SIZE, margin=0, fixed_width=_SIZE)
    centre = _SIZE / 2
    place: dict[int, tuple[float, float]] = {}
    for index, rank in enumerate(order):
        angle = 2 * math.pi * index / len(order) - math.pi / 2
        place[rank] = (centre + _RADIUS * math.cos(angle), centre + _RADIUS * math.sin(angle))
    worst = max(lost_ns.values(), default=0.0)
    for index, sender in enumerate(order):
        receiver = order[(index + 1) % len(order)]
        lost = lost_ns.get((sender, receiver), 0.0)
        (x1, y1), (x2, y2) = place[sender], place[receiver]
        strength = round(4 * lost / worst) if worst > 0 else 0
        scene.marks.append(Line(x1, y1, x2, y2, f"edge edge{strength}"))
        if lost > 0 and lost >= 0.25 * worst:
            # Outside the circle, beside the edge's middle.
            x, y = (x1 + x2) / 2 - centre, (y1 + y2) / 2 - centre
            reach = max(math.hypot(x, y), 1.0)
            scale = (reach + 22) / reach
            scene.marks.append(
                Text(centre + x * scale, centre + y * scale + 4, numbers.duration(lost),
                     "label strong", "middle")
            )  # fmt: skip
    radius = 14 if len(order) <= 16 else 7
    for rank in order:
        x, y = place[rank]
        scene.marks.append(Dot(x, y, radius, "node", f"rank {rank}"))
        if radius == 14:
            scene.marks.append(Text(x, y + 4, str(rank), "label", "middle"))
    return scene
