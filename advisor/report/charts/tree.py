"""A tree of ranks, drawn like folders: a line per rank, under the rank it hangs from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.report import numbers
from advisor.report.charts.ring import CAPTION, SIZE, edge_class
from advisor.report.charts.scene import Dot, Line, Scene, Text
from advisor.report.clean import shorten_middle

_PITCH = 22
# A deep tree (a chain of GPUs under every node) still leaves this much room for names.
_NAME_ROOM = 150
_NAME_LETTERS = 24


def tree_drawing(
    parents: Mapping[Any, Any],
    lost_ns: Mapping[tuple[Any, Any], float],
    names: Mapping[Any, str],
    *,
    caption: str = "",
) -> Scene:
    """``parents``: child -> parent, None for the root; ``lost_ns`` per step in either direction.

    ``names`` are the whole names, of which labels show both ends; edges
    between places whose cost is known are as wide as it.
    """
    lines = walk(parents)
    depth = max((level for _, level in lines), default=0)
    indent = min(24.0, (SIZE - _NAME_ROOM) / max(depth, 1))
    scene = Scene(height=CAPTION + _PITCH * len(lines) + 8, margin=0, fixed_width=SIZE)
    scene.marks.append(Text(4, 14, caption, "label strong"))
    worst = max(lost_ns.values(), default=0.0)
    place = {
        node: (12 + indent * level, CAPTION + _PITCH * row + _PITCH / 2)
        for row, (node, level) in enumerate(lines)
    }
    for node, _ in reversed(lines):
        parent = parents[node]
        if parent is None:
            continue
        (x1, y1), (x2, y2) = place[parent], place[node]
        lost = max(lost_ns.get((parent, node), 0.0), lost_ns.get((node, parent), 0.0))
        scene.marks.append(Line(x1, y1, x1, y2, "edge edge0"))
        scene.marks.append(Line(x1, y2, x2, y2, edge_class(lost, worst)))
    for node, (x, y) in place.items():
        scene.marks.append(Dot(x, y, 5, "node", names[node]))
        short = shorten_middle(names[node], _NAME_LETTERS)
        whole = names[node] if short != names[node] else ""
        text = short + _lost(node, parents, lost_ns)
        scene.marks.append(Text(x + 10, y + 4, text, "label", title=whole))
    return scene


def walk(parents: Mapping[Any, Any]) -> list[tuple[Any, int]]:
    """Every node below the root with its depth, parents first; what is not below it is left out."""
    children: dict[Any, list[Any]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found: list[tuple[Any, int]] = []
    open_: list[tuple[Any, int]] = [(root, 0) for root in sorted(children.get(None, []))[::-1]]
    while open_:
        node, level = open_.pop()
        found.append((node, level))
        open_ += [(child, level + 1) for child in sorted(children.get(node, []))[::-1]]
    return found


def _lost(node: Any, parents: Mapping[Any, Any], lost_ns: Mapping[tuple[Any, Any], float]) -> str:
    parent = parents[node]
    up, down = lost_ns.get((node, parent), 0.0), lost_ns.get((parent, node), 0.0)
    lost, inside = max(up, down), lost_ns.get((node, node), 0.0)
    text = f": loses {numbers.duration(lost)}" if lost > 0 else ""
    return text + (f" (inside: {numbers.duration(inside)})" if inside > 0 else "")
