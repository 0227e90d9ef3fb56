"""The rings and trees that NCCL built, with the time lost on their edges.

Channels of the same shape are drawn once. With more ranks than a picture can show, hosts stand for
their ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.report import numbers, summary
from advisor.report.charts.ring import ring_drawing
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.charts.tree import tree_drawing, walk
from advisor.report.clean import one_line, shorten
from advisor.report.link_costs import link_costs
from advisor.report.tables import rows
from advisor.store.store import Store

MAX_PLACES = 64
MAX_SHAPES = 4
# A tree has a line per rank: beyond this many, hosts say more, unless there are only a few.
_MAX_LINES, _FEW_HOSTS = 32, 4
_Edge = tuple[Any, Any]


@dataclass(frozen=True)
class Shape:
    """One ring (``parents`` empty) or tree, the channels that have it, and the ranks in it."""

    channels: tuple[int, ...]
    order: tuple[int, ...]
    parents: Mapping[int, int | None]


@dataclass(frozen=True)
class Places:
    """What a node of a drawing stands for: a rank, or a host when ``by_host``."""

    host: Mapping[int, str]
    by_host: bool

    def of(self, rank: int) -> Any:
        """The node of a rank."""
        return self.host.get(rank, "?") if self.by_host else rank

    def name(self, node: Any) -> str:
        """The whole name of a node, in one line."""
        if self.by_host:
            return one_line(f"host {node}")
        host = self.host.get(node)
        return one_line(f"rank {node} · {host}" if host else f"rank {node}")


def figures(store: Store, run: str, suffix: str = "") -> list[Figure]:
    """Rings and trees of the run's largest communicator, as far as a log tells them whole."""
    host = hosts(store, run)
    lost, measured = lost_on_edges(store, run)
    found = [
        ("ring", *_largest(_rings(store, run))),
        ("tree", *_largest(_trees(store, run))),
    ]
    return [
        _figure(kind, name, shapes, host, lost, measured, suffix)
        for kind, name, shapes in found
        if shapes
    ]


def hosts(store: Store, run: str) -> dict[int, str]:
    """Host of each rank, from the traces or the log."""
    found = rows(
        store,
        "SELECT rank, host FROM topology WHERE run = $1 AND kind = 'rank' AND rank IS NOT NULL"
        " AND host IS NOT NULL UNION ALL"
        " SELECT rank, host FROM rank WHERE run = $1 AND host IS NOT NULL",
        [run],
    )
    return {row["rank"]: row["host"] for row in found}


def lost_on_edges(store: Store, run: str) -> tuple[dict[_Edge, float], bool]:
    """Time per step lost on (sender, receiver), and whether any edge was measured at all."""
    found = [
        row
        for row in link_costs(store, run)
        if row["kind"] == "edge" and row["src"] is not None and row["dst"] is not None
    ]
    lost: dict[_Edge, float] = {}
    for row in found:
        edge, cost = (row["src"], row["dst"]), float(row["excess_ns_per_step"] or 0)
        if cost > lost.get(edge, 0.0):
            lost[edge] = cost
    return lost, bool(found)


def _figure(
    kind: str,
    communicator: str,
    shapes: list[Shape],
    host: Mapping[int, str],
    lost: Mapping[_Edge, float],
    measured: bool,
    suffix: str,
) -> Figure:
    size = max(len(shape.order) for shape in shapes)
    places = Places(host, by_host=_by_host(kind, shapes[0].order, host))
    total = sum(len(shape.channels) for shape in shapes)
    drawn = [shape for shape in shapes if _nodes(shape, places) <= MAX_PLACES][:MAX_SHAPES]
    if kind == "tree" and drawn and _nodes(drawn[0], places) > _MAX_LINES:
        drawn = drawn[:1]
    costs = _by_place(lost, places)
    note = [f"NCCL's log, communicator {communicator} of {numbers.plural(size, 'rank')}."]
    if places.by_host:
        note.append("Hosts stand for their ranks; an edge loses what its worst pair loses.")
    elif host:
        note.append(_where(shapes[0].order, host))
    if len(drawn) < len(shapes):
        note.append(f"{len(drawn)} of {len(shapes)} shapes drawn; the table has all.")
    edges = "edges as wide as the time lost on them" if costs else "no time is known per edge"
    return Figure(
        id=f"{kind}{suffix}",
        title=_title(kind, shapes, total, lost, measured),
        description=f"The {kind}s of {numbers.plural(total, 'channel')}; {edges}.",
        scenes=[_scene(kind, shape, places, costs) for shape in drawn],
        table=DataTable(
            ["channels", "order" if kind == "ring" else "child ← parent", "lost per step"],
            [
                [summary.rank_list(list(shape.channels)), _words(shape), _worst(shape, lost)]
                for shape in shapes
            ],
        ),
        note=" ".join(note),
    )


