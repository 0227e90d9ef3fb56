"""One clock that is off changes nothing: it is told from a slow link by starts and ends, whosever
it is and by however much it is off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.metrics.clocks.posterior import Weighed, weigh
from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.schedule import FEW_SHARES, _pass, _takes, distant, paths
from advisor.store import Store
from tests.support.marks import long

pytestmark = pytest.mark.slow

MS = 1_000_000
SHIFTS_MS = (-5.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
@pytest.mark.parametrize("count", [3, 4, 7])
def test_ends_are_the_latest_start_plus_path(op: str, count: int) -> None:
    slow, inside = frozenset([1]), frozenset([2])
    takes = _takes(count, slow, inside, FEW_SHARES)
    path = paths(op, count, slow, inside)
    scale = np.array([_pass(op, row[None], np.zeros((1, count))).max() for row in takes])
    unit = scale / path.max(axis=2).max(axis=1)
    for starts in np.random.default_rng(3).uniform(0, 9, (20, count)):
        ends = _pass(op, takes, np.tile(starts, (len(takes), 1)))
        assert ends == pytest.approx((starts + unit[:, None, None] * path).max(axis=2))


def calls(slow: frozenset[int], off: dict[int, float]) -> list[dict[int, Call]]:
    """Forty calls of 10 ms on four ranks that come within 4 ms; ``off``: clocks, in ms."""
    path = paths("all_reduce", 4, slow, frozenset())
    path = path[min(3, len(path) - 1)]
    chance = np.random.default_rng(5)
    columns = []
    for number in range(40):
        starts = 50.0 * number + chance.uniform(0, 4, 4)
        ends = (starts + 10.0 * path).max(axis=1) + chance.normal(0, 0.05, 4)
        columns.append(
            {
                rank: Call(
                    rank=rank, op="all_reduce", group="0", group_size=4, bytes=300_000, event_id=0,
                    start=round((starts[rank] + off.get(rank, 0)) * MS),
                    end=round((ends[rank] + off.get(rank, 0)) * MS),
                )
                for rank in range(4)
            }
        )  # fmt: skip
    return columns


HOSTS = {number: f"h{number}" for number in range(4)}
RIGHT = dict.fromkeys(HOSTS.values(), 0)


def seen(columns: list[dict[int, Call]]) -> Weighed:
    """What the calls say with no clock believed, the clocks given as they are."""
    found = weigh(columns, HOSTS, dict.fromkeys(HOSTS, 0))
    assert found is not None
    return found


@pytest.mark.long
@pytest.mark.parametrize("slow", [frozenset(), frozenset([1]), frozenset([1, 2])])
@pytest.mark.parametrize("rank", [0, 1, *long(2, 3)])
@pytest.mark.parametrize("by_ms", [-5.0, *long(2.0, 5.0, -900.0), 60_000.0])
def test_the_clock_that_is_off_is_found_with_any_link_slow(
    slow: frozenset[int], rank: int, by_ms: float
) -> None:
    found = seen(calls(slow, {rank: by_ms})).one_off(RIGHT)
    assert found is not None
    assert found.off == f"h{rank}"
    assert found.slow == bool(slow)
    others = {one: by for one, by in found.offsets_ns.items() if one != found.off}
    assert set(others.values()) == {0}
    assert found.offsets_ns[f"h{rank}"] == pytest.approx(-by_ms * MS, abs=0.4 * MS)


@pytest.mark.parametrize("slow", [frozenset(), frozenset([1]), frozenset([1, 2])])
def test_clocks_that_are_right_are_right(slow: frozenset[int]) -> None:
    found = seen(calls(slow, {}))
    assert found.right(found.loss(RIGHT))
    moved = found.one_off(RIGHT)
    assert moved is not None
    assert moved.offsets_ns == pytest.approx(RIGHT, abs=0.4 * MS)


def test_two_clocks_that_are_off_are_not_one() -> None:
    assert seen(calls(frozenset([1]), {0: 900.0, 2: -700.0})).one_off(RIGHT) is None


def test_a_distant_host_is_no_clock_that_is_off() -> None:
    """Its messages arrive later, and hold up nothing: a slow link would let ranks leave otherwise,
    so that a clock had to be off as well."""
    path = distant("all_reduce", 4, frozenset([1, 2]), frozenset())[0][4]
    chance = np.random.default_rng(5)
    columns = calls(frozenset(), {})
    for number, column in enumerate(columns):
        starts = 50.0 * number + chance.uniform(0, 4, 4)
        ends = (starts + 10.0 * path).max(axis=1) + chance.normal(0, 0.05, 4)
        for rank, call in column.items():
            call.start, call.end = round(starts[rank] * MS), round(ends[rank] * MS)
    found = seen(columns)
    assert found.right(found.loss(RIGHT))
    assert found.decided
    assert found.places[0].homes == ("h2",)
    for rank in HOSTS:
        away = [
            {one: replace(call, start=call.start + 40 * MS, end=call.end + 40 * MS)
             if one == rank else call for one, call in column.items()}
            for column in columns
        ]  # fmt: skip
        moved = seen(away).one_off(RIGHT)
        assert moved is not None
        assert moved.off == f"h{rank}"
        assert moved.offsets_ns[f"h{rank}"] == pytest.approx(-40 * MS, abs=0.4 * MS)
        assert moved.places[0].homes == ("h2",)


@pytest.fixture(scope="module")
def weak(fixtures_dir: Path) -> Iterator[Store]:
    """The link of rank 0 is slow and staggers the ends by 0.7 ms."""
    with Store.create() as store:
        ingest([fixtures_dir / "lab-ddp-weak-slow-link"], store)
        yield store


def place(store: Store) -> set[int]:
    """The ranks of the place that is named, if any."""
    derive(store)
    named: set[int] = set()
    for src, dst in store.con.execute("SELECT src, dst FROM link_excess").fetchall():
        named |= {rank for rank in (src, dst) if rank is not None}
    return named


@pytest.mark.long
@pytest.mark.parametrize(("rank", "least"), [(1, 1), *long((0, 8), (2, 10))])
def test_no_clock_moves_a_weak_slow_link_elsewhere(weak: Store, rank: int, least: int) -> None:
    """With the clock of rank 1 open, two hosts are left to compare, and no slow link explains the
    calls almost as well: nobody is named."""
    assert place(weak) == {0}
    kept = 0
    for by_ms in SHIFTS_MS:
        by = round(by_ms * MS)
        weak.con.execute("UPDATE event SET start_ns = start_ns + ? WHERE rank = ?", [by, rank])
        found = place(weak)
        weak.con.execute("UPDATE event SET start_ns = start_ns - ? WHERE rank = ?", [by, rank])
        assert not found or 0 in found, by_ms
        kept += found == {0}
    # The place stays for most shifts; for the others it is open, or named by one of its edges.
    assert kept >= least
