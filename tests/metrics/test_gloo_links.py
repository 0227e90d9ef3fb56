"""Slow links and clocks of gloo's rings, told together from when ranks come and leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.metrics.clocks.joint import joint_clocks
from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.lateness.waiting import split_waiting
from advisor.metrics.links.cost import Inputs, homes
from advisor.metrics.links.locations import Location
from advisor.metrics.links.ring_ends import clocks_beside_links
from advisor.metrics.links.slow_location import Found, slow_location
from advisor.metrics.rings.schedule import paths_through, ring_of, segments
from advisor.statistics import Floats
from tests.support.marks import long

MS = 1_000_000
HOSTS = {rank: f"h{rank}" for rank in range(4)}
BOTH = ("all_reduce", "all_gather")


def left(op: str, takes: dict[tuple[int, int], float], count: int, each: int = 2) -> Floats:
    """Rank i, rank j: from the arrival of j to when i leaves; others' edges take a segment 1."""
    ring = ring_of(op, range(count))
    assert ring is not None
    over = [takes.get(edge, 1.0) for edge in zip(ring, [*ring[1:], ring[0]], strict=True)]
    path = paths_through(op, np.array([over]), np.zeros((1, count)), each)[0]
    place = np.argsort(ring)
    return path[np.ix_(place, place)]


def calls(
    ops: Sequence[str],
    *,
    sends: float = 1.0,
    receives: float = 1.0,
    off_ms: dict[int, float] | None = None,
) -> list[dict[int, Call]]:
    """Forty calls of 10 ms of each kind on four hosts that come within 4 ms, with host 1 slow."""
    chance = np.random.default_rng(5)
    columns = []
    others = (0, 2, 3)
    slow = {**{(1, o): sends for o in others}, **{(o, 1): receives for o in others}}
    for number in range(40 * len(ops)):
        op = ops[number % len(ops)]
        path = left(op, slow, 4)
        starts = 50.0 * number + chance.uniform(0, 4, 4)
        ends = (starts + 10.0 * path / path.max()).max(axis=1) + chance.normal(0, 0.05, 4)
        column = {}
        for rank in HOSTS:
            off = (off_ms or {}).get(rank, 0.0)
            column[rank] = Call(
                rank, op, round((starts[rank] + off) * MS), round((ends[rank] + off) * MS),
                event_id=number, group="0", group_size=4, bytes=300_000,
            )  # fmt: skip
        columns.append(column)
    return columns


def told(columns: list[dict[int, Call]]) -> tuple[dict[int, Clock], Found]:
    infos = {rank: RankInfo(rank, host, None, 4, True, {}) for rank, host in HOSTS.items()}
    groups = {"0": Group("0", None, tuple(HOSTS), 4)}
    found = joint_clocks(columns, infos, on_host=True)
    split_waiting(columns, groups, found)
    data = Inputs("run", columns, {}, groups, infos, found, {}, {}, {}, gloo=True)
    clocks, ends = clocks_beside_links(data)
    assert ends is not None
    split_waiting(columns, groups, clocks)
    exclusive = {
        rank: {c[rank].event_id: float(c[rank].transfer or 0) for c in columns} for rank in HOSTS
    }
    data = Inputs(
        "run", columns, {}, groups, infos, clocks, exclusive, {}, {}, gloo=True, ring_ends=ends
    )
    posterior = slow_location(data, homes(data))
    assert posterior is not None
    return clocks, posterior


@pytest.mark.parametrize(
    ("slow", "direction"),
    [({"sends": 4.0, "receives": 4.0}, "both"), *long(({"sends": 4.0}, "send"),
                                                      ({"receives": 4.0}, "receive"))],
)  # fmt: skip
@pytest.mark.parametrize("off_ms", [{}, {1: 3.0}, *long({0: -2.0}, {2: 900.0}, {1: -900.0})])
def test_a_slow_host_is_named_with_any_clock_off(
    slow: dict[str, float], direction: str, off_ms: dict[int, float]
) -> None:
    clocks, found = told(calls(BOTH, **slow, off_ms=off_ms))  # type: ignore[arg-type]
    assert found.nothing < 0.05
    assert found.locations[0] == Location("rank", False, (1,), direction)
    for rank, off in off_ms.items():
        by_ms = (clocks[rank].offset_ns - clocks[3].offset_ns) / MS
        # A few ms may be what the model is off by.
        assert abs(off) < 10 or by_ms == pytest.approx(-off, abs=1.5)
    assert off_ms or not any(clock.offset_ns for clock in clocks.values())


