"""What links cannot carry, whatever a job's machine: then nothing need be slow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.config.hardware import find_device, machine
from advisor.metrics.links.by_duration import SLOWDOWNS, _of_kind
from advisor.metrics.links.durations import Durations, Kind
from advisor.metrics.links.expected import (
    EFFICIENCY,
    Assumption,
    _Between,
    _Job,
    _Possible,
    nothing_known,
)
from advisor.metrics.links.locations import Members

MB = 10**6
HOSTS = {rank: ("host", rank // 2) for rank in range(6)}
GROUP = Members(tuple(range(6)))
KIND = Kind("all_reduce", 131 * MB, 6, 3)
"""Six ranks on three hosts of two: 218 MB cross each edge of the ring."""


def job() -> _Job:
    made = object.__new__(_Job)
    made.home, made.slots = HOSTS, [0, 1]  # type: ignore[assignment]
    return made


def took(gbps: float) -> Durations:
    log_ns = np.array([math.log(KIND.bytes * 5 / 3 / gbps)])
    one, none = np.array([0.01]), np.array([0.0])
    return Durations(
        KIND, (GROUP,), log_ns, one, none, one, np.array([1.0]), np.exp(log_ns), 1e9, 72
    )


@pytest.mark.parametrize(
    ("name", "gbps"), [("NVIDIA H100 80GB HBM3", 2 * 63.0), ("Tesla V100-SXM2-32GB", 2 * 15.75)]
)
def test_two_ranks_of_a_host_send_no_more_than_their_pcie(name: str, gbps: float) -> None:
    device = find_device(name)
    assert device is not None
    least = _Possible(device, job())(KIND, GROUP)
    assert least == pytest.approx(math.log(KIND.bytes * 5 / 3 / gbps))


def test_inside_a_host_links_carry_what_they_are_rated_for() -> None:
    device = find_device("NVIDIA H100 80GB HBM3")
    assert device is not None
    least = _Possible(device, job())(Kind("all_reduce", 100 * MB, 2, 1), Members((0, 1)))
    assert least == pytest.approx(math.log(100 * MB / 450))


def test_an_all_to_all_leaves_a_host_by_each_gpus_own_nic() -> None:
    """Of eight ranks on two hosts each sends half of its bytes over one 400 Gb/s port; a ring
    would leave by the four ports of its host."""
    made = job()
    made.home = {rank: ("host", rank // 4) for rank in range(8)}  # type: ignore[assignment]
    made.slots = [0, 1, 2, 3]
    expected = _Between(machine("dgx-h100"), made)
    group = Members(tuple(range(8)))
    found = {}
    for op in ("all_to_all", "all_gather"):
        took = expected(Kind(op, 800 * MB, 8, 2), group)
        assert took is not None
        found[op] = math.exp(took[0])
    port = 50 * EFFICIENCY[False][0]
    assert found["all_to_all"] == pytest.approx(400 * MB / port, rel=0.02)
    assert found["all_gather"] == pytest.approx(700 * MB / (4 * port), rel=0.02)


def likelihoods(gbps: float, *, crossed: bool) -> np.ndarray:
    """By slowdown, of a slow edge (or NVLink that rings cross), against nothing slow."""
    device = find_device("NVIDIA H100 80GB HBM3")
    assert device is not None
    over, other = np.array([[True]]), np.array([[False]])
    assumption = Assumption(1.0, nothing_known, least=_Possible(device, job()))
    slow, nothing = _of_kind(
        took(gbps),
        *((other, over) if crossed else (over, other)),
        other,
        np.array([False]),
        assumption,
    )
    return slow[0] - nothing


@pytest.mark.parametrize("crossed", [False, True])
def test_what_would_have_to_be_faster_than_pcie_is_not_slow(crossed: bool) -> None:
    """91 GB/s of at most 126: an edge seven times as slow would carry 667 when mended."""
    found = likelihoods(91, crossed=crossed)
    assert found[SLOWDOWNS > 2.2].max() < -10
    assert found[SLOWDOWNS < 1.35].min() > -1


@pytest.mark.parametrize("crossed", [False, True])
def test_what_could_be_faster_may_be_slow(crossed: bool) -> None:
    found = likelihoods(20, crossed=crossed)
    assert found[SLOWDOWNS < 6].min() > -1


def test_calls_that_beat_pcie_show_that_it_is_no_bound_of_theirs() -> None:
    """Reduced in a switch, a call sends half as much: what it takes is no proof of anything."""
    assert likelihoods(240, crossed=False)[SLOWDOWNS < 1.1].min() > -1
