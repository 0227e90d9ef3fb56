"""Clocks of jobs on devices, from everything that joins two hosts, against known ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from advisor.metrics.clocks.joint import joint_clocks
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.collectives.hosts import with_hosts
from advisor.metrics.derive import derive
from advisor.metrics.links.cost import homes
from tests.metrics.nccl_rings import Ask, Fabric, recording, world
from tests.metrics.support import store_of
from tests.support.marks import long

pytestmark = pytest.mark.slow

MS = 1_000_000


def infos(count: int, per_host: int, *, named: bool = True) -> dict[int, RankInfo]:
    return {
        rank: RankInfo(
            rank, f"h{rank // per_host}" if named else None, rank % per_host, count, True, {}
        )
        for rank in range(count)
    }


def pipeline(
    offset_ns: int, *, collectives: bool = True, drift_ppm: int = 0
) -> list[dict[int, Call]]:
    """Two stages of two ranks on two hosts: messages both ways between the hosts, and all-reduces
    inside them; the second host's clock is ahead by ``offset_ns``, and gains ``drift_ppm``."""
    chance = np.random.default_rng(3)
    columns = []
    number = 0
    for step in range(12):
        begin = 100 * MS * step
        for source, target, at in ((0, 2, 0), (1, 3, 1), (2, 0, 40), (3, 1, 41)):
            came = {r: begin + at * MS + int(chance.uniform(0, 3 * MS)) for r in (source, target)}
            done = max(came.values()) + 2 * MS
            column = {}
            for rank, op, peer in ((source, "send", target), (target, "recv", source)):
                ahead = offset_ns + begin * drift_ppm // 1_000_000 if rank > 1 else 0
                end = done + (15_000 if op == "recv" else 0) + int(chance.uniform(0, 5_000))
                column[rank] = Call(rank, op, came[rank] + ahead, end + ahead, number, peer=peer)
                number += 1
            columns.append(column)
        for pair in ((0, 1), (2, 3)) if collectives else ():
            starts = {r: begin + 60 * MS + int(chance.uniform(0, MS)) for r in pair}
            ahead = offset_ns if pair[0] > 1 else 0
            columns.append(
                {
                    r: Call(r, "all_reduce", starts[r] + ahead,
                            max(starts.values()) + MS + ahead + int(chance.uniform(0, 9_000)),
                            number + r, group=f"dp{pair[0]}")
                    for r in pair
                }
            )  # fmt: skip
            number += 4
    return columns


@pytest.mark.parametrize("offset_ns", [0, 15 * MS, -2_000 * MS])
def test_messages_join_hosts_whose_collectives_stay_inside(offset_ns: int) -> None:
    found = joint_clocks(pipeline(offset_ns), infos(4, 2))
    assert set(found) == {0, 1, 2, 3}
    assert found[2].offset_ns == found[3].offset_ns
    assert found[2].offset_ns == pytest.approx(-offset_ns, abs=60_000)
    assert found[0].offset_ns == found[1].offset_ns == 0


def test_messages_tell_a_clock_that_gains_more_than_they_take() -> None:
    """GIVEN messages of 15 us, and a clock that gains 110 us meanwhile THEN it is known as well."""
    clock = joint_clocks(pipeline(15 * MS, drift_ppm=100), infos(4, 2))[3]
    assert clock.offset_ns == pytest.approx(-15 * MS - 55_000, abs=30_000)
    assert 10_000 < clock.residual_ns < 110_000


def test_messages_one_way_leave_a_possible_clock_alone() -> None:
    columns = [c for c in pipeline(0) if next(iter(c.values())).rank == 0]
    assert joint_clocks(columns, infos(4, 2))[2].offset_ns == 0


def test_a_host_that_two_ways_lead_to_that_are_known_as_well() -> None:
    """GIVEN like messages of rank 0 to 1 and 2, and of both to 3 THEN one of the ways is taken."""
    columns = [
        {
            source: Call(source, "send", 0, 2 * MS, 2 * number, peer=target),
            target: Call(target, "recv", 0, (3 + number) * MS, 2 * number + 1, peer=source),
        }
        for number, (source, target) in enumerate(((0, 1), (0, 2), (1, 3), (2, 3)))
    ]
    found = joint_clocks(columns, infos(4, 1))
    assert [found[rank].offset_ns for rank in range(4)] == [0, 0, 0, 0]


def test_where_one_clock_is_surely_off_others_are_as_far_off_as_they_seem() -> None:
    """GIVEN clocks within a call's time of one another, one of them beyond what stagger hides."""
    ahead = [0, 1_160_000, 330_000, 1_840_000]
    columns = []
    for number in range(40):
        done = 10 * MS * number + 1_430_000
        columns.append({
            rank: Call(rank, "all_reduce", done - 1_430_000 + by, done + by, 4 * number + rank,
                       group="tp", bytes=30_000_000)
            for rank, by in enumerate(ahead)
        })  # fmt: skip
    found = joint_clocks(columns, infos(4, 1))
    assert [found[rank].offset_ns for rank in range(4)] == pytest.approx(
        [-by for by in ahead], abs=20_000
    )


