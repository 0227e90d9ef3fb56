"""What a call takes with the network for itself, told from calls that shared it."""

from __future__ import annotations

import pytest

from advisor.whatif.queries import CallRow
from advisor.whatif.service import service_times, transfers

MS = 1_000_000


def row(call: int, op: str, start_ms: float, end_ms: float) -> CallRow:
    """One rank's call of 1 MB in one group."""
    start, end = round(start_ms * MS), round(end_ms * MS)
    return CallRow(call, start, start, end, "g", op, 1_000_000, False, None)


def services(*own: CallRow) -> dict[int, float]:
    """The calls of two ranks that are alike, each with its time alone in ms."""
    rows = {rank: list(own) for rank in (0, 1)}
    times, _ = service_times(rows, transfers(rows, {0: 0, 1: 0}))
    return {call: time / MS for call, time in times.items()}


def test_calls_that_share_the_network_take_what_their_kind_takes_alone() -> None:
    """A gather that took 60 ms and a reduction of 90, alone, took 150 together: as in the lab,
    where the gather came through earlier than its share and the reduction seemed to need 110."""
    found = services(
        row(0, "all_gather", 0, 60),
        row(1, "all_gather", 100, 172),
        row(2, "reduce_scatter", 132, 250),
        row(3, "reduce_scatter", 300, 390),
    )
    assert found == pytest.approx({0: 60, 1: 60, 2: 90, 3: 90})


def test_the_time_of_calls_together_is_kept() -> None:
    """Together they took 180 ms where alone it is 150: each counts for a fifth more."""
    found = services(
        row(0, "all_gather", 0, 60),
        row(1, "all_gather", 100, 200),
        row(2, "reduce_scatter", 132, 280),
        row(3, "reduce_scatter", 300, 390),
    )
    assert found[1] + found[2] == pytest.approx(180)
    assert found[1] / found[2] == pytest.approx(60 / 90)


def test_nvlink_and_nics_are_not_shared() -> None:
    """GIVEN a reduction between hosts that lasts for the whole of two calls inside one THEN all
    three took what they took: NICs carry a small part of what NVLink does."""
    rows = {
        rank: [
            row(0, "all_gather", 0, 30)._replace(group="inside"),
            row(1, "all_reduce", 0, 100),
            row(2, "all_gather", 40, 70)._replace(group="inside"),
        ]
        for rank in (0, 1)
    }
    times, _ = service_times(rows, transfers(rows, {0: 0, 1: 0}), {"inside"})
    assert {call: time / MS for call, time in times.items()} == {0: 30, 1: 100, 2: 30}


def test_where_none_of_a_kind_ran_alone_the_bytes_share_the_time() -> None:
    found = services(
        row(0, "all_gather", 0, 60),
        row(1, "all_gather", 100, 172),
        row(2, "reduce_scatter", 132, 250),
    )
    assert found == pytest.approx({0: 60, 1: 52, 2: 98})


def test_what_ran_beside_other_operations_has_what_its_like_took_alone() -> None:
    own = [
        row(0, "all_gather", 0, 60),
        row(1, "all_gather", 100, 200),
        row(2, "reduce_scatter", 132, 280),
        row(3, "reduce_scatter", 300, 390),
    ]
    rows = dict.fromkeys((0, 1), own)
    _, apart = service_times(rows, transfers(rows, {0: 0, 1: 0}))
    assert {call: time / MS for call, time in apart.items()} == pytest.approx({1: 60, 2: 90})
