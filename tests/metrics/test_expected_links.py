"""What links are assumed inside a host, by the name of its devices."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.links.durations import Kind
from advisor.metrics.links.expected import assumed_links
from advisor.metrics.links.locations import Members

HOME = {0: "node", 1: "node"}
INFOS = {rank: RankInfo(rank, "node", 0, 2, True, {}) for rank in HOME}


@pytest.mark.parametrize(
    ("device", "promised"),
    [
        ("NVIDIA A100-SXM4-80GB", True),  # on a board that has the links
        ("NVIDIA H20-3e", True),
        ("NVIDIA A100-PCIE-40GB", False),  # a bridge, which few of these cards have
        ("NVIDIA H100 NVL", False),
    ],
)
def test_only_links_of_the_board_are_promised(device: str, *, promised: bool) -> None:
    data: Any = SimpleNamespace(devices=dict.fromkeys(HOME, device), gloo=False, infos=INFOS)
    inside = assumed_links(data, HOME)[True]
    assert (len(inside) > 1) is promised
    assert sum(one.chance for one in inside) == pytest.approx(1)


def test_calls_whose_size_latency_governs_accuse_no_nvlink() -> None:
    """1 MB takes two A100s 4.7 us at NVLink's rate, and 15 us of NCCL's own latency, a quarter of
    what small calls take: 35 us are nothing to look at."""
    data: Any = SimpleNamespace(
        devices=dict.fromkeys(HOME, "NVIDIA A100-SXM4-80GB"), gloo=False, infos=INFOS
    )
    takes, pair = assumed_links(data, HOME)[True][0].takes, Members((0, 1))
    small, large = (takes(Kind("all_reduce", size, 2, 1), pair) for size in (1 << 20, 1 << 28))
    assert small is not None
    assert large is not None
    assert (math.log(35e3) - small[0]) / small[1] < 2
    assert large[1] < 0.3  # of large ones the data sheet tells as much as ever
    assert (math.log(5 * math.exp(large[0])) - large[0]) / large[1] > 5
