"""Calls in the same order on all ranks pair as the longest common sequence has them."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.collectives import aligned_calls as module
from advisor.metrics.collectives.aligned_calls import aligned_calls
from advisor.metrics.collectives.call import Call

MS = 1_000_000
spans = st.tuples(st.sampled_from(["all_reduce", "send"]), st.integers(0, 12), st.integers(0, 4))


def calls_of(rank: int, drawn: list[tuple[str, int, int]]) -> list[Call]:
    return [
        Call(rank, op, at * MS, (at + length) * MS, number)
        for number, (op, at, length) in enumerate(drawn)
    ]


def numbers(columns: list[dict[int, Call]]) -> list[list[tuple[int, int]]]:
    return [[(rank, call.event_id) for rank, call in column.items()] for column in columns]


@given(st.lists(spans, max_size=5), st.lists(st.integers(-3, 3), max_size=4), st.booleans())
def test_the_short_way_finds_what_the_table_finds(
    drawn: list[tuple[str, int, int]], moved_ms: list[int], strict: bool
) -> None:
    """GIVEN ranks whose equal calls are moved against each other, and one without calls."""
    part = {0: calls_of(0, drawn), 9: list[Call]()}
    for rank, by in enumerate(moved_ms, 1):
        part[rank] = calls_of(
            rank, [(op, at + by * (n % 2), t) for n, (op, at, t) in enumerate(drawn)]
        )
    offsets = {0: 0, 1: MS // 2}
    for known in ({}, offsets):
        short = numbers(aligned_calls(part, known, strict=strict))
        with mock.patch.object(module, "_agree", return_value=False):
            assert numbers(aligned_calls(part, known, strict=strict)) == short


def test_equal_calls_that_are_apart_are_two_only_where_the_clocks_are_known() -> None:
    part = {0: calls_of(0, [("all_reduce", 0, 1)]), 1: calls_of(1, [("all_reduce", 5, 1)])}
    assert numbers(aligned_calls(part, {}, strict=True)) == [[(0, 0), (1, 0)]]
    assert len(aligned_calls(part, {0: 0, 1: 0}, strict=True)) == 2
    assert len(aligned_calls(part, {0: 0, 1: -5 * MS}, strict=True)) == 1
