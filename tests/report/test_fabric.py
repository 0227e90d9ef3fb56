"""Rings, trees and links are drawn as the log has them, and by host when there are many ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import advisor
from advisor.metrics.rings import shapes
from advisor.report.charts import draw
from advisor.report.charts.scene import Rect
from advisor.report.clean import shorten_middle
from advisor.report.figures import Figure, Matrix
from advisor.report.sections import links
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


def fabric(store: Store, run: str = RUN) -> dict[str, Figure]:
    section = links.build(store, run)
    return {} if section is None else {figure.id: figure for figure in section.figures}


def matrix(store: Store) -> tuple[Figure, Matrix]:
    figure = fabric(store)["bandwidth"]
    assert isinstance(figure.drawing, Matrix)
    return figure, figure.drawing


def test_a_log_of_nccl_gives_its_rings_and_trees() -> None:
    """v2.10-sockets.log, read by eye: ring 0 1 2 3 twice; trees 0-(1, 2-3) and 2-(0-1, 3)."""
    with advisor.load(LOGS / "v2.10-sockets.log") as run:
        found = fabric(run.store, "run")
    ring, tree = found["ring"], found["tree"]
    assert ring.title == "NCCL built one ring for 2 channels"
    assert ring.table is not None and tree.table is not None
    assert ring.table.rows == [["0, 1", "0 → 1 → 2 → 3 → 0"]]
    assert tree.title == "NCCL built 2 different trees on 2 channels"
    assert [row[1] for row in tree.table.rows] == ["1 ← 0, 2 ← 0, 3 ← 2", "0 ← 2, 1 ← 0, 3 ← 2"]
    assert "nodea: 0, 1; nodeb: 2, 3" in tree.note


@pytest.mark.parametrize("lost", ["ring", "tree"])
def test_half_a_ring_or_tree_is_not_drawn(store: Store, lost: str) -> None:
    add_fabric(store, [0, 1, 2, 3])
    if lost == "ring":
        store.con.execute("UPDATE topology SET value = replace(value, 'true', 'false')"
                          " WHERE kind = 'ring'")  # fmt: skip
    else:
        # Ranks 0 and 1 printed nothing: neither channel has a way from its root to all others.
        store.con.execute("DELETE FROM topology WHERE kind = 'tree' AND rank IN (1, 2)")
    assert lost not in fabric(store)


def test_many_ranks_are_drawn_by_host(store: Store) -> None:
    add_hosts(store, 96, 8)
    add_edges(store, 96, slow=(47, 48))
    figure, drawing = matrix(store)
    assert "hosts" in figure.description
    cells = [
        mark.title
        for mark in draw(drawing).marks
        if isinstance(mark, Rect) and mark.kind.startswith("late")
    ]
    assert cells == ["node05 to node06: 0.5 of 2 GB/s"]


def test_the_worst_hosts_are_kept_when_even_hosts_are_too_many(store: Store) -> None:
    add_hosts(store, 80, 2)
    add_edges(store, 80, slow=(71, 72))
    figure, drawing = matrix(store)
    assert len(drawing.names) == links.MOST
    assert {"node35", "node36"} <= set(drawing.names)
    assert "The 16 of 40 that lose most" in figure.note


def test_few_ranks_are_named_with_their_hosts(store: Store) -> None:
    add_hosts(store, 4, 2)
    add_edges(store, 4, slow=(1, 2))
    assert matrix(store)[1].names == ["0 · node00", "1 · node00", "2 · node01", "3 · node01"]


def test_only_links_below_their_expectation_have_a_row(store: Store) -> None:
    add_edges(store, 4, slow=(2, 3))
    figure, _ = matrix(store)
    assert figure.table is not None
    assert [row[0] for row in figure.table.rows] == ["The link 2 → 3"]
    assert "3 others as fast as expected" in figure.table.note


def test_a_circle_of_parents_has_no_root_and_hangs_from_nothing() -> None:
    assert shapes._below({0: 1, 1: 0}) == ()
    assert shapes._below({0: None, 2: 0, 1: 0, 3: 1}) == (0, 1, 3, 2)


def test_long_host_names_stay_apart_and_are_whole_when_pointed_at(store: Store) -> None:
    add_hosts(store, 4, 2)
    for rank in range(4):
        name = f"a-very-long-cluster-name-for-a-host-{rank // 2}.example.org"
        store.con.execute("UPDATE rank SET host = ? WHERE rank = ?", [name, rank])
    add_edges(store, 4, slow=(1, 2))
    rows = draw(matrix(store)[1]).row_labels[1:]
    assert all(len(row.text) <= 14 for row in rows)
    assert rows[3].title == "3 · a-very-long-cluster-name-for-a-host-1.example.org"


def test_a_short_name_keeps_both_ends() -> None:
    assert shorten_middle("node-17.rack-3", 9) == "node…ck-3"
    assert shorten_middle("node-17", 9) == "node-17"
    assert len(shorten_middle("x" * 50, 10)) == 10


def test_what_is_expected_stands_in_the_table_and_in_no_title(store: Store) -> None:
    """Where the order of ends leaves a range open (60 to 90 % is excess) the finding says the least
    that is expected: the table's middle alone would be another figure for it."""
    add_edges(store, 4, slow=(2, 3))
    found = """{"share": [0.6, 0.75, 0.9]}"""
    store.con.execute("UPDATE link_excess SET evidence = ? WHERE src = 2", [found])
    figure, _ = matrix(store)
    assert figure.table is not None
    assert figure.title.endswith("moves 0.5 GB/s, less than expected")
    assert figure.table.rows[0][1:3] == ["0.5", "1.2–5"]
    store.con.execute("UPDATE link_excess SET evidence = '{}' WHERE src = 2")
    alone = matrix(store)[0].table
    assert alone is not None and alone.rows[0][2] == "2"


def test_of_a_link_without_a_rate_to_expect_none_is_shown(store: Store) -> None:
    """GIVEN a delay of 90 % of its calls, and no call that moves what it would without it."""
    add_edges(store, 4, slow=(2, 3))
    found = """{"share": [0.6, 0.75, 0.9]}"""
    store.con.execute(
        "UPDATE link_excess SET evidence = ?, expected_gbps = NULL WHERE src = 2", [found]
    )
    figure = fabric(store)["bandwidth"]
    assert figure.table is not None
    assert figure.title.endswith("is slower than its peers")
    assert figure.table.rows[0][1:3] == ["0.5", "–"]
