"""Compute that a wait for the device keeps from running beside communication."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.host.activity import KINDS, HostActivity
from advisor.metrics.host.stretches import held_compute, kept_alone
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline

US = 1_000
COMPUTE_STREAM, NCCL_STREAM = 7, 20
LAYERS = 6


def synchronised() -> tuple[Timeline, HostActivity, list[int]]:
    """Layers of 500 us, each before a reduction of 300 us for which nothing waits but the host:
    it stands in a synchronisation until that is done, and launches the next layer 20 us later."""
    rows, begun, done, waits = [], [], [], []
    now = 0
    for _ in range(LAYERS):
        rows.append((COMPUTE, now + 10 * US, now + 510 * US, COMPUTE_STREAM, now))
        waits.append(now + 4 * US)  # the reduction's stream
        rows.append((COMM, now + 510 * US, now + 810 * US, NCCL_STREAM, now + 5 * US))
        begun.append(now + 10 * US)
        done.append(now + 810 * US)
        now += 830 * US
    columns = (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True))
    kind, start, end, stream, launch = columns
    count = np.arange(len(rows), dtype=np.int64)
    line = Timeline(0, True, kind, start, end, stream, count, launch, count * 0)
    number = [name for name, _ in KINDS].index("synchronisation")
    zero = np.zeros(LAYERS, dtype=np.int64)
    names = np.array(["cudaDeviceSynchronize"] * LAYERS, dtype=object)
    activity = HostActivity(
        zero + number, zero, names, np.array(begun), np.array(done), zero, Intervals.empty()
    )
    return line, activity, waits


def held_ns(line: Timeline, activity: HostActivity, waits: Int64s) -> int:
    occupancy = Occupancy.of(line)
    held = held_compute(line, occupancy, activity, waits) & occupancy.exposed_comm
    return held.length


def test_a_layer_launched_late_could_have_run_beside_the_reduction() -> None:
    line, activity, waits = synchronised()
    all_but_the_last = (LAYERS - 1) * 300 * US
    assert held_ns(line, activity, np.array(waits)) == pytest.approx(all_but_the_last, rel=0.02)


def test_a_layer_that_was_told_to_wait_for_the_reduction_is_held_by_it() -> None:
    """GIVEN the computing stream told to wait before each layer, or no record of what streams wait
    for, THEN no earlier launch is known to bring the layers forward."""
    line, activity, waits = synchronised()
    told = sorted([*waits, *(wait + 4 * US for wait in waits)])
    assert held_ns(line, activity, np.array(told)) == 0
    assert held_ns(line, activity, np.empty(0, dtype=np.int64)) == 0


def test_a_host_that_waits_for_nothing_is_late_by_its_own_pace() -> None:
    line, activity, waits = synchronised()
    empty = HostActivity(*(column[:0] for column in activity[:6]), Intervals.empty())
    assert held_ns(line, empty, np.array(waits)) == 0


def test_compute_that_is_launched_early_and_starts_late_waits_for_something_else() -> None:
    """GIVEN layers launched 20 us after the last one ended, which start behind the reduction all
    the same, THEN those 20 us are the wait's doing: no launch delay is as long as a transfer."""
    line, activity, waits = synchronised()
    ends = line.end[::2]
    line.launch[2::2] = ends[:-1] + 20 * US
    activity = activity._replace(end=ends + 10 * US)
    assert 0 < held_ns(line, activity, np.array(waits)) <= (LAYERS - 1) * 20 * US


def test_who_waits_for_a_peer_waits_whatever_runs_beside_it() -> None:
    """GIVEN reductions that wait for a peer for 250 us and move data for 50, as all but one rank's
    do while that one saves a checkpoint, THEN compute could have hidden the 50."""
    line, activity, waits = synchronised()
    occupancy = Occupancy.of(line)
    held = held_compute(line, occupancy, activity, np.array(waits))
    ends = line.end[1::2]
    moved = Intervals.of(ends - 50 * US, ends)
    kept = kept_alone(occupancy.exposed_comm, held, moved)
    assert kept.length == pytest.approx((LAYERS - 1) * 50 * US, rel=0.02)
    assert kept_alone(occupancy.exposed_comm, held, None).length > 5 * kept.length
