"""Which way a rank is slow, from send/recv pairs that are slow or fast."""

from __future__ import annotations

import pytest

from advisor.metrics.links.peers import PeerExcess, pair_direction


def peer(ranks: tuple[int, ...], *, slow: bool, op: str = "send") -> PeerExcess:
    return PeerExcess(None, op, 4_000_000, ranks, 20, 2e6, 0.5 if slow else 0.0, 0.5, slow,
                      1e-6 if slow else 1.0)  # fmt: skip


# Slow pairs of a pipeline of four ranks -> what is told of rank 1.
PAIRS = [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)]
TOLD = {
    "send": {(1, 2), (1, 0)},
    "receive": {(0, 1), (2, 1)},
    "both": {(0, 1), (2, 1), (1, 2), (1, 0)},
    None: {(1, 2)},
}


@pytest.mark.parametrize("direction", TOLD, ids=str)
def test_pairs_tell_the_direction_where_all_of_it_are_slow(direction: str | None) -> None:
    peers = [peer(pair, slow=pair in TOLD[direction]) for pair in PAIRS]
    assert pair_direction(peers, [1]) == direction


def test_groups_that_are_slow_or_one_way_alone_tell_none() -> None:
    one_way = [peer((1, 2), slow=True), peer((2, 3), slow=False)]
    assert pair_direction(one_way, [1]) is None
    groups = [peer((0, 1), slow=True, op="all_reduce"), peer((2, 3), slow=False, op="all_reduce")]
    assert pair_direction(groups, [1]) is None
