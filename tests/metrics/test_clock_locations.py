"""A slow link is told with every host's clock off by any amount, and none where none is slow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.metrics.clocks.posterior import weigh
from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.schedule import paths
from advisor.store import Store
from tests.support.marks import long

pytestmark = pytest.mark.slow

MS = 1_000_000
HOSTS = {rank: f"h{rank}" for rank in range(4)}
RIGHT = dict.fromkeys(HOSTS, 0)


def calls(slow: Mapping[str, int], off: Mapping[int, float], noise: float) -> list[dict[int, Call]]:
    """Thirty calls of each operation in ``slow`` (with the receiver of its slow edge, -1: none) on
    four ranks that come within 3 ms, their ends ``noise`` ms off; ``off``: clocks, in ms."""
    chance = np.random.default_rng(7)
    columns = []
    for number in range(30):
        for turn, (op, receiver) in enumerate(slow.items()):
            edges = frozenset() if receiver < 0 else frozenset([receiver])
            path = paths(op, 4, edges, frozenset())[-1 if edges else 0]
            begin = 100.0 * number + 50.0 * turn
            starts = begin + chance.uniform(0, 3, 4)
            ends = (starts + 20.0 / (1 + turn) * path).max(axis=1) + chance.normal(0, noise, 4)
            columns.append(
                {
                    rank: Call(
                        rank=rank, op=op, group="0", group_size=4, bytes=300_000, event_id=0,
                        start=round((starts[rank] + off.get(rank, 0)) * MS),
                        end=round((ends[rank] + off.get(rank, 0)) * MS),
                    )
                    for rank in range(4)
                }
            )  # fmt: skip
    return columns


@pytest.mark.parametrize("off", [{}, {0: 3.0, 1: -4.0, 2: 1.0, 3: 2.0}, {1: 4000.0, 2: -900.0}])
def test_rings_both_ways_give_the_place_and_the_clocks(off: dict[int, float]) -> None:
    # All-reduce goes 1 -> 0, all-gather 0 -> 1: with host 1 sending slowly, into 0 and into 2.
    found = weigh(calls({"all_reduce": 0, "all_gather": 2}, off, 0.2), HOSTS, RIGHT)
    assert found is not None
    assert found.decided
    assert found.places[0].homes[0] == "h1"
    assert found.places[0].kind == "out"
    for rank in HOSTS:
        by = (found.offsets_ns[f"h{rank}"] - found.offsets_ns["h0"]) / MS
        assert by == pytest.approx(off.get(0, 0) - off.get(rank, 0), abs=0.8)


@pytest.mark.parametrize("off", [{}, {0: 3.0, 1: -4.0, 2: 1.0, 3: 2.0}])
def test_no_clocks_make_alike_links_slow(off: dict[int, float]) -> None:
    found = weigh(calls({"all_reduce": -1, "all_gather": -1}, off, 0.5), HOSTS, RIGHT)
    assert found is not None
    assert not found.slow


def test_whether_the_clocks_are_right_is_told() -> None:
    found = weigh(calls({"all_reduce": 0, "all_gather": 2}, {1: 6.0}, 0.2), HOSTS, RIGHT)
    assert found is not None
    assert not found.right(found.loss(dict.fromkeys(HOSTS.values(), 0)))
    assert found.right(found.loss({"h0": 0, "h1": -6 * MS, "h2": 0, "h3": 0}))


def test_two_hosts_or_few_calls_tell_nothing() -> None:
    columns = calls({"all_reduce": 0}, {}, 0.2)
    assert weigh(columns, {rank: f"h{rank // 2}" for rank in HOSTS}, RIGHT) is None
    assert weigh(columns[:7], HOSTS, RIGHT) is None


def named(store: Store, shifts: Mapping[int, int]) -> set[int]:
    """The ranks of the place or the candidates with each rank's clock shifted, ns."""
    for rank, by in shifts.items():
        store.con.execute("UPDATE event SET start_ns = start_ns + ? WHERE rank = ?", [by, rank])
    derive(store)
    for rank, by in shifts.items():
        store.con.execute("UPDATE event SET start_ns = start_ns - ? WHERE rank = ?", [by, rank])
    found = store.con.execute("SELECT src, dst, candidates FROM link_excess").fetchall()
    return {
        rank
        for src, dst, candidates in found
        for rank in (json.loads(candidates) if candidates else (src, dst))
        if rank is not None
    }


def by_host(store: Store, seed: int, most_ms: float) -> dict[int, int]:
    """A random shift per host, as ns per rank."""
    rows = store.con.execute("SELECT rank, host FROM rank ORDER BY rank").fetchall()
    chance = np.random.default_rng(seed)
    hosts = sorted({host for _, host in rows})
    shift = {host: round(chance.uniform(-most_ms, most_ms) * MS) for host in hosts}
    return {rank: shift[host] for rank, host in rows}


@pytest.mark.parametrize(
    ("seed", "most_ms"), [*long((1, 0.5), (1, 5.0), (2, 5.0), (4, 5.0), (1, 10.0)), (1, 5000.0)]
)
def test_a_recorded_slow_link_shows_with_all_clocks_shifted(
    fixtures_dir: Path, seed: int, most_ms: float
) -> None:
    """Rank 1's link is slow; at most it is one of the candidates, and somebody is ruled out."""
    with Store.create() as store:
        ingest([fixtures_dir / "lab-fsdp2-slow-link"], store)
        found = named(store, by_host(store, seed, most_ms))
    assert 1 in found
    assert found < set(range(4))


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, *long(5, 6, 7)])
@pytest.mark.parametrize("most_ms", [2.0, 5.0])
def test_clocks_that_all_are_off_name_no_healthy_host_alone(
    fixtures_dir: Path, seed: int, most_ms: float
) -> None:
    with Store.create() as store:
        ingest([fixtures_dir / "lab-fsdp2-slow-link"], store)
        found = named(store, by_host(store, seed, most_ms))
    assert 1 in found or not found


@pytest.mark.parametrize("name", ["lab-ddp-blocking", "lab-zero1-pauses"])
@pytest.mark.parametrize("most_ms", [5.0, 5000.0])
def test_no_shift_accuses_a_healthy_link(fixtures_dir: Path, name: str, most_ms: float) -> None:
    with Store.create() as store:
        ingest([fixtures_dir / name], store)
        assert named(store, by_host(store, 1, most_ms)) == set()
