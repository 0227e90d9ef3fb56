"""Whose work the host does: FSDP1's hooks, around the calls of one unit."""

from __future__ import annotations

from typing import cast

from advisor.whatif.host_work import host_work
from advisor.whatif.program import Owner
from advisor.whatif.queries import CallRow, Recorded, Window

HOOK = "FullyShardedDataParallel._post_backward_hook"


class Told:
    """The operators of a rank, as :class:`Recorded` gives them."""

    def __init__(self, *events: tuple[str, int, int]) -> None:
        self._events = events

    def events(self, window: Window, *names: str) -> list[tuple[str, int, int]]:
        return [event for event in self._events if event[0].startswith(names)]

    def nothing_begins(self, start: int, end: int) -> bool:
        return False


def owned(
    *events: tuple[str, int, int], calls: tuple[CallRow, ...]
) -> list[tuple[int, int, Owner]]:
    return host_work(cast(Recorded, Told(*events)), (0, 10_000_000), calls)[0]


def scatter(call: int, arrival: int) -> CallRow:
    return CallRow(
        call, arrival, arrival, arrival + 500_000, "0", "reduce_scatter", 600, True, None
    )


def test_a_hook_of_fsdp1_belongs_to_its_unit_but_for_copies() -> None:
    found = owned(
        (HOOK, 0, 1_000_000),
        ("aten::div_", 100_000, 200_000),
        ("c10d::_reduce_scatter_base_", 300_000, 400_000),
        calls=(scatter(7, 350_000),),
    )
    assert found == [
        (0, 100_000, Owner(7, "unit")),
        (100_000, 200_000, Owner(7, "bytes")),
        (200_000, 300_000, Owner(7, "unit")),
        (300_000, 400_000, Owner(7, "call")),
        (400_000, 1_000_000, Owner(7, "unit")),
    ]


def test_a_hook_in_which_two_units_are_asked_for_is_nobodys() -> None:
    two = (scatter(7, 350_000), scatter(8, 600_000))
    found = owned(
        (HOOK, 0, 1_000_000),
        ("c10d::_reduce_scatter_base_", 300_000, 400_000),
        ("c10d::_reduce_scatter_base_", 550_000, 650_000),
        calls=two,
    )
    assert {owner.share for _, _, owner in found} == {"call"}
