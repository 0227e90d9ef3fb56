"""What is slow in NCCL's jobs, told from rings that are simulated slice by slice."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from advisor.metrics.derive import derive
from advisor.metrics.links import (
    ring_blocks,
    ring_ends,
    ring_lags,
    ring_patterns,
    ring_reach,
    slow_location,
)
from advisor.metrics.links.named import LIKELY, SURE
from advisor.metrics.rings.nccl import LOW_LATENCY, SIMPLE, Protocol, ends_after, paths_after
from tests.metrics.nccl_rings import (
    SLICE_BYTES,
    Ask,
    Fabric,
    Group,
    _ring,
    across,
    inside,
    recording,
    world,
)
from tests.metrics.support import store_of
from tests.support.marks import long, slow

MB = 1_000_000


def rows(
    fabric: Fabric, asks: list[Ask], unread: tuple[int, ...] = (), **more: Any
) -> list[dict[str, Any]]:
    """The links that are named, with their evidence, without the files of some ranks."""
    traces = recording(fabric, asks, steps=6, **more)
    traces = {rank: trace for rank, trace in traces.items() if rank not in unread}
    store = store_of(traces)
    for rank, trace in traces.items():
        for device in trace["deviceProperties"]:
            store.con.execute("UPDATE rank SET device_name = ? WHERE rank = ?",
                              [device["name"], rank])  # fmt: skip
    derive(store)
    found = store.con.execute("SELECT kind, src, dst, host, evidence FROM link_excess").fetchall()
    names = ("kind", "src", "dst", "host")
    return [dict(zip(names, row[:4], strict=True)) | json.loads(row[4]) for row in found]


def ddp(fabric: Fabric) -> list[Ask]:
    return [Ask("all_reduce", world(fabric), size) for size in (25 * MB, 25 * MB, 8 * MB)]


def fsdp(fabric: Fabric) -> list[Ask]:
    return [Ask("all_gather", world(fabric), 40 * MB), Ask("all_gather", world(fabric), 40 * MB),
            Ask("reduce_scatter", world(fabric), 40 * MB)]  # fmt: skip


def hsdp(fabric: Fabric) -> list[Ask]:
    return [Ask("all_gather", inside(fabric), 40 * MB),
            Ask("reduce_scatter", inside(fabric), 40 * MB),
            Ask("all_reduce", across(fabric), 20 * MB)]  # fmt: skip


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("plan", "offset"), [*long((ddp, 0.0)), *slow((fsdp, 1e6)), (hsdp, 1e6)])
def test_healthy_links_name_nothing(plan: Any, offset: float) -> None:
    fabric = Fabric(2, 4)
    assert rows(fabric, plan(fabric), offsets={1: offset}, seed=2) == []


def test_rings_of_more_hosts_than_are_looked_at_together_name_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN one group of more hosts than its ends are held against each other."""
    monkeypatch.setattr(ring_lags, "MOST_ENDS", 3)
    fabric = Fabric(4, 1)
    assert rows(fabric, ddp(fabric)) == []


@pytest.mark.slow
def test_a_late_rank_is_no_slow_link() -> None:
    fabric = Fabric(2, 4)
    assert rows(fabric, hsdp(fabric), slow={5: 1.5}) == []


@pytest.mark.long
@pytest.mark.parametrize(("unread", "near"), [((5,), [2, 3]), ((4, 5), [2, 3])])
def test_ranks_whose_files_are_lost_hide_no_slow_nic(
    unread: tuple[int, ...], near: list[int]
) -> None:
    slow = dict.fromkeys((2, 3), 0.3)
    fabric = Fabric(4, 2, sends=slow, receives=slow)
    (found,) = rows(fabric, ddp(fabric), unread)
    assert set(found["near"]) <= set(near)
    assert found["healthy"] < SURE


@pytest.mark.long
@pytest.mark.parametrize("slow", [{}, {5: 2.0}])
def test_whoever_waits_for_a_rank_whose_file_is_lost_has_no_slow_nic(
    slow: dict[int, float],
) -> None:
    fabric = Fabric(4, 2)
    found = rows(fabric, ddp(fabric), (5,), slow=slow, device="NVIDIA A100-SXM4-80GB")
    assert found == []


@pytest.mark.slow
def test_one_of_eight_groups_across_hosts_is_slow() -> None:
    fabric = Fabric(2, 8, sends={5: 0.6}, receives={5: 0.6})
    (found,) = rows(fabric, hsdp(fabric))
    assert (found["kind"], found["src"], found["dst"]) == ("edge", 5, 13)
    starts = dict.fromkeys((5, 13), 0.0)
    healthy, slow = (
        max(one.ends("all_reduce", (5, 13), 20 * MB, starts).values())
        for one in (Fabric(2, 8), fabric)
    )
    low, _, high = found["share"]
    assert low <= 1 - healthy / slow <= high


