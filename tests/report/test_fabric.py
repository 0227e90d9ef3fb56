"""Rings, trees and links are drawn as the log has them, and by host when there are many ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import advisor
from advisor.report.charts.scene import Dot, Figure, Text
from advisor.report.charts.tree import tree_drawing, walk
from advisor.report.clean import shorten_middle
from advisor.report.sections import fabric, links
from advisor.store.store import Store
from tests.report.support import MS, RUN, add_fabric

LOGS = Path(__file__).resolve().parents[2] / "fixtures" / "nccl-logs"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.create() as made:
        yield made


def add_edges(store: Store, count: int, slow: tuple[int, int]) -> None:
    """A ring of measured edges, of which one moves a quarter of what is expected."""
    for src in range(count):
        dst = (src + 1) % count
        bad = (src, dst) == slow
        store.con.execute(
            "INSERT INTO link_excess VALUES (?, 'edge', ?, ?, NULL, '0', NULL, 50, ?, 2.0,"
            " 'stagger', ?, ?, ?, 0.01, '{}')",
            [RUN, src, dst, 0.5 if bad else 2.0, *([9 * MS, 8 * MS, 10 * MS] if bad else [0] * 3)],
        )


def add_hosts(store: Store, ranks: int, each: int) -> None:
    for rank in range(ranks):
        store.con.execute(
            "INSERT INTO rank (run, rank, host) VALUES (?, ?, ?)",
            [RUN, rank, f"node{rank // each:02d}"],
        )


def words(figure: Figure, scene: int = 0) -> list[str]:
    return [mark.text for mark in figure.scenes[scene].marks if isinstance(mark, Text)]


def titles(figure: Figure, scene: int = 0) -> list[str]:
    return [mark.title for mark in figure.scenes[scene].marks if isinstance(mark, Dot)]


def test_a_log_of_nccl_gives_its_rings_and_trees() -> None:
    """v2.10-sockets.log, read by eye: ring 0 1 2 3 twice; trees 0-(1, 2-3) and 2-(0-1, 3)."""
    with advisor.load(LOGS / "v2.10-sockets.log") as run:
        ring, tree = fabric.figures(run.store, "run")
    assert ring.title == "NCCL built one ring for 2 channels"
    assert words(ring) == ["Channels 0-1", "0", "1", "2", "3"]
    assert titles(ring) == [f"rank {r} · node{'a' if r < 2 else 'b'}" for r in range(4)]
    assert tree.title == "NCCL built 2 different trees on 2 channels"
    a, b = "nodea", "nodeb"
    assert words(tree, 0) == [
        "Channel 0", f"rank 0 · {a}", f"rank 1 · {a}", f"rank 2 · {b}", f"rank 3 · {b}",
    ]  # fmt: skip
    assert words(tree, 1) == [
        "Channel 1", f"rank 2 · {b}", f"rank 0 · {a}", f"rank 1 · {a}", f"rank 3 · {b}",
    ]  # fmt: skip
    assert tree.table is not None
    assert [row[1] for row in tree.table.rows] == ["1 ← 0, 2 ← 0, 3 ← 2", "0 ← 2, 1 ← 0, 3 ← 2"]
    assert "nodea: 0-1; nodeb: 2-3" in tree.note


def test_time_lost_on_an_edge_stands_on_it(store: Store) -> None:
    add_fabric(store, [0, 1, 2, 3])
    add_edges(store, 4, slow=(2, 3))
    ring, tree = fabric.figures(store, RUN)
    assert ring.title == "In NCCL's ring, the edge 2 → 3 loses 9 ms per step"
    assert "9 ms" in words(ring)
    # The chain 0-1-2-3 of channel 0 uses the slow edge downwards, its reverse of channel 1 upwards.
    assert "rank 3: loses 9 ms" in words(tree, 0)
    assert "rank 2: loses 9 ms" in words(tree, 1)


def test_nothing_is_said_of_time_that_nobody_measured(store: Store) -> None:
    add_fabric(store, [0, 1, 2, 3])
    assert all("loses" not in figure.title for figure in fabric.figures(store, RUN))
    add_edges(store, 4, slow=(-1, -1))
    assert all("no edge loses time" in figure.title for figure in fabric.figures(store, RUN))


@pytest.mark.parametrize("lost", ["ring", "tree"])
def test_half_a_ring_or_tree_is_not_drawn(store: Store, lost: str) -> None:
    add_fabric(store, [0, 1, 2, 3])
    if lost == "ring":
        store.con.execute("UPDATE topology SET value = replace(value, 'true', 'false')"
                          " WHERE kind = 'ring'")  # fmt: skip
    else:
        # Ranks 0 and 1 printed nothing: neither channel has a way from its root to all others.
        store.con.execute("DELETE FROM topology WHERE kind = 'tree' AND rank IN (1, 2)")
    assert lost not in [figure.id for figure in fabric.figures(store, RUN)]


def test_many_ranks_are_drawn_by_host(store: Store) -> None:
    add_hosts(store, 96, 8)
    add_fabric(store, list(range(96)))
    add_edges(store, 96, slow=(47, 48))
    ring, tree = fabric.figures(store, RUN)
    hosts = [f"host node{number:02d}" for number in range(12)]
    assert titles(ring) == hosts
    assert titles(tree) == hosts
    assert words(tree)[6] == "host node05"
    assert words(tree)[7] == "host node06: loses 9 ms"
    matrix = links.figure(store, RUN)
    assert matrix is not None
    assert "hosts" in matrix.description
    cells = [
        mark.title
        for mark in matrix.scenes[0].marks
        if getattr(mark, "kind", "").startswith("late")
    ]
    assert cells == ["node05 to node06: 0.5 of 2 GB/s"]


def test_the_worst_hosts_are_kept_when_even_hosts_are_too_many(store: Store) -> None:
    add_hosts(store, 80, 2)
    add_edges(store, 80, slow=(71, 72))
    matrix = links.figure(store, RUN)
    assert matrix is not None
    labels = [label.text for label in matrix.scenes[0].row_labels[1:]]
    assert len(labels) == links.MAX_PLACES
    assert {"node35", "node36"} <= set(labels)
    assert "The 16 of 40 that lose most" in matrix.note


def test_few_ranks_are_named_with_their_hosts(store: Store) -> None:
    add_hosts(store, 4, 2)
    add_edges(store, 4, slow=(1, 2))
    matrix = links.figure(store, RUN)
    assert matrix is not None
    assert [label.text for label in matrix.scenes[0].row_labels[1:]] == [
        "0 · node00", "1 · node00", "2 · node01", "3 · node01",
    ]  # fmt: skip


def test_a_circle_of_parents_has_no_root_and_hangs_from_nothing() -> None:
    assert walk({0: 1, 1: 0}) == []
    assert walk({0: None, 2: 0, 1: 0, 3: 1}) == [(0, 0), (1, 1), (3, 2), (2, 1)]


def test_a_deep_tree_keeps_room_for_its_names() -> None:
    chain = {rank: rank - 1 if rank else None for rank in range(64)}
    scene = tree_drawing(chain, {}, {rank: f"rank {rank}" for rank in chain})
    assert scene.fixed_width is not None
    assert max(mark.x for mark in scene.marks if isinstance(mark, Text)) < scene.fixed_width - 120


def test_long_host_names_stay_apart_and_are_whole_when_pointed_at(store: Store) -> None:
    add_hosts(store, 4, 2)
    for rank in range(4):
        name = f"a-very-long-cluster-name-for-a-host-{rank // 2}.example.org"
        store.con.execute("UPDATE rank SET host = ? WHERE rank = ?", [name, rank])
        store.con.execute("UPDATE topology SET host = ? WHERE rank = ?", [name, rank])
    add_fabric(store, [0, 1, 2, 3])
    add_edges(store, 4, slow=(1, 2))
    _, tree = fabric.figures(store, RUN)
    labels = [m for m in tree.scenes[0].marks if isinstance(m, Text) and "rank " in m.text]
    assert len({mark.text.removeprefix("rank ") for mark in labels}) == 4
    assert all(len(mark.text.split(":")[0]) <= 24 for mark in labels)
    assert "rank 3 · a-very-long-cluster-name-for-a-host-1.example.org" in [m.title for m in labels]
    matrix = links.figure(store, RUN)
    assert matrix is not None
    rows = matrix.scenes[0].row_labels[1:]
    assert all(len(row.text) <= 14 for row in rows)
    assert rows[3].title == "3 · a-very-long-cluster-name-for-a-host-1.example.org"


def test_a_short_name_keeps_both_ends() -> None:
    assert shorten_middle("node-17.rack-3", 9) == "node…ck-3"
    assert shorten_middle("node-17", 9) == "node-17"
    assert len(shorten_middle("x" * 50, 10)) == 10


def test_a_bandwidth_that_only_the_order_of_ends_tells_is_a_range(store: Store) -> None:
    """Of a call's time 60 to 90 % is excess: the link should move 2.5 to 10 times as much."""
    add_edges(store, 4, slow=(2, 3))
    found = """{"share": [0.6, 0.75, 0.9]}"""
    store.con.execute("UPDATE link_excess SET evidence = ? WHERE src = 2", [found])
    matrix = links.figure(store, RUN)
    assert matrix is not None and matrix.table is not None
    assert matrix.title.endswith(": 0.5 GB/s where 1.25 to 5 GB/s is expected")
    assert matrix.table.rows[0][4] == "1.25 to 5"
    store.con.execute("UPDATE link_excess SET expected_from = 'probe'")
    probed = links.figure(store, RUN)
    assert probed is not None
    assert probed.title.endswith("where 2 GB/s is expected")
