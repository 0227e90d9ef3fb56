"""A ring of ranks (or hosts), each edge as wide as the time it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.report import numbers
from advisor.report.charts.scene import Dot, Line, Scene, Text

# Width of a drawing and height of the words over it, in pixels.
SIZE = 360
CAPTION = 24
_RADIUS = 128
# More places than this have small circles and room for some labels only.
_CROWDED = 24


def ring_drawing(
    order: Sequence[Any],
    lost_ns: Mapping[tuple[Any, Any], float],
    names: Mapping[Any, str],
    *,
    caption: str = "",
) -> Scene:
    """Places on a circle in ring order; ``lost_ns`` per step on (sender, receiver) edges.

    ``names`` are the full names; the circles show what identifies each: a rank's number.
    """
    scene = Scene(height=SIZE, margin=0, fixed_width=SIZE)
    scene.marks.append(Text(4, 14, caption, "label strong"))
    middle_x, middle_y = SIZE / 2, CAPTION + (SIZE - CAPTION) / 2
    place: dict[Any, tuple[float, float]] = {}
    for index, node in enumerate(order):
        angle = 2 * math.pi * index / len(order) - math.pi / 2
        place[node] = (middle_x + _RADIUS * math.cos(angle), middle_y + _RADIUS * math.sin(angle))
    worst = max(lost_ns.values(), default=0.0)
    for index, sender in enumerate(order):
        receiver = order[(index + 1) % len(order)]
        lost = lost_ns.get((sender, receiver), 0.0)
        (x1, y1), (x2, y2) = place[sender], place[receiver]
        scene.marks.append(Line(x1, y1, x2, y2, edge_class(lost, worst)))
        if lost > 0 and lost >= 0.25 * worst:
            # Inside the circle, beside the edge's middle: outside there is no room for words.
            x, y = (x1 + x2) / 2 - middle_x, (y1 + y2) / 2 - middle_y
            reach = max(math.hypot(x, y), 1.0)
            scale = max(reach - 34, 0.0) / reach
            scene.marks.append(
                Text(middle_x + x * scale, middle_y + y * scale + 4, numbers.duration(lost),
                     "label strong", "middle")
            )  # fmt: skip
    crowded = len(order) > _CROWDED
    for index, node in enumerate(order):
        x, y = place[node]
        scene.marks.append(Dot(x, y, 5 if crowded else 14, "node", names[node]))
        label = Text(x, y + 4, str(node), "label", "middle")
        if crowded:
            # Every few nodes, outside the circle.
            out = (_RADIUS + 18) / _RADIUS
            x, y = middle_x + (x - middle_x) * out, middle_y + (y - middle_y) * out
            label = Text(x, y + 4, str(node), "label", "middle")
        if len(label.text) <= 4 and (not crowded or index % (len(order) // 12) == 0):
            scene.marks.append(label)
    return scene


def edge_class(lost_ns: float, worst_ns: float) -> str:
    """'edge edge0' to 'edge edge4': the width that an edge's loss has beside the worst one's."""
    return f"edge edge{round(4 * lost_ns / worst_ns) if worst_ns > 0 else 0}"
