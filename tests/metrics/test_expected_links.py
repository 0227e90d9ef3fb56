"""What links are assumed inside a host, by the name of its devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.links.expected import assumed_links

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
