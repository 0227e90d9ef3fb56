"""Which of the places that ends name, starts and ends together leave."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.clocks.posterior import Weighed, weigh
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.evidence import Ring
from advisor.metrics.links.reconcile import beside_starts
from advisor.metrics.links.staggers import Explained
from advisor.metrics.rings.locations import Location
from advisor.metrics.rings.schedule import paths

MS = 1_000_000
HOSTS = {rank: f"h{rank}" for rank in range(4)}
BOTH, IN, OUT = Location("both", ("h1",)), Location("in", ("h1",)), Location("out", ("h2",))
EDGE, OTHER = Location("edge", ("h2", "h1")), Location("both", ("h2",))
DATA = Inputs(
    run="", columns=(), calls={}, groups={}, clocks={}, exclusive={}, occupancy={}, steps={},
    infos={rank: RankInfo(rank, host, None, 4, True, {}) for rank, host in HOSTS.items()},
    gloo=True,
)  # fmt: skip
# An all-reduce goes 1 -> 0, 2 -> 1, 3 -> 2 and 0 -> 3.
RING = Ring(
    "0", "all_reduce", ranks=(0, 1, 2, 3), known=(0, 1, 2, 3), alike=(0, 0, 0, 0), sure=False,
    lags=np.zeros((9, 4)), errors=np.ones(4), independent=9.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def seen() -> Weighed:
    """Calls of one operation with both directions of host 1's link slow."""
    chance = np.random.default_rng(4)
    path = paths("all_reduce", 4, frozenset([0, 1]), frozenset())[4]
    columns = []
    for number in range(30):
        starts = 60.0 * number + chance.uniform(0, 4, 4)
        ends = (starts + 20.0 * path).max(axis=1) + chance.normal(0, 0.1, 4)
        columns.append(
            {
                rank: Call(
                    rank=rank, op="all_reduce", group="0", group_size=4, bytes=300_000,
                    event_id=0, start=round(starts[rank] * MS), end=round(ends[rank] * MS),
                )
                for rank in HOSTS
            }
        )  # fmt: skip
    found = weigh(columns, HOSTS, dict.fromkeys(HOSTS, 0))
    assert found is not None
    return found.with_clocks(dict.fromkeys(HOSTS.values(), 0))


def left(places: tuple[Location, ...], seen: Weighed) -> tuple[Location, ...]:
    found = Explained(places, (), (0.4, 0.6, 0.8), 1e-9, 30)
    return beside_starts(found, [RING], seen, DATA, HOSTS).places


def test_an_edge_of_the_host_that_alone_explains_the_calls_is_that_host(seen: Weighed) -> None:
    assert seen.likeliest == (BOTH,)
    assert left((IN, OUT, EDGE), seen) == (BOTH,)
    assert left((BOTH, IN, OUT, EDGE), seen) == (BOTH,)


def test_a_place_elsewhere_stays_as_the_ends_have_it(seen: Weighed) -> None:
    away = (Location("both", ("h3",)),)
    assert left(away, seen) == away
    assert left((EDGE, OTHER), seen) == (EDGE, OTHER)


def test_with_a_clock_off_what_both_name_is_left_if_it_is_the_best_of_either(
    seen: Weighed,
) -> None:
    off = seen._replace(off="h0", slow=True, likeliest=(), places=(BOTH, OTHER))
    assert left((OTHER, EDGE), off) == (OTHER,)
    assert left((IN, BOTH), off) == (BOTH,)
    # The second best of both is what their errors have in common.
    assert left((IN, OUT, EDGE, OTHER), off) == (IN, OUT, EDGE, OTHER)