@pytest.mark.slow
def test_groups_beside_it_say_by_how_much_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN ends that a model of rings takes for those of a NIC which is hardly slow."""
    by_ends, levels = ring_ends._by_ends, np.arange(len(slow_location.SLOWDOWNS))

    def hardly_slow(*given: Any) -> Any:
        logs, nothing = by_ends(*given)
        return logs - 8.0 * levels, nothing

    monkeypatch.setattr(ring_ends, "_by_ends", hardly_slow)
    fabric = Fabric(3, 2, sends={4: 0.25}, receives={4: 0.25})
    (found,) = rows(fabric, hsdp(fabric))
    starts = dict.fromkeys((0, 2, 4), 0.0)
    healthy, slow = (
        max(one.ends("all_reduce", (0, 2, 4), 20 * MB, starts).values())
        for one in (Fabric(3, 2), fabric)
    )
    assert found["share"][0] <= 1 - healthy / slow <= found["share"][2]


@pytest.mark.long
def test_the_order_of_ends_tells_the_nic_of_the_only_group() -> None:
    fabric = Fabric(4, 4, sends={5: 0.6}, receives={5: 0.6})
    (found,) = rows(fabric, ddp(fabric))
    assert (found["kind"], found["src"], found["direction"]) == ("rank", 5, "both")


@pytest.mark.long
def test_a_first_look_by_a_few_calls_leaves_the_right_location(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring_lags, "_MOST_AT_ONCE", 4)
    monkeypatch.setattr(ring_ends, "MOST_RANKS", 8 * 16)  # 8 of 99
    fabric = Fabric(4, 4, sends={5: 0.6}, receives={5: 0.6})
    (found,) = rows(fabric, ddp(fabric))
    assert (found["kind"], found["src"], found["direction"]) == ("rank", 5, "both")


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "late"), [((4, 5, 6, 7), {}), *long(((), {5: 2.0}), ((), {}))])
def test_long_rings_are_simulated_as_their_ranks_came(
    monkeypatch: pytest.MonkeyPatch, slow: tuple[int, ...], late: dict[int, float]
) -> None:
    for module in (ring_blocks, ring_ends, ring_lags):
        monkeypatch.setattr(module, "LONG", 8)
    share = dict.fromkeys(slow, 0.3)
    fabric = Fabric(4, 4, sends=share, receives=share)
    plan = [Ask("all_reduce", world(fabric), size) for size in (400 * MB, 400 * MB)]
    found = rows(fabric, plan, slow=late, device="NVIDIA A100-SXM4-80GB")
    named = [row["near"] for row in found if row["kind"] != "network"]
    assert len(named) == bool(slow)
    assert all({*slow} <= {*near} for near in named)


def test_long_rings_end_as_the_paths_through_them_take() -> None:
    rng = np.random.default_rng(7)
    takes, starts = rng.uniform(0.1, 1.0, (2, 9)), rng.uniform(0.0, 30.0, 9)
    ends = ends_after("all_reduce", np.repeat(starts[:, None, None], 2, axis=1), takes, (3,))[0]
    (through,) = paths_after("all_reduce", takes, (3,))
    assert ends[:, :, 0] == pytest.approx((through + starts).max(axis=2))


def test_low_latency_protocols_hold_four_times_as_many_chunks_between_two_ranks() -> None:
    """Behind a slow edge its sender is done as much earlier as lies unread between the two."""
    count, slow, times = 24, 3, 8.0
    takes = np.ones((1, count))
    takes[0, slow] = times
    chunks = {}
    for protocol in (SIMPLE, LOW_LATENCY):
        left = paths_after("all_gather", takes, (1,), protocol=protocol)[0][0].max(axis=1)
        assert left.argmax() == slow + 1
        chunks[protocol] = (left[slow + 1] - left[slow]) / (protocol.slices * times)
    assert chunks[LOW_LATENCY] == pytest.approx(4 * chunks[SIMPLE], rel=0.1)


@pytest.mark.long
def test_one_way_the_order_of_ends_tells_the_edge() -> None:
    fabric = Fabric(4, 4, sends={5: 0.6})
    (found,) = rows(fabric, fsdp(fabric))
    assert (found["kind"], found["src"], found["dst"]) == ("edge", 5, 9)


@pytest.mark.parametrize("plan", [*slow(hsdp), *long(fsdp)])
def test_a_slow_nvlink_pair_is_no_nic(plan: Any) -> None:
    fabric = Fabric(2, 8, pairs={frozenset((1, 2)): 0.4})
    (found,) = rows(fabric, plan(fabric))
    assert (found["kind"], {found["src"], found["dst"]}) == ("edge", {1, 2})
    assert "NVLink" in found["location"]


@pytest.mark.parametrize("left", long(0.2, 0.02))
def test_a_slow_nvlink_holds_up_the_rings_between_hosts_that_cross_it(left: float) -> None:
    """GIVEN tensor-parallel pairs, and two data-parallel groups over two hosts, one of whose rings
    cross a slow NVLink THEN their excess is told by the other group, beside that of the pair, and
    which of the pair's two it is: though the rings get over it faster than over a sound NIC's."""
    slow = {frozenset((3, other)): left for other in range(8)}
    fabric = Fabric(2, 8, pairs=slow)
    pairs = tuple(Group(f"tp{rank}", (rank, rank + 1)) for rank in range(0, 16, 2))
    halves = tuple(Group(f"dp{first}", tuple(range(first, 16, 2))) for first in (0, 1))
    asks = [Ask("all_reduce", pairs, 20 * MB), Ask("all_reduce", halves, 40 * MB)]
    (found,) = rows(fabric, asks)
    assert "NVLink" in found["location"]
    assert found["near"] == [3]
    low, middle, high = found["rings_share"]
    # Edges of 300 / 4 GB/s, of which so much is left, where the NICs' 25 are the limit.
    assert low < 1 - left * 75 / 25 < high
    assert middle == pytest.approx(1 - left * 75 / 25, abs=0.1)


@pytest.mark.long
def test_a_rail_that_is_slow_everywhere() -> None:
    slow = dict.fromkeys((2, 6, 10, 14), 0.5)
    (found,) = rows(fabric := Fabric(4, 4, sends=slow, receives=slow), fsdp(fabric))
    assert (found["kind"], sorted(found["near"])) == ("rail", [2, 6, 10, 14])


@pytest.mark.slow
def test_the_data_sheet_cannot_be_taken_for_a_peer() -> None:
    """All NICs of both hosts alike: nothing in the recording compares them."""
    fabric = Fabric(2, 4, nic=5.0)
    assert rows(fabric, hsdp(fabric)) == []


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("loops", [1, 3])
@pytest.mark.parametrize("late", [0.0, 5e5, 4e6])
def test_ends_of_a_ring_as_its_slices_pass_one_by_one(op: str, loops: int, late: float) -> None:
    count, slow = 6, 2
    size = loops * count * 2.0 * SLICE_BYTES
    rates = [1.0] * count
    rates[slow] = 0.4
    takes = SLICE_BYTES / np.array([rates])
    delays = np.array([0.0, 0.0, 0.0, late, late, 0.0])  # of the edges of one host
    found = paths_after(op, takes, (loops,), delays=delays)[0][0]
    assert late or found.max(axis=1).argmax() == slow + 1
    for starts in ([0.0] * count, [3e6, 0.0, 0.0, 8e6, 0.0, 1e6]):
        ends = np.array(_ring(op, size, starts, rates, delays.tolist()))
        assert (found + np.array(starts)).max(axis=1) == pytest.approx(ends)


@pytest.mark.parametrize("protocol", [SIMPLE, LOW_LATENCY])
def test_what_one_loop_leaves_is_on_the_way_to_three(protocol: Protocol) -> None:
    rng = np.random.default_rng(5)
    takes, delays = rng.uniform(0.1, 1.0, (3, 7)), rng.uniform(0.0, 5.0, (3, 7))
    written = np.arange(7) % 3 > 0
    found = paths_after("all_reduce", takes, (1, 3, 9), written, delays, protocol)
    for loops, own in zip((1, 3, 9), found, strict=True):
        (alone,) = paths_after("all_reduce", takes, (loops,), written, delays, protocol)
        assert own.tolist() == alone.tolist()


@pytest.mark.long
def test_working_in_parts_and_keeping_nothing_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric(2, 2, sends={1: 0.5})
    plan = [Ask("all_reduce", world(fabric), size) for size in (20 * MB, 200 * MB)]
    whole = rows(fabric, plan)
    monkeypatch.setattr(ring_patterns, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(ring_reach, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(ring_reach, "_MOST_KEPT_BYTES", 0)
    assert whole
    assert rows(fabric, plan) == whole


def test_a_distant_host_is_told_from_a_slow_one() -> None:
    fabric = Fabric(4, 1, distant={2: 2e5})
    plan = [Ask("all_reduce", world(fabric), size) for size in (4 * MB, 8 * MB)]
    (found,) = rows(fabric, plan, jitter=0.1)
    assert (found["near"], found["src"]) == ([2], 2)
    assert "latency" in found["location"]
    assert found["added_ns"] > 2e5


def test_a_network_whose_every_message_takes_long_is_no_place_to_look_at() -> None:
    fabric = Fabric(4, 1, distant=dict.fromkeys(range(4), 4e4))
    plan = [Ask("all_reduce", world(fabric), size) for size in (4 * MB, 8 * MB)]
    found = rows(fabric, plan, jitter=0.1)
    assert [row["kind"] for row in found if row["kind"] != "network"] == []


@pytest.mark.parametrize("slow", [{1: 0.4}, {}])
def test_who_came_late_tells_the_nic_whatever_the_clocks(slow: dict[int, float]) -> None:
    """Calls of one size, so that no clock can be told from the ring's order."""
    fabric = Fabric(4, 1, sends=slow, receives=slow)
    plan = [Ask("all_reduce", world(fabric), 50 * MB)]
    offsets = {0: 4e5, 1: -9e5, 3: 3e5}
    found = rows(fabric, plan, offsets=offsets, jitter=0.4, seed=3)
    assert [row["near"] for row in found] == [[rank] for rank in slow]


