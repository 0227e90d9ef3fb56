"""Slow senders, receivers and edges, placed on purpose in a matrix of pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.links.pair_timings import Pair, suspects, timed_pairs


def matrix(ranks: int, slow: dict[tuple[int, int], float], seed: int = 0) -> list[Pair]:
    rng = np.random.default_rng(seed)
    return [
        Pair(a, b, slow.get((a, b), 1.0) * float(np.exp(0.05 * rng.standard_normal())), 1000.0)
        for a, b in itertools.permutations(range(ranks), 2)
    ]


@given(st.integers(4, 8), st.data())
def test_a_slow_sender_receiver_or_edge_is_told_apart(ranks: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, ranks - 1))
    other = data.draw(st.integers(0, ranks - 1).filter(lambda r: r != rank))
    sender = suspects(matrix(ranks, {(rank, b): 3.0 for b in range(ranks) if b != rank}))
    assert [(s.kind, s.ranks) for s in sender] == [("sender", (rank,))]
    receiver = suspects(matrix(ranks, {(a, rank): 3.0 for a in range(ranks) if a != rank}))
    assert [(s.kind, s.ranks) for s in receiver] == [("receiver", (rank,))]
    edge = suspects(matrix(ranks, {(rank, other): 3.0}))
    assert [(s.kind, s.ranks) for s in edge] == [("edge", (rank, other))]


@pytest.mark.parametrize("ranks", [3, 4, 6])
def test_a_host_that_is_slow_both_ways_does_not_become_what_is_usual(ranks: int) -> None:
    slow = {pair: 8.0 for pair in itertools.permutations(range(ranks), 2) if 1 in pair}
    found = suspects(matrix(ranks, slow))
    assert {(one.kind, one.ranks) for one in found} == {("sender", (1,)), ("receiver", (1,))}
    assert all(one.expected_gbps == pytest.approx(1.0, rel=0.15) for one in found)


def test_alike_pairs_accuse_nobody() -> None:
    assert suspects(matrix(6, {})) == []


def test_one_pair_alone_stays_a_candidate() -> None:
    pairs = [Pair(0, 1, 4.0, 1.0), Pair(2, 3, 1.0, 1.0), Pair(4, 5, 1.0, 1.0)]
    (found,) = suspects(pairs)
    assert (found.kind, found.ranks) == ("candidates", (0, 1))


def test_a_small_message_that_came_late_makes_no_link_look_fast() -> None:
    """Twelve equal links; three small messages took longer than the large ones."""
    ends = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    times = {pair: {4: 100e3, 4 << 20: 6e6} for pair in ends}
    for pair in ends[:3]:
        times[pair][4] = 6.1e6
    pairs = timed_pairs(times)
    assert len(pairs) == 12
    assert suspects(pairs) == []
    assert {round(1 / pair.ns_per_byte, 3) for pair in pairs} == {round((4 << 20) / 5.9e6, 3)}
