"""Places from the ends of rings: each pattern points back at what made it, and at nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.links.evidence import Ring
from advisor.metrics.links.staggers import explain
from advisor.metrics.rings.locations import Location, direction_of
from advisor.metrics.rings.schedule import SHARES, edges, ends, segments

HOMES = {
    "one rank per host": {rank: f"h{rank}" for rank in range(4)},
    "two ranks per host": {rank: f"h{rank // 2}" for rank in range(6)},
}


def ring_of(
    op: str, home: dict[int, str], place: Location | None, share: float, *, sure: bool = True
) -> Ring:
    """Forty calls whose ends are the model's for ``place``, with some noise."""
    ranks = tuple(home)
    slow = frozenset(
        number
        for number, edge in enumerate(edges(op, ranks))
        if place is not None and place.slow(edge, home)
    )
    inside = frozenset(n for n, (a, b) in enumerate(edges(op, ranks)) if home[a] == home[b])
    level = int(np.abs(SHARES - share).argmin())
    pattern = ends(op, len(ranks), slow, inside)[level] if slow else np.zeros(len(ranks))
    noise = np.random.default_rng(7).normal(0, 0.01, (40, len(ranks)))
    lags = pattern + noise
    return Ring(
        group="0",
        op=op,
        ranks=ranks,
        known=ranks,
        alike=(0,) * len(ranks),
        sure=sure,
        lags=lags - lags.mean(axis=1, keepdims=True),
        errors=np.full(len(ranks), 0.015),
        independent=float(len(lags)),
    )


@pytest.mark.parametrize("layout", HOMES)
@pytest.mark.parametrize("kind", ["both", "out", "in"])
def test_two_operations_tell_a_host_and_its_direction(layout: str, kind: str) -> None:
    home = HOMES[layout]
    place = Location(kind, ("h1",))
    found = explain([ring_of(op, home, place, 0.8) for op in ("all_reduce", "all_gather")], home)
    assert found is not None
    assert found.places[0] == place
    assert {one.homes[0] for one in found.places} == {"h1"}
    assert direction_of(found.places) == {"both": "both", "out": "send", "in": "receive"}[kind]
    low, _, high = found.share
    assert low < 0.8 < high


@pytest.mark.parametrize("layout", HOMES)
def test_one_operation_leaves_the_two_ends_of_an_edge_open(layout: str) -> None:
    home = HOMES[layout]
    # gloo's all_reduce sends to the previous rank.
    found = explain([ring_of("all_reduce", home, Location("out", ("h1",)), 0.8)], home)
    assert found is not None
    alike = {Location("out", ("h1",)), Location("in", ("h0",)), Location("edge", ("h1", "h0"))}
    assert alike <= set(found.places)
    assert direction_of(found.places) is None


@pytest.mark.parametrize("layout", HOMES)
def test_ranks_that_leave_together_and_links_that_are_alike_name_nobody(layout: str) -> None:
    home = HOMES[layout]
    assert explain([ring_of("all_reduce", home, None, 0.0)], home) is None
    everywhere = ring_of("all_reduce", home, None, 0.0)
    crossing = frozenset(
        n for n, (a, b) in enumerate(edges("all_reduce", tuple(home))) if home[a] != home[b]
    )
    inside = frozenset(range(len(home))) - crossing
    pattern = ends("all_reduce", len(home), crossing, inside)[30]
    slow = everywhere._replace(lags=everywhere.lags + pattern - pattern.mean())
    assert explain([slow], home) is None


def test_a_clock_that_is_off_by_more_than_any_link_makes_names_nobody() -> None:
    home = HOMES["one rank per host"]
    ring = ring_of("all_reduce", home, None, 0.0)
    offset = np.array([0.0, 0.0, 0.45, 0.45])
    shifted = ring._replace(lags=ring.lags + offset - offset.mean())
    assert explain([shifted], home) is None


@pytest.mark.parametrize(("op", "last", "first"), [("all_reduce", 2, 0), ("all_gather", 0, 2)])
def test_receiver_of_a_slow_edge_ends_last_and_the_farthest_first(
    op: str, last: int, first: int
) -> None:
    # Measured on four hosts (LAB): with the sending side of rank 3 or 1 slow.
    order = ends(op, 4, frozenset({last}), frozenset())[-1]
    assert int(order.argmax()) == last
    assert int(order.argmin()) == first


def test_long_messages_leave_closer_together_as_gloo_cuts_them_into_more_segments() -> None:
    # GIVEN three hosts, one of which sends at 150 Mbit/s and the others at 1,000: in each of eight
    # calls of 14.2 MB and 998 ms, rank 1, which receives from it, ended 96 ms after rank 0 and its
    # sender, rank 2, 25 ms after (torch 2.13)
    each = segments("all_reduce", 3, 14_204_968)
    assert each == 5
    # WHEN the slow edge is that into rank 1, 1 / 0.15 times as slow
    pattern = ends("all_reduce", 3, frozenset({1}), frozenset(), each)
    share = int(np.abs(SHARES - 0.85).argmin())
    after = (pattern[share] - pattern[share].min()) * 998
    # THEN the model's ends are those, where two segments a chunk would have put 250 ms between them
    assert after[1] == pytest.approx(96, abs=8)
    assert max(after[0], after[2]) < 30
    two = ends("all_reduce", 3, frozenset({1}), frozenset())[share]
    assert (two[1] - two.min()) * 998 > 200
    # AND messages that fit into two segments a chunk, and all-gathers, are cut into two
    assert segments("all_reduce", 3, 6 << 20) == 2
    assert segments("all_gather", 3, 100 << 20) == 2