@pytest.mark.long
@pytest.mark.parametrize("offset", [*long(0.0, 1e6), 20e6])
def test_the_stagger_of_a_slow_nic_is_no_clock(offset: float) -> None:
    fabric = Fabric(2, 4, sends={1: 0.4})
    asks = [Ask("all_reduce", world(fabric), size) for size in (20_000_000, 8_000_000, 3_000_000)]
    store = store_of(recording(fabric, asks, offsets={1: offset}, steps=6))
    derive(store)
    rows = store.con.execute("SELECT rank, clock_offset_ns FROM rank ORDER BY rank").fetchall()
    own = dict(rows)
    assert {own[rank] for rank in range(4)} == {0}
    assert own[4] == pytest.approx(-offset, abs=50_000)
    assert len({own[rank] for rank in range(4, 8)}) == 1


@pytest.mark.long
def test_a_single_rank_whose_clock_was_moved_is_found() -> None:
    fabric = Fabric(2, 4)
    asks = [Ask("all_reduce", world(fabric), size) for size in (20_000_000, 8_000_000)]
    traces = recording(fabric, asks, steps=6)
    for event in traces[6]["traceEvents"]:
        event["ts"] += 5_000.0
    store = store_of(traces)
    derive(store)
    rows = store.con.execute("SELECT rank, clock_offset_ns FROM rank ORDER BY rank").fetchall()
    assert [round((by or 0) / 1e5) for _, by in rows] == [0, 0, 0, 0, 0, 0, -50, 0]


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("pairs", [((0, 1), (0, 1), (2, 3), (0, 2), (1, 3)), ((0, 1), (2, 3))])
def test_of_a_pair_on_one_host_the_rank_that_lost_its_base_time_is_off(
    lost: int, pairs: tuple[tuple[int, int], ...]
) -> None:
    since_1970 = 1_700_000_000_000 * MS
    columns = []
    for at in range(1, 7):
        for place, pair in enumerate(pairs):
            starts = {r: 100 * MS * at + 9 * MS * place + since_1970 * (r != lost) for r in pair}
            columns.append({r: Call(r, "all_reduce", start, start + 5 * MS, at, group=f"{pair}")
                            for r, start in starts.items()})  # fmt: skip
    found = joint_clocks(columns, infos(4, 4))
    off = {r: clock.offset_ns - found[(lost + 2) % 4].offset_ns for r, clock in found.items()}
    assert off == {r: pytest.approx(since_1970 * (r == lost), abs=MS) for r in range(4)}


@pytest.mark.parametrize(
    ("devices", "hosts"),
    [
        ([0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1]),
        ([0, 1, 2, 3], [0, 0, 0, 0]),
        ([0, 0, 0, 0], None),  # each process sees its own device only
        ([0, 1, 0, 1, 1, 0], None),  # no blocks
    ],
)
def test_hosts_from_device_numbers(devices: list[int], hosts: list[int] | None) -> None:
    given = {r: RankInfo(r, None, d, len(devices), True, {}) for r, d in enumerate(devices)}
    found = [info.host for info in with_hosts(given).values()]
    assert found == ([f"node {host}" for host in hosts] if hosts else [None] * len(devices))


def test_hosts_of_part_of_the_ranks_stay_open_where_two_divisions_fit() -> None:
    given = {r: RankInfo(r, None, d, 16, True, {}) for r, d in {0: 0, 9: 1}.items()}
    assert {info.host for info in with_hosts(given).values()} == {None}


@pytest.mark.parametrize(("cut", "hosts"), [(True, 2), (False, 1)])
def test_a_file_that_was_cut_before_its_device_hides_no_host(cut: bool, hosts: int) -> None:
    given = {r: RankInfo(r, None, r % 4, 8, True, {}) for r in range(8)}
    given[7] = given[7]._replace(device=None, complete=not cut)
    assert len({info.host for info in with_hosts(given).values()}) == hosts


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("missing", range(8))
def test_a_missing_rank_is_of_its_blocks_host(missing: int, hosts: int) -> None:
    group = Group("0", "default_pg", tuple(range(8)), 8)
    read = {r: info for r, info in infos(8, 8 // hosts).items() if r != missing}
    data = cast(Any, SimpleNamespace(groups={"0": group}, infos=read))
    assert homes(data) == {rank: f"h{rank * hosts // 8}" for rank in range(8)}


def test_a_named_host_is_kept() -> None:
    assert with_hosts(infos(4, 2)) == infos(4, 2)
