"""When a rank came whose file is lost is not known: no link is slow for that."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from advisor.metrics.links.locations import Location, Members
from advisor.metrics.links.ring_blocks import UNREAD, Block
from advisor.metrics.links.ring_lags import _lags
from advisor.metrics.links.ring_patterns import Patterns, mean_of

_HOME = {rank: f"gpu-{rank // 2}" for rank in range(8)}
_SLOT = {rank: rank % 2 for rank in range(8)}
# An all-gather of 226 MB of a simulated job (FSDP2, four hosts of two) whose links are healthy and
# whose rank 1 computes longer: us from the last start, and from the ranks' mean end.
_STARTS = np.array([-8951, -8625, -8278, -8604, 0, -325, -3436, -3760], dtype=np.float64) * 1e3
_ENDS = np.array([-3456, -3780, -3433, -3758, 5487, 5162, 2051, 1726], dtype=np.float64) * 1e3
_ELSEWHERE = [
    Location("host", False, (2, 3)),
    Location("host", False, (4, 5)),
]


def healthy_less_slow(lost: int | None) -> float:
    """By how much the ends are likelier if nothing is slow than for the likelier location
    (logarithms), without one rank's file. Its prior, a tenth for all locations, is not in it."""
    read = np.array([rank for rank in range(8) if rank != lost])
    starts, ends = np.tile(_STARTS, (6, 1)), np.tile(_ENDS[read], (6, 1))
    if lost is not None:
        starts[:, lost] = 0.0
    hosts = np.arange(8) // 2
    if lost is not None:
        hosts[lost] = 4
    block = Block(
        Members(tuple(range(8))), "all_gather", 226_492_416, 16.29e6, starts,
        ends - ends.mean(axis=1, keepdims=True), np.full(len(read), 1_500.0), 3, hosts, read,
        None, () if lost is None else UNREAD, False,
    )  # fmt: skip
    lags = replace(
        _lags([block], cast(Any, SimpleNamespace(gloo=False, clocks={})), _HOME, None),
        first_look=None,
    )
    healthy, *slow = Patterns(_HOME, _SLOT).log_likelihoods(lags, [None, *_ELSEWHERE])
    assert healthy is not None
    likeliest = max(mean_of(one, 0).max() for one in slow if one is not None)
    return float(mean_of(healthy, 0).max() - likeliest)


def test_a_healthy_ring_stays_one_without_a_rank_that_came_early() -> None:
    assert healthy_less_slow(None) > -5
    assert healthy_less_slow(0) > -5
