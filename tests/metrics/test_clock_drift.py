"""A clock's drift is found; what no clock does is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.clocks.joint import joint_clocks
from advisor.metrics.clocks.offsets import aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import RankInfo

MS = 1_000_000
RANKS = range(4)
INFOS = {rank: RankInfo(rank, f"h{rank}", None, 4, True, {}) for rank in RANKS}


def barriers(moving: dict[int, float]) -> list[dict[int, Call]]:
    """Sixty barriers in nine seconds; ``moving``: ppm by which a rank's times run ahead."""
    chance = np.random.default_rng(11)
    found = []
    for number in range(60):
        starts = 150.0 * number + chance.uniform(0, 0.2, 4)
        ends = starts.max() + 0.4 + chance.uniform(0, 0.05, 4)
        found.append(
            {
                rank: Call(
                    rank=rank, op="barrier", group="0", group_size=4, bytes=0, event_id=0,
                    start=round(starts[rank] * (1 + 1e-6 * moving.get(rank, 0.0)) * MS),
                    end=round(ends[rank] * (1 + 1e-6 * moving.get(rank, 0.0)) * MS),
                )
                for rank in RANKS
            }
        )  # fmt: skip
    return found


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("ppm", [-300.0, 80.0])
def test_a_drift_that_a_clock_may_have_is_found(rank: int, ppm: float) -> None:
    columns = barriers({rank: ppm})
    found = joint_clocks(columns, INFOS)
    for column in (columns[0], columns[-1]):
        ends = [aligned(call.end, own, found) for own, call in column.items()]
        assert max(ends) - min(ends) < 0.3 * MS


def test_ends_that_move_apart_faster_than_any_clock_are_no_drift() -> None:
    found = joint_clocks(barriers({2: 12_000.0}), INFOS)
    assert all(clock.drift_ppm == 0.0 for clock in found.values())