def _by_host(kind: str, order: Sequence[int], host: Mapping[int, str]) -> bool:
    if not set(order) <= set(host):
        return False
    several = len({host[rank] for rank in order}) >= _FEW_HOSTS
    return len(order) > MAX_PLACES or (kind == "tree" and len(order) > _MAX_LINES and several)


def _title(
    kind: str, shapes: list[Shape], total: int, lost: Mapping[_Edge, float], measured: bool
) -> str:
    inside = {edge: lost[edge] for shape in shapes for edge in _edges(shape) if edge in lost}
    if inside:
        (src, dst), worst = max(inside.items(), key=lambda item: item[1])
        return f"In NCCL's {kind}, the edge {src} → {dst} loses {numbers.duration(worst)} per step"
    channels = numbers.plural(total, "channel")
    same = f"one {kind} for {channels}" if len(shapes) == 1 else (
        f"{len(shapes)} different {kind}s on {channels}"
    )  # fmt: skip
    if measured:
        return f"NCCL built {same}; no edge loses time measurably"
    return f"NCCL built {same}"


def _scene(kind: str, shape: Shape, places: Places, lost: Mapping[_Edge, float]) -> Any:
    words = "Channel " if len(shape.channels) == 1 else "Channels "
    caption = words + shorten(summary.rank_list(list(shape.channels)), 40)
    if kind == "ring":
        order = list(dict.fromkeys(places.of(rank) for rank in shape.order))
        names = {node: places.name(node) for node in order}
        return ring_drawing(order, lost, names, caption=caption)
    parents: dict[Any, Any] = {}
    for rank, _ in walk(shape.parents):
        parent = shape.parents[rank]
        node = places.of(rank)
        if node not in parents and (parent is None or places.of(parent) != node):
            parents[node] = None if parent is None else places.of(parent)
    names = {node: places.name(node) for node in parents}
    return tree_drawing(parents, lost, names, caption=caption)


def _rings(store: Store, run: str) -> dict[str, dict[int, Shape]]:
    """Whole rings by communicator and channel."""
    found: dict[str, dict[int, Shape]] = {}
    for row in rows(
        store, "SELECT value FROM topology WHERE run = ? AND kind = 'ring' ORDER BY name", [run]
    ):
        value = _document(row["value"])
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


def _trees(store: Store, run: str) -> dict[str, dict[int, Shape]]:
    """Whole trees by communicator and channel: one root, and everybody below it."""
    parents: dict[tuple[str, int], dict[int, int | None]] = {}
    for row in rows(
        store,
        "SELECT rank, value FROM topology WHERE run = ? AND kind = 'tree' AND rank IS NOT NULL"
        " ORDER BY rank",
        [run],
    ):
        entries = _document(row["value"])
        for entry in entries if isinstance(entries, list) else []:
            key = str(entry.get("communicator")), int(entry.get("channel") or 0)
            known = parents.setdefault(key, {})
            if entry.get("root") or entry.get("parent") is not None:
                known[row["rank"]] = entry["parent"]
            for child in entry.get("children") or []:
                if child is not None:
                    known.setdefault(child, row["rank"])
    found: dict[str, dict[int, Shape]] = {}
    for (name, channel), up in parents.items():
        order = tuple(rank for rank, _ in walk(up))
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


def _edges(shape: Shape) -> list[_Edge]:
    if not shape.parents:
        return list(zip(shape.order, (*shape.order[1:], shape.order[0]), strict=True))
    pairs = [(rank, up) for rank, up in shape.parents.items() if up is not None]
    return [*pairs, *((up, rank) for rank, up in pairs)]


def _by_place(lost: Mapping[_Edge, float], places: Places) -> dict[_Edge, float]:
    costs: dict[_Edge, float] = {}
    for (src, dst), value in lost.items():
        edge = places.of(src), places.of(dst)
        costs[edge] = max(costs.get(edge, 0.0), value)
    return costs


def _nodes(shape: Shape, places: Places) -> int:
    return len({places.of(rank) for rank in shape.order})


def _words(shape: Shape) -> str:
    if not shape.parents:
        return " → ".join(str(rank) for rank in (*shape.order, shape.order[0]))
    return ", ".join(
        f"{rank} ← {up}" for rank in shape.order if (up := shape.parents[rank]) is not None
    )


def _worst(shape: Shape, lost: Mapping[_Edge, float]) -> str:
    known = [(lost[edge], edge) for edge in _edges(shape) if edge in lost]
    if not known:
        return "–"
    value, (src, dst) = max(known)
    return f"{numbers.duration(value)} on {src} → {dst}"


def _where(ranks: Sequence[int], host: Mapping[int, str]) -> str:
    by_host: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        by_host.setdefault(host.get(rank, "unknown host"), []).append(rank)
    parts = [f"{name}: {summary.rank_list(members)}" for name, members in by_host.items()]
    more = f" and {len(parts) - 8} more hosts" if len(parts) > 8 else ""
    return f"Ranks by host: {'; '.join(parts[:8])}{more}."


def _document(value: object) -> Any:
    try:
        return json.loads(str(value))
    except ValueError:
        return None
