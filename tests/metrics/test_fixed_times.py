"""Calls between hosts that take as long whatever their size, and those that do not."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from advisor.config.hardware import machine
from advisor.metrics.links.durations import Durations, Kind
from advisor.metrics.links.expected import USUAL_TIMES, Assumption, latency_us
from advisor.metrics.links.fixed_times import fixed_time
from advisor.metrics.links.locations import Members
from advisor.model.nccl.cost import predict
from advisor.model.topology_machine import topology_of
from benchmarks.calibration import MACHINES, rows_of, small_times

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


def line(begins_ns: float, *sizes: float) -> list[Durations]:
    return [took(round(size), begins_ns + size / 20) for size in sizes]


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
        line(6 * MS, 40 * MB, 40.1 * MB, 39.9 * MB, 60 * MB, 60.1 * MB, 59.9 * MB),  # and as alike
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
def test_usual_is_the_middle_of_nccl_tests_tables() -> None:
    assert np.median(small_times()) == pytest.approx(USUAL_TIMES, rel=0.05)


@pytest.mark.slow
def test_no_published_table_of_sound_hosts_has_a_fixed_time_beyond_usual() -> None:
    """GIVEN neighbouring sizes of nccl-tests' tables over two hosts, whose rates grow with size."""
    for name, (hardware, nodes, nccl) in MACHINES.items():
        table = [row for row in rows_of(name) if row.prediction.bytes >= MB]
        few = predict(topology_of(machine(hardware), nodes), "all_reduce", 8, nccl)
        usual = math.log(1e3 * latency_us(few))
        between = (Assumption(1.0, lambda kind, members, usual=usual: (usual, 0.15)),)
        for first, count in product(range(len(table)), range(2, 9)):
            some = table[first : first + count] if nodes > 1 else []
            timed = [took(row.prediction.bytes, 1e3 * row.time_us) for row in some]
            assert fixed_time(timed, between) is None
