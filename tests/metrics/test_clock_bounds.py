"""Clocks by which a collective would end before the last of its ranks came are impossible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from advisor.metrics.clocks.bounds import Bounds, bounds_of
from advisor.metrics.clocks.offsets import clocks
from advisor.metrics.clocks.posterior import weigh
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.rings.schedule import paths

MS = 1_000_000
HOSTS = {rank: f"h{rank}" for rank in range(4)}
RIGHT = dict.fromkeys(HOSTS, 0)
OFF = {0: 3.0, 1: -4000.0, 2: 900.0, 3: 2.0}


def column(
    op: str, size: int, starts: np.ndarray, ends: np.ndarray, off: Mapping[int, float]
) -> dict[int, Call]:
    """A call of four ranks at ``starts`` to ``ends`` (ms), on clocks that are ``off`` (ms)."""
    return {
        rank: Call(
            rank=rank, op=op, group="0", group_size=4, bytes=size, event_id=0,
            start=round((starts[rank] + off.get(rank, 0)) * MS),
            end=round((ends[rank] + off.get(rank, 0)) * MS),
        )
        for rank in range(4)
    }  # fmt: skip


def short(count: int, off: Mapping[int, float], op: str = "barrier") -> list[dict[int, Call]]:
    """Calls of 0.3 ms; the ranks come and go within 0.1 ms."""
    chance = np.random.default_rng(3)
    found = []
    for number in range(count):
        starts = 150.0 * number + 40.0 + chance.uniform(0, 0.1, 4)
        ends = starts.max() + 0.3 + chance.uniform(0, 0.1, 4)
        found.append(column(op, 1000, starts, ends, off))
    return found


def uneven(off: Mapping[int, float]) -> list[dict[int, Call]]:
    """All-to-alls of two large sizes after which rank 2 is 8 ms late: experts' loads differ."""
    chance = np.random.default_rng(5)
    found = []
    for number in range(60):
        starts = 50.0 * number + chance.uniform(0, 0.5, 4)
        ends = starts.max() + 12.0 + chance.uniform(0, 0.5, 4) + np.array([0, 0, 8.0, 0])
        size = 1_000_000 * (1 + number % 2)
        found.append(column("all_to_all", size, starts, ends, off))
    return found


def known(columns: list[dict[int, Call]], off: Mapping[int, float]) -> dict[int, float]:
    """How wrong the clocks are that are found, ms against rank 0's."""
    infos = {rank: RankInfo(rank, host, None, 4, True, {}) for rank, host in HOSTS.items()}
    found = clocks(columns, infos, gloo=True).by_rank
    return {
        rank: clock.offset_ns / MS + off.get(rank, 0) - off.get(0, 0)
        for rank, clock in found.items()
    }


@pytest.mark.parametrize("off", [{}, OFF])
def test_short_calls_hold_what_large_ones_would_make_of_a_clock(off: dict[int, float]) -> None:
    wrong = known(uneven(off) + short(10, off, "all_to_all"), off)
    assert all(abs(by) < 0.8 for by in wrong.values()), wrong


def test_a_slow_place_that_needs_impossible_clocks_is_no_candidate() -> None:
    """Rings of one size leave several places open; barriers of the same ranks bound the clocks."""
    chance = np.random.default_rng(7)
    path = paths("all_reduce", 4, frozenset([2]), frozenset())[-1]  # host 3 sends slowly to host 2
    rings = []
    for number in range(30):
        starts = 100.0 * number + chance.uniform(0, 3, 4)
        ends = (starts + 20.0 * path).max(axis=1) + chance.normal(0, 0.5, 4)
        rings.append(column("all_reduce", 300_000, starts, ends, OFF))
    found = weigh(rings + short(30, OFF), HOSTS, RIGHT)
    assert found is not None
    assert found.decided
    assert {"h2", "h3"} & set(found.places[0].homes)
    for rank in HOSTS:
        by = (found.offsets_ns[f"h{rank}"] - found.offsets_ns["h0"]) / MS
        assert by == pytest.approx(OFF[0] - OFF[rank], abs=1.2)
    assert found.loss({**found.offsets_ns, "h1": 0}) == np.inf


def bounds(columns: list[dict[int, Call]], *, gloo: bool = True) -> Bounds | None:
    return bounds_of(columns, HOSTS, lambda time, _: time, gloo=gloo)


def test_offsets_move_no_further_than_they_must() -> None:
    found = bounds(short(20, {1: 50.0}))
    assert found is not None
    still = np.zeros((2, 4))
    still[1] = [0, -50, 0, 0]
    assert found.broken(still).tolist() == [True, False]
    moved = found.nearest(still)
    assert not found.broken(moved).any()
    assert moved[1].tolist() == still[1].tolist()
    assert moved[0, 0] - moved[0, 1] == pytest.approx(50, abs=0.7)
    assert found.half_width("h0", "h1") < 0.7


def test_a_call_paired_wrongly_bounds_nothing() -> None:
    right = short(40, {})
    far = short(1, {0: 700.0})
    assert not bounds(right + far).broken(np.zeros(4))  # type: ignore[union-attr]


def test_clocks_that_jump_or_few_calls_bound_nothing() -> None:
    assert bounds(short(20, {}) + short(20, {0: 700.0})) is None
    few = bounds(short(10, {0: 700.0}))
    assert few is not None
    assert not few.broken(np.zeros(4))


def test_parts_without_a_byte_bound_only_where_they_are_sent() -> None:
    columns = short(20, {}, "all_to_all")
    assert bounds(columns) is not None
    assert bounds(columns, gloo=False) is None
