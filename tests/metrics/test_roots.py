"""Who waits at a call with a root, by who leaves before the last has come."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.match import match
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


@pytest.mark.parametrize(("size", "expected"), [(2, "matched"), (4, "matched"), (5, "upper bound")])
def test_a_call_lacks_ranks_only_where_fewer_came_than_it_joins(size: int, expected: str) -> None:
    """Where no file tells groups apart, calls of two groups of two stand in one column."""
    column = {rank: Call(rank, "all_gather", 0, 9, 0, group_size=size) for rank in range(4)}
    split_waiting([column], {}, {})
    assert {call.t_is for call in column.values()} == {expected}


def test_a_scatter_whose_size_its_root_alone_recorded_shifts_nothing() -> None:
    # gloo: torch.distributed.nn's all_gather goes back by one scatter for each rank as the root.
    calls = {
        rank: [
            Call(rank, "scatter", at, at + 1, event_id=at, group="0", group_size=2,
                 dtype="float" if root == rank else None, bytes=8192 if root == rank else None)
            for at, root in ((0, 0), (10, 1), (20, 0), (30, 1))
        ]
        for rank in (0, 1)
    }  # fmt: skip
    found = match(calls, {}, stepped=False)
    assert not found.unmatched
    assert [{c.start for c in column.values()} for column in found.columns] == [
        {at} for at in (0, 10, 20, 30)
    ]
