"""On a device FSDP2's copies go with the calls that they are for."""

from __future__ import annotations

from typing import Any, cast

from advisor.metrics.timeline.intervals import Intervals
from advisor.whatif.host_work import device_work
from advisor.whatif.queries import COPY_IN, COPY_OUT


class Recorded:
    """Two units: parameters 1 and 2 are gathered and copied out, gradients 4 and 3 scattered."""

    def __init__(self, out: int = 2) -> None:
        self.asked_for = {"all_gather": [(10, 1), (12, 2)], "reduce_scatter": [(40, 4), (60, 3)]}
        copied_out = [(14, 100, 120), (20, 200, 220)]
        self.copies = {COPY_OUT: copied_out[:out], COPY_IN: [(38, 300, 330), (58, 400, 430)]}

    def asked(self, step: int, op: str) -> list[tuple[int, int]]:
        return self.asked_for[op]

    def copied(self, window: tuple[int, int], operator: str) -> list[tuple[int, int, int]]:
        return self.copies[operator]


def owners(recorded: Recorded) -> list[tuple[int, int, int]]:
    spans = device_work(cast(Any, recorded), 0, (0, 1000), Intervals.empty(), [])
    assert {owner.share for _, _, owner in spans} == {"bytes"}
    return [(start, end, owner.call) for start, end, owner in spans]


def test_copies_are_owned_by_their_calls() -> None:
    of_gradients = [(300, 330, 4), (400, 430, 3)]
    assert owners(Recorded()) == [(100, 120, 1), (200, 220, 2), *of_gradients]


def test_where_copies_and_gathers_do_not_pair_none_is_guessed() -> None:
    assert owners(Recorded(out=1)) == [(300, 330, 4), (400, 430, 3)]
