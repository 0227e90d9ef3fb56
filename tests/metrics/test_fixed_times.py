"""Calls between hosts that take as long whatever their size, and those that do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.metrics.links.durations import Durations, Kind
from advisor.metrics.links.expected import USUAL_TIMES, Assumption
from advisor.metrics.links.fixed_times import MANY_TIMES, fixed_time
from advisor.metrics.links.locations import Members
from benchmarks.calibration import small_times

MB, MS = 1_000_000, 1e6
RING = (Members((0, 1)),)
HOP_NS = 30_000.0


def took(size: int, ns: float, hosts: int = 2) -> Durations:
    kind = Kind("all_reduce", size, 2, hosts)
    one = np.array([1.0])
    return Durations(
        kind,
        RING,
        np.array([math.log(ns)]),
        0.01 * one,
        0.02 * one,
        one,
        one,
        ns * one,
        40 * ns,
        40,
    )


BETWEEN = (Assumption(1.0, lambda kind, members: (math.log(HOP_NS + kind.bytes / 40), 0.15)),)


def line(begins_ns: float, *sizes: int) -> list[Durations]:
    return [took(size, begins_ns + size / 20) for size in sizes]


def test_what_does_not_grow_with_the_size_is_a_share_of_the_time() -> None:
    """GIVEN 6 ms before the first byte, and 1 to 4 ms for the bytes."""
    found = fixed_time(line(6 * MS, 20 * MB, 40 * MB, 80 * MB), BETWEEN)
    assert found is not None
    low, middle, high = found.share
    assert middle == pytest.approx((6 * MS - 5 * HOP_NS) / (6 * MS + 140 / 3 * MB / 20), rel=0.02)
    assert 0.5 * middle < low < middle < high < 1
    assert found.added_ns == pytest.approx((6 * MS - 5 * HOP_NS) / 2, rel=0.02)  # two passes
    assert found.calls == 120


def test_less_than_half_of_the_time_shows_the_latency_too() -> None:
    """GIVEN 6 ms before the first byte, and 5 to 20 ms for the bytes, which come late as well."""
    found = fixed_time(line(6 * MS, 100 * MB, 200 * MB, 400 * MB), BETWEEN)
    assert found is not None
    assert 0.1 < found.share[0] < found.share[1] < 0.5


def test_larger_calls_that_take_no_longer_are_latency_as_a_whole() -> None:
    found = fixed_time([took(20 * MB, 10 * MS), took(80 * MB, 9 * MS)], BETWEEN)
    assert found is not None
    assert 0.75 < found.share[0] <= found.share[1] <= found.share[2] < 1


@pytest.mark.parametrize(
    "timed",
    [
        line(0.1 * MS, 20 * MB, 40 * MB, 80 * MB),  # three times what NCCL's hops take
        line(0.25 * MS, 1 * MB, 2 * MB, 4 * MB),  # eight times, of large calls' start a half
        line(0.4 * MS, 100 * MB, 200 * MB, 400 * MB),  # thirteen times, and little of large calls
        line(6 * MS, 40 * MB, 60 * MB),  # sizes too alike to show a rate
        line(6 * MS, 40 * MB),
        [took(20 * MB, 6 * MS, hosts=1), took(80 * MB, 7 * MS, hosts=1)],
        [],
    ],
)
def test_hops_that_are_usual_and_sizes_that_tell_nothing(timed: list[Durations]) -> None:
    assert fixed_time(timed, BETWEEN) is None


def test_without_a_machine_there_is_nothing_to_compare_with() -> None:
    unknown = (Assumption(1.0, lambda kind, members: None),)
    assert fixed_time(line(6 * MS, 20 * MB, 80 * MB), unknown) is None


@pytest.mark.slow
def test_usual_is_the_middle_of_nccl_tests_tables_and_many_beyond_them() -> None:
    times = small_times()
    assert np.median(times) == pytest.approx(USUAL_TIMES, rel=0.05)
    assert max(times) < MANY_TIMES
