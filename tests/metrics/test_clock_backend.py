"""Clocks from rings are told on gloo's rings only, and weighed once for clocks and links."""

from __future__ import annotations

import importlib

import pytest

from advisor.metrics.clocks.offsets import clocks
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.links.attribution import homes
from advisor.metrics.links.cost import Inputs
from tests.metrics.test_clock_locations import HOSTS, MS, calls

OFF = {0: 3.0, 1: -4.0, 2: 1.0, 3: 2.0}
INFOS = {rank: RankInfo(rank, host, None, 4, True, {}) for rank, host in HOSTS.items()}


def test_the_order_of_ends_tells_clocks_of_gloo_only() -> None:
    """With host 1 sending slowly gloo's rings give all clocks; NCCL's go another way."""
    columns = calls({"all_reduce": 0, "all_gather": 2}, OFF, 0.2)
    of_gloo = clocks(columns, INFOS, gloo=True)
    for rank in HOSTS:
        by = of_gloo.by_rank[rank].offset_ns / MS
        assert by == pytest.approx(OFF[0] - OFF[rank], abs=0.8)
    other = clocks(columns, INFOS, gloo=False)
    assert other.weighed is None
    assert not any(clock.identified for clock in other.by_rank.values())


def test_what_the_clocks_found_of_slow_places_serves_the_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = calls({"all_reduce": 0, "all_gather": 2}, OFF, 0.2)
    for column in columns:
        for call in column.values():
            call.transfer, call.last_rank, call.t_is = call.end - call.start, 0, "matched"
    found = clocks(columns, INFOS, gloo=True)
    assert found.weighed is not None
    data = Inputs(
        run="run",
        columns=columns,
        calls={},
        groups={"0": Group("0", None, tuple(HOSTS), 4)},
        infos=INFOS,
        clocks=found.by_rank,
        exclusive={rank: {0: 1.0} for rank in HOSTS},
        occupancy={},
        steps={},
        gloo=True,
        weighed=found.weighed,
    )
    links = importlib.import_module("advisor.metrics.links.attribution")
    monkeypatch.setattr(links, "explain", lambda *_: None)
    monkeypatch.setattr(links, "weigh", lambda *_: pytest.fail("weighed a second time"))
    told = links._with_any_clocks(data, homes(data))
    assert told is not None
    assert told.places[0].homes == ("h1",)
