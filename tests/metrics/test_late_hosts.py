"""A host whose ranks are all late is one culprit, of which no rank alone stands out."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group
from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.lateness.hosts import by_host, places, with_hosts

MS = 1_000_000
CALLS = 24
HOSTS = dict.fromkeys(range(4), "a") | dict.fromkeys(range(4, 8), "b")


def arrivals(late_ms: dict[int, float], ranks: tuple[int, ...] = tuple(HOSTS)) -> Arrivals:
    """Stretches of one call each; a rank's excess is its lateness and some noise."""
    own = np.random.default_rng(7).normal(0.0, 0.2 * MS, (CALLS, len(ranks)))
    for rank, ms in late_ms.items():
        own[:, ranks.index(rank)] += ms * MS
    excess = own.astype(np.int64)
    columns = tuple(
        {r: Call(r, "all_reduce", 0, MS, 0, last_rank=ranks[int(row.argmax())]) for r in ranks}
        for row in excess
    )
    return Arrivals(None, ranks, columns, excess, excess, excess, excess, np.arange(CALLS))


def test_a_late_host_is_last_where_each_of_its_ranks_is_now_and_then() -> None:
    whole = arrivals(dict.fromkeys(range(4, 8), 5.0))
    lasts = [sum(c[0].last_rank == rank for c in whole.columns) for rank in range(4, 8)]
    assert max(lasts) < CALLS / 2
    ((found, stands_for),) = by_host([whole], HOSTS)
    stands = found.ranks[1]
    assert stands_for[stands] == (4, 5, 6, 7)
    assert len(found.ranks) == 2
    assert HOSTS[stands] == "b"
    assert {column[stands].last_rank for column in found.columns} == {stands}
    # At least what the least late of its ranks is.
    assert (found.excess[:, 1] > 4 * MS).all()
    assert (found.excess[:, 1] <= whole.excess[:, 4:].min(axis=1)).all()


def test_a_late_host_of_which_most_ranks_were_read_is_late_beyond_the_other() -> None:
    """GIVEN two hosts, one of which lacks a rank, so that most ranks are of the late one and their
    median is late THEN that host is late all the same, and of a healthy pair none is."""
    read = tuple(rank for rank in HOSTS if rank != 3)
    whole = arrivals(dict.fromkeys(range(4, 8), 5.0), read)
    usual = np.sort(whole.excess, axis=1)[:, 3:4]
    beyond = whole._replace(excess=whole.excess - usual, lateness=whole.lateness - usual)
    ((found, stands_for),) = by_host([beyond], HOSTS)
    assert stands_for[found.ranks[1]] == (4, 5, 6, 7)
    assert (found.excess[:, 1] > 4 * MS).all()
    assert (found.excess[:, 0] <= 0).all()
    assert by_host([arrivals({}, read)], HOSTS) == by_host([arrivals({5: 5.0}, read)], HOSTS) == []


def test_one_late_rank_makes_no_late_host() -> None:
    assert by_host([arrivals({5: 5.0})], HOSTS) == []


def test_hosts_of_one_rank_and_ranks_of_one_host_are_no_units() -> None:
    late = arrivals(dict.fromkeys(range(4, 8), 5.0))
    assert by_host([late], {rank: str(rank) for rank in HOSTS}) == []
    assert by_host([late], dict.fromkeys(HOSTS, "a")) == []
    assert by_host([late], {0: "a"}) == []


def row(rank: int, cost_ms: int, reason: str = "slow-compute", **evidence: float) -> dict[str, Any]:
    return {
        "rank": rank,
        "systematic": cost_ms > 0,
        "reason": reason,
        "reason_evidence": {"others_per_peer": 1.0, **evidence},
        **dict.fromkeys(("cost_ns_per_step", "cost_low_ns", "cost_high_ns"), cost_ms * MS),
        "wait_ns_per_step": cost_ms * MS,
        "wait_by_step": f'{{"{rank}": {cost_ms}}}',
    }


def test_a_host_whose_ranks_are_late_in_groups_side_by_side_is_one_culprit() -> None:
    """GIVEN groups of one rank of each of two hosts, one of which is late THEN the host's cost is
    what those wait that meet it, not a part for each of its ranks."""
    of_all = [row(rank, int(rank >= 4)) for rank in HOSTS]
    of_hosts = [(row(rank, 7 * (rank >= 4)), [rank]) for rank in HOSTS]
    found = {one["rank"]: one for one in with_hosts(of_all, of_hosts, HOSTS)}
    (late,) = [one for one in found.values() if one["systematic"]]
    assert late["cost_ns_per_step"] == 7 * MS
    assert late["reason_evidence"]["with"] == [4, 5, 6, 7]
    of_hosts[5] = (row(5, 0), [5])
    assert with_hosts(of_all, of_hosts, HOSTS) == of_all


