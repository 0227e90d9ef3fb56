"""Whom nobody waited for though it was not read, by calls that their bytes explain."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import REACHED, Call
from advisor.metrics.collectives.groups import Group
from advisor.metrics.lateness.absent import settle_absent
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals

MS = 1_000_000
SIZES = (40, 30, 60)  # MB: three buckets a step, of which the first follows all compute
GROUPS = {"0": Group("0", None, (0, 1, 2, 3), 4)}


def told(
    late: tuple[float, float, float],
    read: int = 3,
    computes: tuple[int, int, int] = (100, 0, 0),
) -> list[bool]:
    """Of each call of three steps whether nobody waited in it for who was not read.

    The links move 4 MB a ms; an unread rank is ``late`` to each of a step's calls, ms.
    """
    columns, busy, now = [], [], 0.0
    for number in range(9):
        before = computes[number % 3]
        busy.append((now, now + before))
        end = now + before + SIZES[number % 3] / 4 + late[number % 3]
        columns.append({
            rank: Call(rank, "all_reduce", round((now + before) * MS), round(end * MS), number,
                       group="0", group_size=4, bytes=SIZES[number % 3] * 10**6,
                       t_is="upper bound")
            for rank in range(read)
        })  # fmt: skip
        now = end
    computed = Intervals.of([round(s * MS) for s, _ in busy], [round(e * MS) for _, e in busy])
    occupancy = Occupancy(*[computed] * 6)
    settle_absent(columns, GROUPS, dict.fromkeys(range(read), occupancy))
    return [all(call.t_is == REACHED for call in column.values()) for column in columns]


def test_calls_that_take_what_their_bytes_explain_wait_for_nobody() -> None:
    assert all(told((0, 0, 0)))


@pytest.mark.parametrize(
    "late",
    [
        (20, 0, 0),  # it comes late to the first call of each step, as where its loader stalls
        (50, 7, 14),  # it computes longer: all of its forward pass, then what each bucket holds
    ],
)
def test_a_rank_that_was_not_read_may_be_late(late: tuple[float, float, float]) -> None:
    assert not any(told(late))


def test_calls_with_like_compute_before_each_tell_nothing() -> None:
    assert not any(told((10, 7.5, 15), computes=(40, 30, 60)))


def test_of_the_fewer_ranks_nothing_is_told() -> None:
    assert not any(told((0, 0, 0), read=2))
