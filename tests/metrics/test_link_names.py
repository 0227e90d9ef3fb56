"""How slow places are called, and which of several likely ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.links.cost import Culprit
from advisor.metrics.links.locations import Location
from advisor.metrics.links.named import Name, culprit_of
from advisor.metrics.rings.locations import homes_of, is_nameless


def test_hosts_without_a_name_are_named_by_their_ranks() -> None:
    """GIVEN ranks whose hosts were not recorded THEN no host is called by its rank's name."""
    unnamed = {4: "rank 4", 5: "rank 5", 6: "rank 6"}
    assert Name(unnamed, {}).hosts([4, 5]) == "ranks 4, 5"
    home = {**unnamed, 0: "a", 1: "b"}
    assert Name(home, {}).hosts([0, 1]) == "hosts a, b"
    assert Name(home, {}).hosts([0, 1, 4, 5, 6]) == "hosts a, b and of ranks 4-6"


def test_ranks_beside_hosts_that_hold_blocks_are_of_one_host() -> None:
    """GIVEN a host with a block of ranks, and ranks whose host nobody names THEN each block of
    these is one host; where blocks do not divide the ranks, or no host is named, none is."""
    home = homes_of(range(12), dict.fromkeys(range(4), "a"))
    assert [home[rank] for rank in (3, 4, 7, 8)] == ["a", "ranks 4-7", "ranks 4-7", "ranks 8-11"]
    assert not is_nameless(home[3])
    assert is_nameless(home[4])
    assert len({*homes_of(range(11), dict.fromkeys(range(4), "a")).values()}) == 8
    assert len({*homes_of(range(4), {}).values()}) == 4


def test_messages_go_one_way() -> None:
    """GIVEN host b that sends slowly THEN what it receives is no call over the slow place, in which
    neither its bandwidth nor its excess may be taken."""
    home = {rank: "ab"[rank // 2] for rank in range(4)}
    culprit = _culprit(home, Location("host", inside=False, ranks=(2, 3), direction="send"))
    assert culprit.used_by((2, 0), message=True)
    assert not culprit.used_by((0, 2), message=True)
    assert culprit.used_by((0, 2))  # a ring of both goes both ways


def test_the_nic_that_is_slow_with_or_without_its_neighbour_is_named() -> None:
    """GIVEN rank 2's NIC or the switch of ranks 2 and 3 THEN rank 3 is not accused beside it."""
    home = {rank: f"node{rank}" for rank in range(4)}
    of_two = Location("switch", inside=False, ranks=(2, 3))
    assert named(home, Location("rank", inside=False, ranks=(2,)), of_two) == ("rank", 2, None)
    ends = [Location("rank", inside=False, ranks=(rank,)) for rank in (2, 3)]
    assert named(home, *ends) == ("edge", 2, 3)


def test_the_host_that_is_slow_with_or_without_its_neighbour_is_named() -> None:
    """GIVEN host b's network or the switch of hosts a and b THEN host a is not accused."""
    home = {rank: "abcd"[rank // 2] for rank in range(8)}
    of_two = Location("switch", inside=False, ranks=(0, 1, 2, 3))
    own = Location("host", inside=False, ranks=(2, 3))
    assert named(home, of_two, own) == ("host", 2, None)
    distant = Location("host", inside=False, ranks=(2, 3), latency=True)
    assert named(home, of_two, distant)[0] == "candidates"


def test_one_of_several_links_of_a_host_leaves_open_which() -> None:
    """GIVEN the NVLink of rank 0 or that of 2 THEN both stay open; of one rank none does."""
    home = dict.fromkeys(range(4), "a")
    of = [Location("nvlink", inside=True, ranks=(rank,)) for rank in (0, 2)]
    assert _culprit(home, *of).candidates == (0, 2)
    assert _culprit(home, of[1]).candidates == ()


def named(home: dict[int, str], *locations: Location) -> tuple[str, int, int | None]:
    culprit = _culprit(home, *locations)
    return culprit.kind, culprit.src, culprit.dst


def _culprit(home: dict[int, str], *locations: Location) -> Culprit:
    infos = {rank: RankInfo(rank, host, 0, len(home), True, {}) for rank, host in home.items()}
    found: Any = SimpleNamespace(
        locations=locations, parts=(0.6, 0.4), rings=None, in_rings_between=False
    )
    data: Any = SimpleNamespace(infos=infos)
    return culprit_of(found, data, home)


def test_all_hosts_whose_names_fill_a_line_are_all_hosts() -> None:
    home = {rank: f"cluster-gpu-61-{rank:02}" for rank in range(4)}
    name = Name(home, {})
    assert name.hosts(range(4)) == "all 4 hosts"
    assert "cluster-gpu-61-00" in name.hosts(range(3))
    assert Name({0: "a" * 50}, {}).hosts([0]) == f"host {'a' * 50}"