def test_a_group_in_which_nobody_waits_clears_no_host() -> None:
    """GIVEN a host that is late where it replicates, and a sum over all ranks after that THEN each
    rank counts where most is waited for it."""
    of_all = [row(rank, int(rank >= 4)) for rank in HOSTS]
    of_hosts = [(row(rank, 7 * (rank >= 4)), [rank]) for rank in HOSTS]
    of_hosts += [(row(0, 0), [0, 1, 2, 3]), (row(4, 0), [4, 5, 6, 7])]
    (late,) = [one for one in with_hosts(of_all, of_hosts, HOSTS) if one["systematic"]]
    assert late["cost_ns_per_step"] == 7 * MS


def test_a_host_that_one_of_its_ranks_holds_up_is_not_late_by_itself() -> None:
    """GIVEN a host whose ranks wait for one of them THEN that rank is the culprit."""
    of_all = [row(rank, 10 * (rank == 5)) for rank in HOSTS]
    of_hosts = [(row(0, 0), [0, 1, 2, 3]), (row(4, 8, "slow-transfer-before"), [4, 5, 6, 7])]
    assert with_hosts(of_all, of_hosts, HOSTS) == of_all


def test_one_late_rank_of_a_host_of_two_makes_no_late_host() -> None:
    """GIVEN groups side by side, and a late rank whose neighbour waits for it now and then THEN the
    rank is the culprit."""
    pairs = dict.fromkeys((0, 1), "a") | dict.fromkeys((2, 3), "b")
    of_all = [row(rank, 18 * (rank == 2)) for rank in pairs]
    of_hosts = [(row(rank, cost), [rank]) for rank, cost in enumerate((0, 0, 26, 4))]
    assert with_hosts(of_all, of_hosts, pairs) == of_all


def test_a_rank_that_is_late_by_what_it_waited_makes_no_late_host() -> None:
    """GIVEN a late rank, and its neighbour that waits for it and reaches its own group late THEN
    the rank is the culprit; as long as it waited the neighbour may be late by itself."""
    pairs = dict.fromkeys((0, 1), "a") | dict.fromkeys((2, 3), "b")
    of_all = [row(rank, 18 * (rank == 2)) for rank in pairs]
    for waited_ms, named in ((192, None), (62, [2, 3])):
        evidence = {"inherited_ns": waited_ms * MS, "compute_excess_ns": 62 * MS}
        of_hosts = [(row(0, 0), [0]), (row(1, 0), [1]), (row(2, 26), [2])]
        of_hosts.append((row(3, 12, "slow-compute", **evidence), [3]))
        (late,) = [one for one in with_hosts(of_all, of_hosts, pairs) if one["systematic"]]
        assert late["reason_evidence"].get("with") == named


def test_ranks_that_two_of_their_host_hold_up_make_no_late_host() -> None:
    """GIVEN a mesh (HSDP), and a host on which one rank loads and one computes longer, so that its
    others wait in their shard group and come late to their replicas THEN the two are named."""
    of_all = [row(rank, {4: 11, 6: 9}.get(rank, 0)) for rank in HOSTS]
    of_hosts = [(row(rank, 0), [rank]) for rank in range(4)]
    of_hosts += [(row(rank, 12 + rank), [rank]) for rank in (4, 6, 7)]
    of_hosts.append((row(5, 12, "slow-transfer-before"), [5]))
    assert with_hosts(of_all, of_hosts, HOSTS) == of_all


def test_the_latest_rank_of_a_late_host_is_no_culprit_of_its_own() -> None:
    """GIVEN a host that is late, and one of its ranks by a little more THEN the host is named; the
    rank is where it costs more beyond its host's others than all of them do."""
    of_hosts = [(row(0, 0), [0, 1, 2, 3]), (row(4, 7), [4, 5, 6, 7])]
    for alone_ms, ranks in ((9, [4, 5, 6, 7]), (20, None)):
        of_all = [row(rank, alone_ms * (rank == 5)) for rank in HOSTS]
        (late,) = [one for one in with_hosts(of_all, of_hosts, HOSTS) if one["systematic"]]
        assert late["reason_evidence"].get("with") == ranks
        assert late["cost_ns_per_step"] == (7 if ranks else alone_ms) * MS


