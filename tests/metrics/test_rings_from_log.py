"""NCCL's log and traces together: the rings tell which edge a slow group has and a fast one not.

Both are synthetic: no machine printed the log's lines or ran the calls.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest import ingest
from advisor.metrics.links.attribution import _by_logged_ring
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.peers import PeerExcess
from advisor.metrics.rings.from_log import logged_rings
from advisor.store.store import Store

HOME = {rank: f"node{'ab'[rank // 2]}" for rank in range(4)}
LOG = Path(__file__).parents[2] / "fixtures" / "nccl-logs" / "v2.27-groups.log"


def inputs(rings: dict[frozenset[int], frozenset[tuple[int, int]]]) -> Inputs:
    return Inputs("run", [], {}, {}, {}, {}, {}, {}, {}, gloo=False, rings=rings)


def peer(op: str, ranks: tuple[int, ...], *, slow: bool) -> PeerExcess:
    share = 0.8 if slow else 0.0
    return PeerExcess("g", op, 1 << 20, ranks, 20, 5e6, 1e6, share, 0.8, slow, 0.0)


@pytest.fixture(scope="module")
def rings() -> dict[frozenset[int], frozenset[tuple[int, int]]]:
    with Store.create(None) as store:
        ingest([str(LOG)], store, run="run")
        return logged_rings(store.con, "run")


def test_rings_of_every_communicator_are_read(
    rings: dict[frozenset[int], frozenset[tuple[int, int]]],
) -> None:
    forward = {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert rings[frozenset(range(4))] == forward | {(b, a) for a, b in forward}


def test_edges_of_fast_pairs_are_cleared(
    rings: dict[frozenset[int], frozenset[tuple[int, int]]],
) -> None:
    fast = [peer("send", pair, slow=False) for pair in ((2, 1), (3, 0), (0, 3))]
    found = _by_logged_ring(
        [peer("all_reduce", (0, 1, 2, 3), slow=True), *fast], inputs(rings), HOME
    )
    assert found is not None
    assert (found.kind, found.src, found.dst) == ("edge", 1, 2)


def test_edges_that_nothing_clears_stay_candidates(
    rings: dict[frozenset[int], frozenset[tuple[int, int]]],
) -> None:
    found = _by_logged_ring([peer("all_reduce", (0, 1, 2, 3), slow=True)], inputs(rings), HOME)
    assert found is not None
    assert (found.kind, found.candidates) == ("candidates", (0, 1, 2, 3))


def test_without_the_rings_of_a_slow_group_the_log_says_nothing() -> None:
    slow = peer("all_reduce", (0, 1, 2, 3), slow=True)
    assert _by_logged_ring([slow], inputs({}), HOME) is None
