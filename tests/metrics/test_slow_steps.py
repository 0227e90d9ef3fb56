"""A device that is slow in some steps, told from work that differs, by the other steps of all."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.lateness.slow_steps import slow_steps
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.timeline import COMPUTE, Timeline

MS = 1_000_000
STEPS = 6
RANKS = 4


def found(spread: float, slow: dict[int, float], more_kernels: int = 0) -> dict[int, list[int]]:
    """Ranks of 20 kernels a step, whose lengths vary by ``spread``; rank 2 is ``slow`` in some."""
    lengths = np.random.default_rng(3).uniform(1 - spread, 1 + spread, (RANKS, STEPS))
    lines = {}
    for rank in range(RANKS):
        start, end = [], []
        for step in range(STEPS):
            times = slow.get(step, 1.0) if rank == 2 else 1.0
            count = 20 + (more_kernels if times > 1 else 0)
            begin = step * 1000 * MS + np.arange(count) * 20 * MS
            start.append(begin)
            end.append(begin + int(times * lengths[rank, step] * 4 * MS))
        at = np.concatenate(start)
        lines[rank] = Timeline(
            rank=rank, on_device=True, kind=np.full(len(at), COMPUTE), start=at,
            end=np.concatenate(end), stream=at * 0, event_id=np.arange(len(at)),
            launch=at - MS, thread=at * 0,
        )  # fmt: skip
    steps = Steps(tuple(
        Step(n, n * 1000 * MS, (n + 1) * 1000 * MS, None, None, True, "x") for n in range(STEPS)
    ))  # fmt: skip
    occupancy = {rank: Occupancy.of(line) for rank, line in lines.items()}
    seen = slow_steps(lines, occupancy, dict.fromkeys(lines, steps))
    return {rank: [*of_step] for rank, of_step in seen.items()}


@pytest.mark.parametrize(
    ("spread", "slow", "more_kernels", "expected"),
    [
        (0.02, {2: 2.0, 3: 2.0}, 0, {2: [2, 3]}),
        (0.02, {}, 0, {}),
        (0.02, {2: 2.0}, 0, {}),  # once may be anything
        (0.02, {2: 2.0, 3: 2.0}, 4, {}),  # an evaluation: it runs more kernels there
        (0.02, {0: 2.0, 2: 2.0, 4: 2.0}, 0, {}),  # in half of its steps: slow, or quick in the rest
        (0.4, {2: 1.6, 3: 1.6}, 0, {}),  # lengths vary as much on every rank
    ],
)
def test_as_many_kernels_take_longer_in_some_steps_of_one_rank_alone(
    spread: float, slow: dict[int, float], more_kernels: int, expected: dict[int, list[int]]
) -> None:
    assert found(spread, slow, more_kernels) == expected
