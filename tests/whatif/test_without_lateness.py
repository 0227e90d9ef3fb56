"""A rank that works no longer than the others: what it makes up next to it was no lateness."""

from __future__ import annotations

from dataclasses import replace

from advisor.whatif.changes import without_lateness
from advisor.whatif.predict import predict_without_lateness
from advisor.whatif.program import Call, Issue, Item, Program, Wait, Work
from advisor.whatif.simulate import simulate

_RANKS = (0, 1, 2)
_REDUCTION, _BARRIER = 0, 1
_LAST = 99


def _rank(before: float, between: float, after: float) -> list[Item]:
    return [
        Work(before), Issue(_REDUCTION),
        Work(between), Issue(_BARRIER), Wait(_BARRIER),
        Work(after), Wait(_REDUCTION),
    ]  # fmt: skip


def _program(late: list[Item]) -> Program:
    calls = {
        _REDUCTION: Call(_RANKS, "reduce", 1.0, "all_reduce"),
        _BARRIER: Call(_RANKS, "barrier", 0.0, "barrier"),
    }
    items = {0: _rank(10, 10, 10), 1: _rank(10, 10, 10), 2: late}
    return Program(items, calls, dict.fromkeys(_RANKS, 0.0))


def test_a_call_that_is_only_asked_for_later_hides_nothing_of_what_comes_after() -> None:
    """Rank 2 asks for the reduction just before the barrier, and works 5 ns longer behind that."""
    program = _program(_rank(20, 0, 15))
    assert simulate(program).step_ns == 35
    assert simulate(without_lateness(program, [2])).step_ns == 30


def test_a_rank_that_asks_late_and_works_no_longer_in_all_keeps_its_work() -> None:
    program = _program(_rank(15, 5, 10))
    assert without_lateness(program, [2]).items == program.items


def test_a_punctual_rank_keeps_its_work() -> None:
    program = _program(_rank(10, 10, 15))
    assert without_lateness(program, [0]).items == program.items


def test_steps_that_begin_apart_are_no_error_of_the_replay() -> None:
    """Rank 2 pauses for 5 ns at its step's end, so that its steps begin and end 5 ns later."""
    starts = {0: 0.0, 1: 0.0, 2: 5.0}
    program = replace(
        _program(_rank(10, 10, 15)),
        start_ns=starts,
        measured_ns=35.0,
        apart_ns=5.0,
        run_step_ns=35.0,
    )
    assert program.replayed_ns == 40
    found = predict_without_lateness([program] * 4, [2])
    assert found is not None
    assert found.replayed_ns == found.measured_ns == 35
    assert found.gain_ns == 5
    assert found.gain_low_ns > 0
    unaware = predict_without_lateness([replace(program, apart_ns=0.0)] * 4, [2])
    assert unaware is not None
    assert unaware.gain_low_ns <= 0


def test_a_device_s_last_step_does_not_tell_of_what_its_host_does_before_a_step() -> None:
    """Rank 2 pauses for 5 ns before each of three steps: at the end of the one before, of which the
    last has none. The mean over all three was a third too low."""
    paused = replace(_program(_rank(10, 10, 15)), measured_ns=35.0, run_step_ns=35.0)
    last = replace(_program(_rank(10, 10, 10)), measured_ns=30.0, run_step_ns=35.0)
    for timeline, gain_ns in (("device", 5.0), ("host", 10 / 3)):
        steps = [replace(one, timeline=timeline) for one in (paused, paused, last)]
        found = predict_without_lateness(steps, [2])
        assert found is not None
        assert abs(found.gain_ns - gain_ns) < 1e-6


def test_a_stage_that_works_as_long_but_elsewhere_keeps_its_work() -> None:
    """Each stage has other messages; only the barrier at the end joins them."""
    sent = {rank: range(10 * rank, 11 * rank + 1) for rank in _RANKS}
    calls = {n: Call((rank,), "send", 1.0, "send") for rank in _RANKS for n in sent[rank]}
    calls[_LAST] = Call(_RANKS, "barrier", 0.0, "barrier")
    last = {0: 25.0, 1: 15.0, 2: 5.0}  # after its last message
    items: dict[int, list[Item]] = {
        rank: [
            Work(30 - last[rank]), *map(Issue, sent[rank]),
            Work(last[rank]), Issue(_LAST), Wait(_LAST),
        ]
        for rank in _RANKS
    }  # fmt: skip
    program = Program(items, calls, dict.fromkeys(_RANKS, 0.0))
    assert without_lateness(program, [0]).items == program.items
    items[0][0] = Work(11)  # 6 ns longer in all
    program = Program(items, calls, dict.fromkeys(_RANKS, 0.0))
    shorter = without_lateness(program, [0]).items[0]
    assert sum(item.ns for item in shorter if isinstance(item, Work)) == 30
