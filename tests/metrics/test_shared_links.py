"""What overlaps shares a link only where both go over it, the same way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.links.cost import _comes_and_goes, _reached, of_host
from advisor.metrics.models.fits import exclusive_transfers

HOSTS = ("a", "a", "b", "b")
INFOS = {rank: RankInfo(rank, host, rank % 2, 4, True, {}) for rank, host in enumerate(HOSTS)}
GROUPS = {
    name: Group(name, None, ranks, len(ranks))
    for name, ranks in {"all": (0, 1, 2, 3), "inside": (0, 1)}.items()
}


@pytest.mark.parametrize(
    ("one", "other", "alone"),
    [
        pytest.param(("send", 2), ("send", 3), 75, id="both go out by the NIC"),
        pytest.param(("send", 2), ("recv", 2), 100, id="out and in"),
        pytest.param(("recv", 2), ("all_reduce", "all"), 75, id="a ring goes both ways"),
        pytest.param(("send", 2), ("send", 1), 100, id="a NIC and NVLink"),
        pytest.param(("all_reduce", "inside"), ("all_reduce", "all"), 100, id="groups apart"),
    ],
)
def test_half_of_the_time_shared(
    one: tuple[str, str | int], other: tuple[str, str | int], alone: int
) -> None:
    """Two transfers of 100 ns, of which the second begins at half of the first."""
    calls = [
        Call(0, op, start, start + 100, number,
             **({"peer": of} if op in ("send", "recv") else {"group": of}))
        for number, ((op, of), start) in enumerate(((one, 0), (other, 50)))
    ]  # fmt: skip
    found = exclusive_transfers({0: calls}, GROUPS, INFOS)[0]
    assert found == {0: alone, 1: alone}


def test_of_three_that_overlap_only_two_share_a_way() -> None:
    """GIVEN a ring between hosts beside a send and a receive THEN each way has two, not three."""
    calls = [
        Call(0, "all_reduce", 0, 100, 0, group="all"),
        Call(0, "send", 0, 100, 1, peer=2),
        Call(0, "recv", 0, 100, 2, peer=2),
    ]
    assert set(exclusive_transfers({0: calls}, GROUPS, INFOS)[0].values()) == {50.0}


@pytest.mark.parametrize(("called_in", "comes_and_goes"), [((1, 2), False), ((2,), True)])
def test_a_place_whose_calls_some_used_steps_lack(
    called_in: tuple[int, ...], comes_and_goes: bool
) -> None:
    """GIVEN steps 0, which is not used, 1 and 2."""
    steps = [SimpleNamespace(number=number, used=number > 0) for number in range(3)]
    calls = [Call(0, "all_reduce", 0, 100, n, group="all", step=n) for n in called_in]
    data: Any = SimpleNamespace(steps={0: SimpleNamespace(steps=steps)}, calls={0: calls})
    assert _comes_and_goes(data, {(0, number): 1.0 for number in called_in}) is comes_and_goes


@pytest.mark.parametrize(
    ("hosts", "other", "reached"),
    [
        pytest.param("aabbcc", (2, 3, 4, 5), True, id="other hosts' calls move it"),
        pytest.param("aabbcc", (0, 1), False, id="only calls inside a host do"),
        pytest.param("aabbcc", (0, 1, 2, 3), True, id="another group's over the place"),
        pytest.param("", (2, 3, 4, 5), False, id="no host is known"),
    ],
)
def test_what_a_link_would_carry_some_calls_must_move(
    hosts: str, other: tuple[int, ...], reached: bool
) -> None:
    """GIVEN ranks 0 and 1, over whose network the world moves 1.67 GB/s, WHEN another group
    moves 2 GB/s or more THEN that may be expected where its calls lie between hosts."""
    groups = {"all": tuple(range(6)), "other": other}
    columns = [
        {
            rank: Call(rank, "all_reduce", 0, time, number, group=name, group_size=len(ranks),
                       bytes=100_000_000)
            for rank in ranks
        }
        for number, (name, ranks, time) in enumerate(
            [("all", groups["all"], 100_000_000), ("other", other, 50_000_000)]
        )
    ]  # fmt: skip
    data: Any = SimpleNamespace(
        columns=columns,
        groups={name: Group(name, None, ranks, len(ranks)) for name, ranks in groups.items()},
        infos={rank: RankInfo(rank, host, 0, 6, True, {}) for rank, host in enumerate(hosts)},
        exclusive={
            rank: {n: float(own[rank].end) for n, own in enumerate(columns) if rank in own}
            for rank in range(6)
        },
    )
    assert _reached(data, of_host([0, 1]), 2.0) is reached
    assert not _reached(data, of_host([0, 1]), 4.1)