def test_the_last_of_equally_slow_hosts_stands_for_all_ranks_of_its_machine() -> None:
    """GIVEN a machine whose four hosts take 27 ms a step, elsewhere 12, and one rank seen late
    THEN its machine is the place; WHEN a mate is as fast as elsewhere THEN the rank is."""
    pace = {rank: 12.0 if rank < 4 else 27.0 + (rank == 6) for rank in HOSTS}

    def found(paces: dict[int, float]) -> Any:
        of_all = [
            row(r, int(r == 6), "late-launch", host_ns_per_step=ns * MS) for r, ns in paces.items()
        ]
        return with_hosts(of_all, [], HOSTS)[6]["reason_evidence"].get("with")

    assert found(pace) == [4, 5, 6, 7]
    assert found({**pace, 5: 12.5}) is None
    assert found({rank: ns for rank, ns in pace.items() if rank != 7}) is None


def test_ranks_of_a_slow_host_that_are_late_in_turn_are_their_host() -> None:
    """GIVEN a host that launches slowly, two of whose ranks are late THEN it is one culprit, with
    all that is waited for both; where a mate launches as fast as elsewhere the two stay two."""
    of_all = [
        row(rank, 2 * (rank in (5, 6)), "late-launch", host_ns_per_step=(3 + 6 * (rank >= 4)) * MS)
        for rank in HOSTS
    ]
    (late,) = [one for one in with_hosts(of_all, [], HOSTS) if one["systematic"]]
    assert late["reason_evidence"]["with"] == [4, 5, 6, 7]
    assert late["cost_ns_per_step"] == late["cost_high_ns"] == 4 * MS
    assert late["wait_by_step"] == '{"5": 2, "6": 2}'
    of_all[7]["reason_evidence"]["host_ns_per_step"] = 3 * MS
    assert with_hosts(of_all, [], HOSTS) == of_all


def test_ranks_at_one_place_of_groups_side_by_side_are_late_together() -> None:
    """GIVEN two context-parallel groups whose last ranks are late THEN both are one culprit, where
    they compute longer; where only one of them is late that one is."""
    groups = [
        Group("1", "mesh_cp", (0, 1, 2, 3), 4),
        Group("2", "mesh_cp", (4, 5, 6, 7), 4),
        Group("0", "default_pg", tuple(HOSTS), 8),
    ]
    ((kind, at),) = places(groups).items()
    assert kind == "context-parallel"
    assert [rank for rank, place in at.items() if place == at[7]] == [3, 7]
    assert places(groups[1:]) == places([*groups[:1], Group("3", "mesh_cp", (3, 4), 2)]) == {}
    ((_, stands_for),) = by_host([arrivals({3: 5.0, 7: 5.0})], at)
    assert (3, 7) in stands_for.values()
    assert by_host([arrivals({7: 5.0})], at) == []
    of_all = [row(rank, 5 * (rank == 7)) for rank in HOSTS]
    for reason, ranks in (("longer-compute", [3, 7]), ("late-launch", None)):
        of_places = [(row(rank, 9 * (rank == 3), reason), [rank, rank + 4]) for rank in range(4)]
        (late,) = [x for x in with_hosts(of_all, of_places, at, kind) if x["systematic"]]
        assert late["reason_evidence"].get("with") == ranks
        assert late["reason_evidence"].get("place_of") == (kind if ranks else None)


def test_a_host_on_which_each_launch_takes_longer_is_late_whichever_of_its_ranks_is() -> None:
    """GIVEN a host whose ranks launch late in turn, none of them systematically THEN the host is,
    where launches take longer on all of its ranks than on any elsewhere, and one of them is slower
    by no more than that tells or each takes longer for a step than any elsewhere."""
    slow = {rank: 5e3 + 20 * rank for rank in range(4)} | dict.fromkeys(range(4, 8), 8e3)
    for launches, seen, mate_ms, named in (
        (slow, {"launch_ns": 8000}, 5.0, [4, 5, 6, 7]),
        (slow, {}, 7.0, [4, 5, 6, 7]),
        (slow, {}, 5.0, None),
        (slow | {3: 7e3}, {"launch_ns": 8000}, 7.0, None),
        (slow | {6: 5e3}, {"launch_ns": 8000}, 7.0, None),
    ):
        pace = dict.fromkeys(range(4), 5.0) | {4: mate_ms} | dict.fromkeys(range(5, 8), 9.0)
        of_all = [
            row(rank, int(rank > 4), "late-launch", host_ns_per_step=pace[rank] * MS)
            | {"systematic": False}
            for rank in HOSTS
        ]
        of_all[5]["reason_evidence"] |= seen
        late = [one for one in with_hosts(of_all, [], HOSTS, None, launches) if one["systematic"]]
        assert [one["reason_evidence"]["with"] for one in late] == ([named] if named else [])
        for one in late:
            assert one["cost_ns_per_step"] == 3 * MS
            assert one["reason_evidence"]["usual_launch_ns"] == 5030
