"""Where a step ends on the device: by hand, steps of 100 with a kernel that fills 80 of each."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.steps.annotated import Step, device_windows
from advisor.metrics.steps.whole import whole_trace, without_strays
from advisor.metrics.timeline.timeline import COMPUTE, MEMORY, Timeline

_STEP, _KERNEL, _AHEAD = 100, 80, 10


def windows(marked: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """Number -> window, where five steps ran and these have a mark."""
    launch = _STEP * np.arange(5, dtype=np.int64)
    zero = np.zeros(5, dtype=np.int64)
    start = launch + _AHEAD
    line = Timeline(0, True, zero, start, start + _KERNEL, zero, np.arange(5), launch, zero)
    steps = [
        Step(n, n * _STEP, (n + 1) * _STEP, n * _STEP, n * _STEP + _STEP - 1, True, "x")
        for n in marked
    ]
    return {step.number: (step.start, step.end) for step in device_windows(steps, line).steps}


def test_a_step_ends_where_the_next_begins_and_the_last_with_its_work() -> None:
    assert windows((0, 1, 2)) == {0: (10, 110), 1: (110, 210), 2: (210, 290)}


@pytest.mark.parametrize("marked", [(0, 1, 3, 4), (1, 3, 4), (0, 1, 4)])
def test_a_step_before_a_lost_mark_is_one_step_long(marked: tuple[int, ...]) -> None:
    """Up to the next mark it would be two or three: a rank that pauses, to all others."""
    assert windows(marked)[1] == (110, 190)


def test_what_runs_ahead_of_the_step_before_begins_none() -> None:
    """The host is 250 ahead: it asks for each batch's copy on a stream of its own, which runs at
    once, while the kernels of two steps before wait on the other. Nothing is before the first."""
    ahead = 250
    launch = _STEP * np.arange(5, dtype=np.int64)
    asked = np.concatenate([launch, launch + 1])
    start = np.concatenate([launch + 5, launch + ahead])
    order = np.argsort(start)
    lasts = np.concatenate([launch + 25, launch + ahead + _KERNEL])
    stream = np.repeat([2, 1], 5)
    kind = np.repeat([MEMORY, COMPUTE], 5)
    zero = np.zeros(10, dtype=np.int64)
    line = Timeline(
        0, True, kind[order], start[order], lasts[order], stream[order], zero, asked[order], zero
    )
    steps = [
        Step(n, n * _STEP, (n + 1) * _STEP, n * _STEP, n * _STEP + _STEP - 1, True, "x")
        for n in range(5)
    ]
    found = [step.start for step in device_windows(steps, line).steps]
    assert found == [5, *(n * _STEP + ahead for n in range(1, 5))]


def test_steps_that_leave_out_numbers_are_looked_at_once() -> None:
    """Each ends by the longest before it: looked for anew, twice the steps cost four times."""
    reads = 0

    class Counted(Step):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            nonlocal reads
            reads += name == "end"
            return super().__getattribute__(name)

    def cost(count: int) -> int:
        nonlocal reads
        reads = 0
        begin = 3 * _STEP * np.arange(count, dtype=np.int64)
        zero = np.zeros(count, dtype=np.int64)
        line = Timeline(0, True, zero, begin, begin + _KERNEL, zero, zero, begin, zero)
        steps = [Counted(3 * n, at, at + 99, at, at + 99, True, "x") for n, at in enumerate(begin)]
        assert len(device_windows(steps, line).steps) == count
        return reads

    assert cost(200) <= 2.5 * cost(100)


def _recorded(rank: int, *spans: tuple[int, int]) -> Timeline:
    start, end = np.array(spans, dtype=np.int64).T
    zero = np.zeros(len(spans), dtype=np.int64)
    return Timeline(rank, True, zero, start, end, zero, np.arange(len(spans)), start, zero)


def test_a_whole_trace_is_the_same_stretch_of_all_ranks() -> None:
    """Rank 1 does a third of what rank 0 does, so that what both do at the start, before a model is
    made for 700, is stray beside the work of one of them only; its clock is 50 behind."""
    lines = {0: _recorded(0, (0, 1), (800, 1100)), 1: _recorded(1, (-50, -48), (850, 950))}
    alone = {rank: whole_trace(line).steps[0] for rank, line in lines.items()}
    assert [(step.start, step.end) for step in alone.values()] == [(800, 1100), (-50, 950)]
    (changed,) = without_strays(lines, {0: 0, 1: 50}).items()
    assert changed[0] == 1
    assert [(step.start, step.end) for step in changed[1].steps] == [(750, 950)]
    assert without_strays(lines, {}) == {}
