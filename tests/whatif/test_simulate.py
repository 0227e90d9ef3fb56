"""The replay against schedules worked out by hand, and against properties any schedule has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.whatif.program import Call, Issue, Program, Wait, Work, compact
from advisor.whatif.simulate import simulate


def test_two_ranks_wait_for_the_later_one() -> None:
    # GIVEN rank 1 works 30 before a call of 10, rank 0 works 5
    program = Program(
        items={0: [Work(5), Issue(1), Wait(1), Work(2)], 1: [Work(30), Issue(1), Wait(1), Work(2)]},
        calls={1: Call((0, 1), "g", 10)},
        start_ns={0: 0, 1: 0},
    )
    # WHEN replayed THEN both leave the call at 40, rank 0 having waited 35
    replay = simulate(program)
    assert replay.end_ns == {0: 42, 1: 42}
    assert replay.waited_ns == {0: 35, 1: 10}


def test_two_slots_share_the_network_equally() -> None:
    # Two calls of 10 issued at 0 by everyone: alone each takes 10, together both end at 20.
    items = [Issue(1), Issue(2), Wait(1), Wait(2)]
    program = Program(
        items={0: list(items), 1: list(items)},
        calls={1: Call((0, 1), "g", 10), 2: Call((0, 1), "g", 10)},
        start_ns={0: 0, 1: 0},
        slots=2,
        shared=True,
    )
    assert simulate(program).call_end_ns == {1: 20, 2: 20}


def test_one_slot_is_a_queue() -> None:
    items = [Issue(1), Issue(2), Wait(2)]
    program = Program(
        items={0: list(items), 1: list(items)},
        calls={1: Call((0, 1), "g", 10), 2: Call((0, 1), "g", 7)},
        start_ns={0: 0, 1: 0},
    )
    assert simulate(program).call_end_ns == {1: 10, 2: 17}


def test_disjoint_groups_do_not_share() -> None:
    program = Program(
        items={r: [Issue(r // 2), Wait(r // 2)] for r in range(4)},
        calls={0: Call((0, 1), "a", 10), 1: Call((2, 3), "b", 10)},
        start_ns=dict.fromkeys(range(4), 0),
        shared=True,
    )
    assert simulate(program).step_ns == 10


def test_partly_overlapping_calls_share_only_while_both_run() -> None:
    # Call 1 (10) from 0, call 2 (10) from 5: 1 has 5 left, shared until 15; 2 has 5 left: 20.
    items = [Issue(1), Work(5), Issue(2), Wait(1), Wait(2)]
    program = Program(
        items={0: list(items), 1: list(items)},
        calls={1: Call((0, 1), "g", 10), 2: Call((0, 1), "g", 10)},
        start_ns={0: 0, 1: 0},
        slots=2,
        shared=True,
    )
    assert simulate(program).call_end_ns == pytest.approx({1: 15, 2: 20})


def test_a_call_that_one_rank_never_issues_is_an_error() -> None:
    program = Program(
        items={0: [Issue(1), Wait(1)], 1: [Work(1)]},
        calls={1: Call((0, 1), "g", 10)},
        start_ns={0: 0, 1: 0},
    )
    with pytest.raises(AdvisorError, match=r"ranks \[0\]"):
        simulate(program)


@given(
    work=st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=4),
    service=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    slots=st.integers(1, 3),
    shared=st.booleans(),
)
def test_a_step_is_never_shorter_than_its_longest_chain(
    work: list[list[int]], service: list[int], slots: int, shared: bool
) -> None:
    ranks = tuple(range(len(work)))
    program = Program(
        items={
            r: compact(x for i in range(3) for x in (Work(work[r][i]), Issue(i), Wait(i)))
            for r in ranks
        },
        calls={i: Call(ranks, "g", service[i]) for i in range(3)},
        start_ns=dict.fromkeys(ranks, 0),
        slots=slots,
        shared=shared,
    )
    # Blocking calls: the step is the sum over calls of the slowest work plus the service.
    expected = sum(max(work[r][i] for r in ranks) + service[i] for i in range(3))
    assert simulate(program).step_ns == pytest.approx(expected)


def test_calls_of_other_sizes_advance_by_the_same_fraction() -> None:
    # Calls of 30 and 10 issued together share 3 : 1, so that both end at 40.
    items = [Issue(1), Issue(2), Wait(1), Wait(2)]
    program = Program(
        items={0: list(items), 1: list(items)},
        calls={1: Call((0, 1), "g", 30), 2: Call((0, 1), "g", 10)},
        start_ns={0: 0, 1: 0},
        slots=2,
        shared=True,
    )
    replay = simulate(program)
    assert replay.call_end_ns == {1: pytest.approx(40), 2: pytest.approx(40)}


def test_a_call_that_waits_for_another_stream_runs_when_that_one_has_ended() -> None:
    """HSDP sums over the replicas (1) what the shards have reduced (0), wherever compute is."""
    calls = {0: Call((0, 1), "shard", 10), 1: Call((0, 2), "replicas", 10)}
    late = {
        0: [Issue(0), Issue(1, after=0), Work(50), Wait(1)],
        1: [Work(30), Issue(0)],
        2: [Issue(1), Wait(1)],
    }
    program = Program(items=late, calls=calls, start_ns={})
    assert simulate(program).call_end_ns == {0: 40, 1: 50}
    on_time = program.with_items({**late, 1: [Issue(0)]})
    assert simulate(on_time).call_end_ns == {0: 10, 1: 20}


def test_a_clock_too_coarse_for_what_is_left_ends_all_the_same() -> None:
    """At 2e18 ns the next number is 256 ns away: a call of 77 ns moved no clock, for ever."""
    program = Program(
        items={0: [Issue(1), Wait(1)], 1: [Issue(1), Wait(1)]},
        calls={1: Call((0, 1), "g", 77)},
        start_ns={0: 0, 1: 2e18},
    )
    assert simulate(program).call_end_ns == {1: pytest.approx(2e18)}
