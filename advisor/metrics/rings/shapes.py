"""The rings and trees that NCCL built, as its log tells them: whole ones, distinct shapes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """One ring (``parents`` empty) or tree, the channels that have it, and the ranks in it."""

    channels: tuple[int, ...]
    order: tuple[int, ...]
    parents: Mapping[int, int | None]


def shapes(con: Any, run: str) -> list[tuple[str, str, list[Shape]]]:
    """(kind, communicator, distinct shapes) of the communicator with the most ranks, by kind."""
    found = [("ring", *_largest(_rings(con, run))), ("tree", *_largest(_trees(con, run)))]
    return [item for item in found if item[2]]


def hosts(con: Any, run: str) -> dict[int, str]:
    """Host of each rank, from the traces or the log."""
    return dict(
        con.execute(
            "SELECT rank, host FROM topology WHERE run = $1 AND kind = 'rank' AND rank IS NOT NULL"
            " AND host IS NOT NULL UNION ALL"
            " SELECT rank, host FROM rank WHERE run = $1 AND host IS NOT NULL",
            [run],
        ).fetchall()
    )


def _rings(con: Any, run: str) -> dict[str, dict[int, Shape]]:
    """Whole rings by communicator and channel."""
    found: dict[str, dict[int, Shape]] = {}
    for (text,) in con.execute(
        "SELECT value FROM topology WHERE run = ? AND kind = 'ring' ORDER BY name", [run]
    ).fetchall():
        value = _document(text)
        order = value.get("ranks") if isinstance(value, dict) else None
        if not isinstance(order, list) or not value.get("complete") or len(order) < 3:
            continue
        if not all(isinstance(rank, int) for rank in order) or len(set(order)) != len(order):
            continue
        start = order.index(min(order))
        turned = tuple(order[start:] + order[:start])
        channel = int(value.get("channel") or 0)
        name = str(value.get("communicator"))
        found.setdefault(name, {})[channel] = Shape((channel,), turned, {})
    return found


def _trees(con: Any, run: str) -> dict[str, dict[int, Shape]]:
    """Whole trees by communicator and channel: one root, and everybody below it."""
    parents: dict[tuple[str, int], dict[int, int | None]] = {}
    for rank, text in con.execute(
        "SELECT rank, value FROM topology WHERE run = ? AND kind = 'tree' AND rank IS NOT NULL"
        " ORDER BY rank",
        [run],
    ).fetchall():
        entries = _document(text)
        for entry in entries if isinstance(entries, list) else []:
            key = str(entry.get("communicator")), int(entry.get("channel") or 0)
            known = parents.setdefault(key, {})
            if entry.get("root") or entry.get("parent") is not None:
                known[rank] = entry["parent"]
            for child in entry.get("children") or []:
                if child is not None:
                    known.setdefault(child, rank)
    found: dict[str, dict[int, Shape]] = {}
    for (name, channel), up in parents.items():
        order = _below(up)
        if len(order) >= 3 and len(order) == len(up) and list(up.values()).count(None) == 1:
            found.setdefault(name, {})[channel] = Shape((channel,), order, up)
    return found


def _largest(found: Mapping[str, Mapping[int, Shape]]) -> tuple[str, list[Shape]]:
    """The communicator with the most ranks, and its distinct shapes with their channels."""
    if not found:
        return "", []
    name = max(found, key=lambda key: (max(len(s.order) for s in found[key].values()), key))
    shapes: dict[Any, Shape] = {}
    for channel, shape in sorted(found[name].items()):
        key = (shape.order, tuple(sorted(shape.parents.items())))
        known = shapes.get(key)
        channels = (*known.channels, channel) if known else (channel,)
        shapes[key] = Shape(channels, shape.order, shape.parents)
    return name, list(shapes.values())


def _document(value: object) -> Any:
    try:
        return json.loads(str(value))
    except ValueError:
        return None


def _below(parents: Mapping[int, int | None]) -> tuple[int, ...]:
    """Every node below the root, parents first; what is not below it is left out."""
    children: dict[int | None, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    open_ = sorted(children.get(None, []))[::-1]
    while open_:
        found.append(open_.pop())
        open_ += sorted(children.get(found[-1], []))[::-1]
    return tuple(found)
