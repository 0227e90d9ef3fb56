"""A host whose ranks are all late is one culprit, of which no rank alone stands out."""

from __future__ import annotations

import json

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.lateness.hosts import by_host
from advisor.metrics.lateness.rows import side_by_side

MS = 1_000_000
CALLS = 24
HOSTS = dict.fromkeys(range(4), "a") | dict.fromkeys(range(4, 8), "b")


def arrivals(late_ms: dict[int, float]) -> Arrivals:
    """Stretches of one call each; a rank's excess is its lateness and some noise."""
    own = np.random.default_rng(7).normal(0.0, 0.2 * MS, (CALLS, len(HOSTS)))
    for rank, ms in late_ms.items():
        own[:, rank] += ms * MS
    excess = own.astype(np.int64)
    columns = tuple(
        {rank: Call(rank, "all_reduce", 0, MS, 0, last_rank=int(row.argmax())) for rank in HOSTS}
        for row in excess
    )
    return Arrivals(None, tuple(HOSTS), columns, excess, excess, excess, excess, np.arange(CALLS))


def test_a_late_host_is_last_where_each_of_its_ranks_is_now_and_then() -> None:
    whole = arrivals(dict.fromkeys(range(4, 8), 5.0))
    lasts = [sum(c[0].last_rank == rank for c in whole.columns) for rank in range(4, 8)]
    assert max(lasts) < CALLS / 2
    (found,) = by_host([whole], HOSTS)
    stands = found.ranks[1]
    assert len(found.ranks) == 2
    assert HOSTS[stands] == "b"
    assert {column[stands].last_rank for column in found.columns} == {stands}
    # At least what the least late of its ranks is.
    assert (found.excess[:, 1] > 4 * MS).all()
    assert (found.excess[:, 1] <= whole.excess[:, 4:].min(axis=1)).all()


def test_one_late_rank_makes_no_late_host() -> None:
    assert by_host([arrivals({5: 5.0})], HOSTS) == []


def test_hosts_of_one_rank_and_ranks_of_one_host_are_no_units() -> None:
    late = arrivals(dict.fromkeys(range(4, 8), 5.0))
    assert by_host([late], {rank: str(rank) for rank in HOSTS}) == []
    assert by_host([late], dict.fromkeys(HOSTS, "a")) == []
    assert by_host([late], {0: "a"}) == []


def test_a_host_whose_ranks_are_late_in_groups_side_by_side_is_one_culprit() -> None:
    """GIVEN groups of one rank of each of two hosts, one of which is late THEN the host's cost is
    the mean over those that wait, not a part for each of its ranks."""
    rows = {
        rank: {
            "rank": rank,
            "systematic": rank >= 4,
            "reason_evidence": json.dumps({"others_per_peer": 7.0}),
            **dict.fromkeys(("cost_ns_per_step", "cost_low_ns", "cost_high_ns"), MS * (rank >= 4)),
        }
        for rank in HOSTS
    }
    (found,) = side_by_side(rows, HOSTS)
    # Each of the four on the other host waits 7 ms for its own one: 1 ms of each of seven others.
    assert found["cost_ns_per_step"] == found["cost_high_ns"] == 7 * MS
    assert json.loads(found["reason_evidence"])["others_per_peer"] == 1.0
    rows[5]["systematic"] = False
    assert list(side_by_side(rows, HOSTS)) == []