@pytest.mark.parametrize("off_ms", [{}, {1: 3.0}, *long({0: -2.0}, {2: 900.0}, {0: 5.0, 2: -5.0})])
def test_a_clock_that_is_off_makes_no_link_slow(off_ms: dict[int, float]) -> None:
    clocks, found = told(calls(BOTH, off_ms=off_ms))
    assert found.nothing > 0.8
    by_ms = [(clocks[rank].offset_ns - clocks[3].offset_ns) / MS for rank in HOSTS]
    assert by_ms == pytest.approx([-off_ms.get(rank, 0.0) for rank in HOSTS], abs=0.5)


@pytest.mark.parametrize("seed", [0, *long(1, 2)])
def test_calls_that_busy_cores_hold_up_say_less_than_those_they_do_not(seed: int) -> None:
    """Host 2's clock is 3 ms off, and calls of 3 ms take 10 ms longer as it comes: in 13 ms an edge
    into host 2 might make it end last, in what the fastest take it cannot."""
    chance, columns = np.random.default_rng(seed), calls(["all_reduce"] * 3, off_ms={2: 3.0})
    for number, column in enumerate(columns):
        held = chance.exponential(10.0) - 7.0
        late = chance.normal(held, 1.0, len(HOSTS))
        for rank, call in column.items():
            by_ns = round(late[rank] * MS)
            column[rank] = replace(call, step=number // 15, end=call.end + by_ns)
    assert told(columns)[1].nothing > 0.8


def test_one_operation_leaves_the_two_ends_of_an_edge_open() -> None:
    """gloo's all-reduce sends to the rank before: host 1 sends to host 0 only."""
    _, found = told(calls(["all_reduce"], sends=4.0))
    alike = {Location("rank", False, (1,), "send"), Location("rank", False, (0,), "receive")}
    assert alike <= {*found.locations}


@pytest.mark.parametrize(("op", "edge", "first"), [("all_reduce", (3, 2), 0),
                                                   ("all_gather", (3, 0), 2)])  # fmt: skip
def test_receiver_of_a_slow_edge_ends_last_and_the_farthest_first(
    op: str, edge: tuple[int, int], first: int
) -> None:
    # Measured on four hosts (LAB): with the sending side of rank 3 slow.
    ends = left(op, {edge: 10.0}, 4).max(axis=1)
    assert int(ends.argmax()) == edge[1]
    assert int(ends.argmin()) == first


def test_long_messages_leave_closer_together_as_gloo_cuts_them_into_more_segments() -> None:
    # GIVEN three hosts, one of which sends at 150 Mbit/s and the others at 1,000: in each of eight
    # calls of 14.2 MB and 998 ms, rank 1, which receives from it, ended 96 ms after rank 0 and its
    # sender, rank 2, 25 ms after (torch 2.13)
    each = segments("all_reduce", 3, 14_204_968)
    assert each == 5
    # WHEN the slow edge is that into rank 1, 1 / 0.15 times as slow
    ends = left("all_reduce", {(2, 1): 1 / 0.15}, 3, each).max(axis=1)
    after = (ends - ends.min()) / ends.max() * 998
    # THEN the model's ends are those, where two segments a chunk would have put 250 ms between them
    assert after[1] == pytest.approx(96, abs=8)
    assert max(after[0], after[2]) < 30
    two = left("all_reduce", {(2, 1): 1 / 0.15}, 3).max(axis=1)
    assert (two[1] - two.min()) / two.max() * 998 > 200
    # AND messages that fit into two segments a chunk, and all-gathers, are cut into two
    assert segments("all_reduce", 3, 6 << 20) == 2
    assert segments("all_gather", 3, 100 << 20) == 2
