"""A thread whose records end before those of the others: its steps are not whole."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.steps.lost_threads import without_lost_threads
from advisor.metrics.steps.used import LOST_THREAD, mark_used
from advisor.metrics.timeline.timeline import Timeline

MS = 1_000_000
STEPS = 8


def _marked(backward: int, forward: list[int]) -> list[str | None]:
    """Why steps of 100 ms do not count, of which each launches ``forward`` kernels on one thread
    and the first ``backward`` three more on another."""
    rows = [
        (100 * step + at, thread)
        for step in range(STEPS)
        for thread, count in ((1, forward[step]), (2, 3 if step < backward else 0))
        for at in range(10 * thread, 10 * thread + count)
    ]
    launch = np.array([row[0] for row in rows], dtype=np.int64) * MS
    thread = np.array([row[1] for row in rows], dtype=np.int64)
    none = np.zeros_like(launch)
    line = Timeline(0, True, none, launch, launch + MS, none, none, launch, thread)
    steps = Steps(
        tuple(
            Step(n, begin, begin + 100 * MS, begin, begin + 100 * MS, True, "annotation")
            for n, begin in enumerate(range(0, STEPS * 100 * MS, 100 * MS))
        )
    )
    marked = mark_used({0: without_lost_threads(line, steps)}, cut=())
    return [step.left_out for step in marked[0].steps]


def test_steps_after_a_threads_last_record_do_not_count() -> None:
    """Seen in an Nsight export of 67 steps: the backward pass's thread ended in the 32nd."""
    assert _marked(5, [4] * STEPS) == [None] * 5 + [LOST_THREAD] * 3


@pytest.mark.parametrize(
    ("backward", "forward"),
    [(STEPS, [4] * STEPS), (5, [4] * 5 + [3] * 3), (2, [4] * STEPS), (5, [4] * 5 + [0] * 3)],
    ids=["nothing lost", "an evaluation follows", "too few to tell", "all threads end"],
)
def test_what_another_kind_of_step_lacks_was_not_lost(backward: int, forward: list[int]) -> None:
    assert LOST_THREAD not in _marked(backward, forward)
