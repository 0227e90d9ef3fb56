"""Calls that are alike, of which every rank's recording lost another one: no two become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group
from advisor.metrics.collectives.match import Matched, match, torn

MS = 1_000_000
RANKS = (0, 1, 2, 3)
GROUPS = {"0": Group("0", None, RANKS, 4)}


def recorded(lost: dict[int, set[int]], off_ms: dict[int, int]) -> dict[int, list[Call]]:
    """Per rank forty equal all-reduces of 4 ms, 10 ms apart, in four steps, less the ``lost``.

    ``event_id`` is the call's true number.
    """
    calls: dict[int, list[Call]] = {}
    for rank in RANKS:
        calls[rank] = []
        for number in sorted(set(range(40)) - lost.get(rank, set())):
            start = (10 * number + off_ms.get(rank, 0)) * MS + 100_000 * rank
            call = Call(rank, "all_reduce", start, start + 4 * MS, number)
            call.group, call.group_size, call.bytes, call.step = "0", 4, 1_000_000, number // 10
            calls[rank].append(call)
    return calls


def wrong(found: Matched) -> int:
    """Columns that hold different calls."""
    return sum(len({call.event_id for call in column.values()}) > 1 for column in found.columns)


@given(st.lists(st.integers(10, 19), min_size=4, max_size=4))
def test_no_rank_s_lost_call_shifts_another_s(lost: list[int]) -> None:
    calls = recorded({rank: {number} for rank, number in enumerate(lost)}, {})
    offsets = dict.fromkeys(RANKS, 0)
    found = match(calls, GROUPS, stepped=True)
    assert bool(wrong(found)) == torn(found.columns, offsets)
    if wrong(found):
        found = match(calls, GROUPS, stepped=True, offsets=offsets, strict=True)
    assert wrong(found) == 0
    kept = {number for number in range(40) if lost.count(number) < len(RANKS)}
    assert {next(iter(c.values())).event_id for c in found.columns} == kept


def test_each_rank_another_call_is_matched_wrongly_without_a_look_at_the_times() -> None:
    found = match(recorded({0: {12}, 1: {15}, 2: {18}}, {}), GROUPS, stepped=True)
    assert wrong(found)


def test_calls_lost_in_every_step_are_matched_by_their_times_as_well() -> None:
    calls = recorded({0: {1, 11, 21, 31}, 1: {0, 10, 20, 30}}, {})
    offsets = dict.fromkeys(RANKS, 0)
    assert torn(match(calls, GROUPS, stepped=True).columns, offsets)
    assert wrong(match(calls, GROUPS, stepped=True, offsets=offsets, strict=True)) == 0


def test_clocks_that_are_not_known_tear_nothing() -> None:
    found = match(recorded({}, {1: 200}), GROUPS, stepped=True)
    assert wrong(found) == 0
    assert not torn(found.columns, dict.fromkeys(RANKS, 0))
    assert not torn(found.columns, {**dict.fromkeys(RANKS, 0), 1: -200 * MS})


@pytest.mark.parametrize(("told", "disagree"), [(None, False), (2_000_000, True)])
def test_a_size_that_one_rank_does_not_say_is_no_other_size(
    told: int | None, disagree: bool
) -> None:
    calls = recorded({}, {})
    for own in calls.values():
        for call in own:
            call.seq = call.event_id
    calls[1][7].bytes = told
    reasons = {reason for _, _, reason in match(calls, GROUPS, stepped=True).unmatched}
    assert ("mismatched signature" in reasons) == disagree


@pytest.mark.parametrize(("told", "disagree"), [("floaz", False), ("int32", True)])
def test_a_type_that_is_none_is_no_other_type(told: str, disagree: bool) -> None:
    calls = recorded({}, {})
    for own in calls.values():
        for call in own:
            call.seq, call.dtype = call.event_id, "float32"
    calls[1][7].dtype = told
    reasons = {reason for _, _, reason in match(calls, GROUPS, stepped=True).unmatched}
    assert ("mismatched signature" in reasons) == disagree


def gathered(lost: dict[int, set[int]]) -> dict[int, list[Call]]:
    """The same as gathers to which each rank gives a part of its own size."""
    calls = recorded(lost, {})
    for rank, own in calls.items():
        for call in own:
            call.op, call.bytes = "all_gather", 1_000_000 + 8 * (rank // 2)
    return calls


def test_parts_of_other_sizes_are_one_call_s_and_disagree_about_nothing() -> None:
    found = match(gathered({}), GROUPS, stepped=True)
    assert wrong(found) == 0
    assert {len(column) for column in found.columns} == {4}
    assert not found.unmatched


def test_calls_of_other_sizes_stay_alone_where_one_more_is_lost_or_a_sum_disagrees() -> None:
    found = match(gathered({0: {12}}), GROUPS, stepped=True)
    assert {len(column) for column in found.columns} == {2, 1}
    calls = gathered({})
    for call in (call for own in calls.values() for call in own):
        call.op = "all_reduce"
    assert {len(c) for c in match(calls, GROUPS, stepped=True).columns} == {2}
