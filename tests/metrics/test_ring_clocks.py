"""Who leaves a healthy ring when, by who came late, told whatever the hosts' clocks."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.links.locations import Members
from advisor.metrics.links.ring_blocks import Block
from advisor.metrics.links.ring_reach import Assumed, Reach
from advisor.metrics.links.unexplained import settled
from advisor.metrics.rings.nccl import SIMPLE, ends_after
from advisor.statistics import Floats

RANKS = 4
CALLS = 10
CALL_NS = 690e3
USUAL = Assumed(0, True, False, 1.0, 0.0, SIMPLE)


def left(starts_ns: Floats, loops: int) -> Floats:
    """When ranks leave, by call and rank, by NCCL's schedule."""
    slice_ns = CALL_NS / ((RANKS - 1) * SIMPLE.slices * loops)
    starts = starts_ns.T[:, None] / slice_ns
    (ends,) = ends_after("all_gather", starts, np.ones((1, RANKS)), (loops,))
    return np.asarray(ends[0].T * slice_ns)


def block(starts_ns: Floats, ends_ns: Floats, hosts: int) -> Block:
    starts = starts_ns - starts_ns.max(axis=1, keepdims=True)
    ends = ends_ns - ends_ns.mean(axis=1, keepdims=True)
    ranks = np.arange(RANKS)
    return Block(Members((0, 1, 2, 3)), "all_gather", 40 << 20, CALL_NS, starts, ends,
                 np.ones(RANKS), 5, ranks % hosts, ranks, None, (), False)  # fmt: skip


def reached(one: Block, loops: Floats) -> Floats:
    """By host, rank, call, loops and level."""
    no_edge = np.zeros(RANKS, dtype=bool)
    at = tuple(range(RANKS))
    return Reach().of(one, at, no_edge, no_edge, loops, False, False, USUAL)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_a_call_of_two_loops_still_shows_who_came_early(loops: int) -> None:
    starts = np.random.default_rng(1).uniform(-200e3, 0.0, (CALLS, RANKS))
    one = block(starts, starts, 1)
    own = reached(one, np.array([float(loops)]))[0, :, :, 0, 0].T
    ends = left(one.starts_ns, loops)
    assert own - own.max() == pytest.approx(ends - ends.max())


def test_clocks_that_are_off_by_more_than_ranks_come_apart_leave_nothing_unexplained() -> None:
    """GIVEN ranks that come within 60 us of each other, by clocks that are off by 90 us."""
    starts = np.random.default_rng(2).uniform(-60e3, 0.0, (CALLS, RANKS))
    off = np.array([0.0, 73e3, -88e3, 2e3])
    one = block(starts + off, left(starts, 2) + off, RANKS)
    last = np.full((1, 1, 1, 1), CALL_NS)
    late = settled(one, reached(one, np.array([2.0]))[:, :, None], last, None)[..., 0, 0]
    assert np.ptp(late, axis=1).max() < 10e3
    assert late.mean(axis=1) == pytest.approx(off - off.mean(), abs=10e3)
