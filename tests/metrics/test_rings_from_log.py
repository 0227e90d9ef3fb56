"""NCCL's log and traces together: the rings tell which NICs a group uses.

Both are synthetic: no machine printed the log's lines or ran the calls.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest import ingest
from advisor.metrics.links.locations import Location, Members
from advisor.metrics.rings.from_log import logged_rings
from advisor.store.store import Store

HOME = {rank: f"node{'ab'[rank // 2]}" for rank in range(4)}
LOG = Path(__file__).parents[2] / "fixtures" / "nccl-logs" / "v2.27-groups.log"


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


def test_only_ranks_with_an_edge_between_hosts_use_their_nic(
    rings: dict[frozenset[int], frozenset[tuple[int, int]]],
) -> None:
    ring = frozenset({(0, 1), (1, 2), (2, 3), (3, 0)})
    calls = Members((0, 1, 2, 3), edges=ring)
    assert ring < rings[frozenset(range(4))]
    slow = {
        (rank, way)
        for rank in range(4)
        for way in ("send", "receive")
        if Location("rank", False, (rank,), way).slows(calls, HOME)
    }
    assert slow == {(1, "send"), (2, "receive"), (3, "send"), (0, "receive")}
    assert Location("edge", False, (1, 2)).slows(calls, HOME)
    assert not Location("edge", False, (2, 1)).slows(calls, HOME)


def test_without_a_log_every_rank_of_the_group_may_use_its_nic() -> None:
    calls = Members((0, 1, 2, 3))
    assert all(Location("rank", False, (rank,)).slows(calls, HOME) for rank in range(4))