@pytest.mark.slow
def test_all_links_under_every_data_sheet_may_be_slow() -> None:
    """A100 machines of the table give a GPU at most 6.2, 12.5 or 25 GB/s between hosts, none 9."""
    fabric = Fabric(2, 4, nic=9.0)
    (found,) = rows(fabric, hsdp(fabric), device="NVIDIA A100-SXM4-80GB")
    assert (found["kind"], found["link"]) == ("network", "between")
    assert 0.5 < found["healthy"] < LIKELY
    assert found["share"][2] == pytest.approx(
        1 - 9.0 / (0.9 * 25.0), abs=0.05
    )  # nine tenths of the rate


@pytest.mark.slow
def test_a_network_between_those_of_the_sheets_is_no_place_however_unlikely_it_is() -> None:
    """GIVEN 1.5 GB/s where the table's A100 machines give 0.6, 5.6 and more, as one NIC of 25 Gb/s
    beside two does: nothing but the device's name accuses it."""
    fabric = Fabric(2, 2, nic=1.5)
    (found,) = rows(fabric, hsdp(fabric), device="NVIDIA A100-SXM4-80GB")
    assert found["kind"] == "network"
    assert found["healthy"] < 0.5


@pytest.mark.slow
def test_a_slower_network_that_machines_do_have_is_no_slow_link() -> None:
    fabric = Fabric(2, 8, nic=11.5 / 8)
    found = rows(fabric, hsdp(fabric), device="NVIDIA A100-SXM4-80GB")
    assert [row["kind"] for row in found] == ["network"]
    assert found[0]["machines"]["a100-roce"] == pytest.approx(1.0, abs=0.2)


