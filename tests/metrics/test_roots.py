"""Who waits at a call with a root, by who leaves before the last has come."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.lateness.waiting import split_waiting

MS = 1_000_000


def waits(op: str, *spans: tuple[int, int]) -> list[int | None]:
    """Waiting of each rank in one call, ms, of its start and end."""
    column = {
        rank: Call(rank, op, start * MS, end * MS, 0, group_size=len(spans))
        for rank, (start, end) in enumerate(spans)
    }
    split_waiting([column], {}, {})
    return [None if call.wait is None else call.wait // MS for call in column.values()]


@pytest.mark.parametrize("op", ["broadcast", "scatter"])
def test_receivers_wait_for_a_late_root(op: str) -> None:
    assert waits(op, (20, 22), (0, 22), (5, 23)) == [0, 20, 15]


@pytest.mark.parametrize("op", ["broadcast", "scatter"])
def test_a_root_waits_for_nobody(op: str) -> None:
    assert waits(op, (0, 2), (20, 22)) == [0, 0]


@pytest.mark.parametrize("op", ["reduce", "gather"])
def test_a_root_waits_for_the_last_and_who_sent_goes_on(op: str) -> None:
    assert waits(op, (0, 22), (5, 6), (20, 22)) == [20, 0, 0]


def test_all_wait_where_all_hand_in_something() -> None:
    assert waits("all_reduce", (0, 22), (20, 22)) == [20, 0]
