"""How far ends may be off the pattern of a ring before they outweigh what calls take."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.links.locations import Members
from advisor.metrics.links.ring_blocks import Block
from advisor.metrics.links.ring_errors import _clock_errors, whitening
from advisor.metrics.links.ring_patterns import _loops

RANKS = tuple(tuple(range(slot, 16, 4)) for slot in range(4))
HOSTS = {rank: f"h{rank // 4}" for rank in range(16)}


def clock(doubt_ns: float) -> Clock:
    return Clock(offset_ns=0, drift_ppm=0.0, residual_ns=17_000, origin_ns=0, doubt_ns=doubt_ns)


def block(ranks: tuple[int, ...], time_ns: float) -> Block:
    nothing = np.zeros((5, 4))
    return Block(
        Members(ranks), "all_reduce", 100_000_000, time_ns, nothing, nothing, np.full(4, 1e3), 5,
        np.arange(4), np.arange(4), None, (), False,
    )  # fmt: skip


def log_likelihood(ends_ns: list[float], doubt_ns: float = 3e4) -> float:
    """Of the ends of three groups of 3.3 ms and of one of 13 ms, against nothing unexplained."""
    data: Any = SimpleNamespace(gloo=False, clocks={rank: clock(doubt_ns) for rank in range(16)})
    chosen = [block(own, 13e6 if own == RANKS[1] else 3.3e6) for own in RANKS]
    found, _ = whitening(chosen, data, HOSTS, None)
    logs = [[scale - 0.5 * float(((inverse @ np.array(x)) ** 2).sum())
              for inverse, scale in found] for x in (ends_ns, [0.0] * 16)]  # fmt: skip
    return float(np.logaddexp.reduce(logs[0]) - np.logaddexp.reduce(logs[1]))


@pytest.mark.parametrize("channels", [2, 16, 24, 32])
def test_a_message_that_every_channel_sends_in_one_loop_is_one_loop(channels: int) -> None:
    size = channels * (2 << 20) * 4
    whole = replace(block((0, 1, 2, 3), 1e6), bytes=size)
    assert 1 in _loops(whole)


@pytest.mark.parametrize("times", [1.0, 3.0])
def test_an_order_of_one_group_that_fits_nothing_is_no_proof(times: float) -> None:
    """440 and 730 us of 13 ms, as a last loop of another size leaves them, or more."""
    late = [times * one for one in (4.4e5, -1.5e5, -7.3e5, 4.4e5)]
    assert -60 < log_likelihood([0.0] * 4 + late + [0.0] * 8) < -10


def test_the_same_order_in_every_group_may_be_the_clocks() -> None:
    assert log_likelihood([0.0, -6e5, 3e5, 8e5] * 4) > -40


def test_clocks_that_calls_fit_may_be_off_by_what_ntp_leaves() -> None:
    errors = _clock_errors([clock(3e4)], longest_ns=5e6)
    assert max(errors) == 3e5


def test_clocks_are_off_by_no_more_than_the_longest_call_hides() -> None:
    errors = _clock_errors([clock(3e4)], longest_ns=2e5)
    assert max(errors) == 1e5
