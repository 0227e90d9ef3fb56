"""What is said of the links by how likely which of them are slow."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.links import by_posterior
from advisor.metrics.links.fixed_times import Fixed
from advisor.metrics.links.locations import Location
from advisor.metrics.links.slow_location import Found

HOME = {rank: f"node {rank // 2}" for rank in range(8)}
INFOS = {rank: RankInfo(rank, host, 0, 8, True, {}) for rank, host in HOME.items()}
SCATTERED = Found(
    locations=tuple(Location("rank", False, (rank,)) for rank in HOME),
    parts=(0.05,) * len(HOME),
    nothing=0.6,
    added_ns=None,
    slowdown=(1.2, 2.0, 3.0),
    by_ends=True,
    by_sheet=False,
    in_rings_between=False,
    calls=40,
    against={"large": 3.0, "small": 0.9},
    unsteady=(0.05, 0.95),
)
DISTANT = replace(
    SCATTERED,
    locations=(
        Location("host", False, (2, 3), latency=True),
        Location("all", False, tuple(HOME), latency=True),
    ),
    parts=(0.85, 0.14),
    nothing=0.01,
)
ONE = replace(SCATTERED, locations=(Location("host", False, (2, 3)),), parts=(0.4,))

OF_ONE = replace(
    SCATTERED,
    locations=(Location("nvlink", True, (1,)), Location("pair", True, (0, 1))),
    parts=(0.8, 0.1),
    nothing=0.02,
    by_ends=False,
    against={},
)


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (OF_ONE, ["rank"]),  # its own NVLink, or that to one of several others
        (SCATTERED, ["network"]),
        (replace(SCATTERED, nothing=0.4), ["candidates"]),
        (replace(SCATTERED, against={"small": 0.9}), ["candidates"]),
        (ONE, ["host"]),
        (DISTANT, ["network"]),  # messages between any two hosts may be what takes long
        (replace(DISTANT, parts=(0.96, 0.03)), ["candidates"]),
        # what any network takes is no fault of this one, unless it is beyond any
        (replace(DISTANT, against={}, added_ns=3e4, usual_ns=2e4), []),
        (replace(DISTANT, against={}, added_ns=1e6, usual_ns=2e4), ["candidates"]),
        # or calls of several groups share the NICs, and each delays the others' messages
        (replace(DISTANT, against={}, added_ns=1e6, usual_ns=2e4, shared=True), []),
        (replace(DISTANT, added_ns=1e6, usual_ns=2e4, shared=True), ["network"]),
        # and even then only where that is likelier than a network as others have
        (
            replace(DISTANT, parts=(0.1, 0.15), nothing=0.75, added_ns=1e6, usual_ns=2e4),
            ["network"],
        ),
        # what calls take whatever their size is the network's, not that of one of several places
        (replace(SCATTERED, fixed=Fixed((0.7, 0.8, 0.9), 1e6, 40)), ["candidates"]),
        (replace(SCATTERED, nothing=0.95, fixed=Fixed((0.7, 0.8, 0.9), 1e6, 40)), ["candidates"]),
        # a link that slows calls by half at most leaves them half as fast as elsewhere
        (replace(ONE, slowdown=(1.1, 1.2, 1.5)), ["host", "network"]),
        # what machines with the device have accuses no place, and is nothing beyond these
        (replace(ONE, nothing=0.2, by_ends=False, by_sheet=True), ["network"]),
        (replace(ONE, nothing=0.2, by_ends=False, by_sheet=True, against={"small": 0.9}), []),
        # but NVLink is the device's own, whatever the machine
        (replace(OF_ONE, by_sheet=True), ["rank"]),
    ],
)
def test_places_with_nothing_in_common_are_said_only_if_likelier_than_the_network(
    monkeypatch: pytest.MonkeyPatch, found: Found, kinds: list[str]
) -> None:
    monkeypatch.setattr(by_posterior, "slow_location", lambda data, home: found)
    data = cast(Any, SimpleNamespace(infos=INFOS))
    seen = by_posterior.by_posterior(data, HOME)
    assert [one.culprit.kind for one in seen] == kinds
    assert all(one.evidence["added_ns"] == 1e6 for one in seen if found.fixed)
    assert all(one.culprit.candidates == tuple(HOME) for one in seen if found.fixed)


def test_a_network_whose_messages_are_late_may_be_slow_for_all_that_others_do_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN a quarter of the time whatever the size, and three times what a machine takes."""
    found = replace(SCATTERED, nothing=0.95, fixed=Fixed((0.2, 0.25, 0.3), 1e6, 40))
    monkeypatch.setattr(by_posterior, "slow_location", lambda data, home: found)
    (seen,) = by_posterior.by_posterior(cast(Any, SimpleNamespace(infos=INFOS)), HOME)
    assert seen.share == (0.2, 0.25, pytest.approx(2 / 3))