@pytest.mark.long
@pytest.mark.slow
def test_a_switch_slows_several_hosts() -> None:
    slow = dict.fromkeys(range(8), 0.4)
    fabric = Fabric(4, 4, sends=slow, receives=slow)
    (found,) = rows(fabric, ddp(fabric))
    kind, ranks, _, part = found["locations"][0]
    assert (kind, ranks) == ("switch", list(range(8)))
    assert part > 0.5


@pytest.mark.slow
def test_groups_that_agree_name_the_way_between_two_hosts() -> None:
    fabric = Fabric(4, 2, receives=dict.fromkeys((4, 5), 0.15))
    plan = [*hsdp(fabric), Ask("all_reduce", across(fabric), 80 * MB)]
    (found,) = rows(fabric, plan, jitter=0.05)
    assert (found["kind"], found["src"], found["dst"]) == ("edge", 2, 4)


@pytest.mark.slow
def test_clocks_that_hide_the_stagger_of_calls_of_one_size_name_no_other_link() -> None:
    fabric = Fabric(4, 2, receives=dict.fromkeys((4, 5), 0.15))
    assert rows(fabric, hsdp(fabric), offsets={1: 2e5, 2: -3e5, 3: 4e5}, jitter=0.1) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("ahead", [12e6, *long(-12e6)])
def test_a_clock_that_nobody_keeps_tells_no_direction_between_two_hosts(ahead: float) -> None:
    """GIVEN calls of one size of some 20 ms, and a clock off by more than NTP leaves THEN that
    shifts starts and ends as a slow way does whose receiver ends last, either way."""
    fabric = Fabric(2, 4, nic=50.0, sends=dict.fromkeys((4, 5, 6, 7), 0.15))
    plan = [Ask("all_reduce", world(fabric), 300 * MB)]
    (found,) = rows(fabric, plan, offsets={1: ahead}, device="NVIDIA H200")
    # By the device's name alone such calls are slow: the network as a whole may be, and no host.
    assert (found["kind"], found["dst"]) == ("network", None)
