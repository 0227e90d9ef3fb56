"""Who waits for a lost packet of a ring: the sets that were recorded, and none for two hosts."""

from __future__ import annotations

import pytest

from advisor.metrics.rings.retransmits import Stall, senders
from advisor.metrics.rings.schedule import GLOO_RINGS, waiting


@pytest.mark.parametrize("op", sorted(GLOO_RINGS))
@pytest.mark.parametrize("count", range(2, 9))
def test_no_two_ranks_packets_leave_the_same_ranks_waiting(op: str, count: int) -> None:
    home = {rank: f"h{rank}" for rank in range(count)}
    sets = {
        frozenset((one + turn) % count for one in waits)
        for _, waits in waiting(op, count)
        for turn in range(count)
        if len(waits) < count
    }
    assert len(sets) == count * (count - 1)
    for late in sets:
        assert len(senders([Stall(op, tuple(home), late)], home)) == 1


@pytest.mark.parametrize(
    ("op", "ranks", "per_host", "late", "host"),
    [  # as recorded in the lab, with the host whose packets were dropped
        ("all_reduce", 4, 1, {1, 2}, 1),
        ("all_reduce", 4, 1, {2, 3}, 2),
        ("all_reduce", 8, 2, {5, 6}, 2),
        ("all_reduce", 8, 2, {2, 3, 4}, 2),
        ("all_reduce", 6, 2, {3}, 2),
        ("all_reduce", 6, 2, {0, 1, 4, 5}, 2),
        ("all_reduce", 4, 1, {0, 3}, 3),
        ("all_reduce", 3, 1, {0, 2}, 2),
        ("all_gather", 4, 1, {0, 3}, 0),
        ("all_gather", 4, 1, {2, 3}, 3),
        ("all_gather", 6, 2, {0, 5}, 0),
    ],
)
def test_recorded_stalls_name_the_host_that_lost(
    op: str, ranks: int, per_host: int, late: set[int], host: int
) -> None:
    home = {rank: rank // per_host for rank in range(ranks)}
    assert senders([Stall(op, tuple(home), frozenset(late))], home) == {host}


def test_one_odd_call_does_not_outweigh_two_that_agree() -> None:
    home = {rank: rank for rank in range(4)}
    of_one, of_two = frozenset({1, 2}), frozenset({2, 3})
    stalls = [Stall("all_reduce", tuple(home), late) for late in (of_one, of_two, of_two)]
    assert senders(stalls, home) == {2}
    assert senders(stalls[:2], home) == {1, 2}


def test_calls_that_all_wait_in_tell_nothing() -> None:
    home = {rank: rank for rank in range(4)}
    everybody = Stall("all_reduce", tuple(home), frozenset(home))
    assert senders([everybody] * 5, home) == set(home)
