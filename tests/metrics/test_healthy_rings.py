"""Rings of sound hosts whose ends must not be taken for a slow place."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.clocks.joint import joint_clocks
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.lateness.waiting import split_waiting
from advisor.metrics.links.cost import Inputs, homes
from advisor.metrics.links.named import LIKELY
from advisor.metrics.links.slow_location import slow_location

RANKS = tuple(range(8))
TOOK_NS = {40_000_000: 1_495_000, 30_000_000: 1_273_000, 25_000_000: 1_094_000}
AHEAD_NS = (0, 1_040_000, 420_000, -800_000)
EARLY_NS = np.array([0, 200, 15, 85, 80, 170, 60, 180]) * 1_000


@pytest.mark.slow
def test_a_ring_that_nobody_begins_before_all_have_come_is_not_distant() -> None:
    """GIVEN four hosts of two ranks whose clocks are off, of which the ranks past a NIC leave a
    chunk later, whoever came when: no buffer was filled ahead."""
    chance = np.random.default_rng(1)
    columns = []
    for number in range(20):
        size, took = list(TOOK_NS.items())[number % 3]
        now = 10_000_000 * number
        came = now - EARLY_NS * chance.uniform(0.4, 1.0)
        left = now + took * np.where(np.array(RANKS) % 2, 0.97, 1.03)
        off = np.repeat(AHEAD_NS, 2)
        columns.append({
            rank: Call(rank, "all_reduce", round(came[rank] + off[rank]),
                       round(left[rank] + off[rank] + chance.normal(0, 300)), number, group="0",
                       group_size=8, bytes=size)
            for rank in RANKS
        })  # fmt: skip
    infos = {rank: RankInfo(rank, f"h{rank // 2}", rank % 2, 8, True, {}) for rank in RANKS}
    groups = {"0": Group("0", None, RANKS, 8)}
    clocks = joint_clocks(columns, infos, on_host=False)
    split_waiting(columns, groups, clocks)
    alone = {rank: {c[rank].event_id: float(c[rank].transfer or 0) for c in columns}
             for rank in RANKS}  # fmt: skip
    data = Inputs("run", columns, {}, groups, infos, clocks, alone, {}, {}, gloo=False)
    found = slow_location(data, homes(data))
    assert found is not None
    assert found.nothing > LIKELY
