"""Where a rank waits: gaps of its own that calls in flight explain."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.timeline.intervals import Intervals
from advisor.whatif.host_work import launches_between
from advisor.whatif.program import Owner, Wait, Work
from advisor.whatif.queries import CallRow
from advisor.whatif.walk import Timeline, walk

_MS = 1_000_000


@pytest.mark.parametrize(
    ("record_ends_ms", "waits"),
    [
        (89, True),  # the rank woke a little later
        (70, False),  # too long before: something else held it up
        (95, True),  # on busy cores the record's own thread ends it after the rank has gone on
        (125, False),  # it was in flight all the while, and nobody waited for it there
    ],
)
def test_a_gap_is_a_wait_for_the_call_that_ends_near_its_end(
    record_ends_ms: int, waits: bool
) -> None:
    call = CallRow(1, 40 * _MS, 40 * _MS, record_ends_ms * _MS, "0", "all_reduce", 8, True, None)
    busy = Intervals(np.array([0, 90 * _MS]), np.array([40 * _MS, 130 * _MS]))
    items = walk(Timeline(window=(0, 130 * _MS), busy=busy, calls=[call], on_host=True))
    first = next(i for i, item in enumerate(items) if isinstance(item, Wait))
    before = sum(item.ns for item in items[:first] if isinstance(item, Work))
    assert (before <= 45 * _MS) is waits


@pytest.mark.parametrize(("record_ends_ms", "waits"), [(89, True), (95, False)])
def test_a_device_never_goes_on_before_the_call_that_it_waits_for(
    record_ends_ms: int, waits: bool
) -> None:
    call = CallRow(1, 40 * _MS, 40 * _MS, record_ends_ms * _MS, "0", "all_reduce", 8, True, None)
    busy = Intervals(np.array([0, 90 * _MS]), np.array([40 * _MS, 130 * _MS]))
    items = walk(Timeline(window=(0, 130 * _MS), busy=busy, calls=[call]))
    first = next(i for i, item in enumerate(items) if isinstance(item, Wait))
    before = sum(item.ns for item in items[:first] if isinstance(item, Work))
    assert (before <= 45 * _MS) is waits


def test_an_optimizer_asked_for_early_does_not_hide_the_wait_for_the_gradients() -> None:
    """A host runs ahead: its optimizer begins while the last gradients are still on their way."""
    call = CallRow(1, 30 * _MS, 30 * _MS, 80 * _MS, "0", "all_reduce", 2**25, True, "backward")
    busy = Intervals(np.array([0, 80 * _MS]), np.array([40 * _MS, 90 * _MS]))
    line = Timeline(window=(0, 90 * _MS), busy=busy, calls=[call], optimizer=40 * _MS)
    work_ns = sum(item.ns for item in walk(line) if isinstance(item, Work))
    assert work_ns == 50 * _MS  # the gap of 40 ms is waiting


def test_a_device_s_gap_between_calls_is_the_host_s_work_for_the_second() -> None:
    """The second scalar goes with what its host took to ask for it, the third ran without a gap."""
    scalars = [
        CallRow(number, start, start, start + 25_000, "0", "all_reduce", 4, False, "other")
        for number, start in ((1, 1 * _MS), (2, 1 * _MS + 80_000), (3, 1 * _MS + 106_000))
    ]
    busy = Intervals(np.array([0, 3 * _MS]), np.array([1 * _MS, 4 * _MS]))
    spans = launches_between(busy, scalars)
    assert spans == [(1 * _MS, 1 * _MS + 80_000, Owner(2, "call"))]
    computed = Intervals.of([0, 1 * _MS + 40_000], [1 * _MS, 1 * _MS + 50_000])
    assert launches_between(computed, scalars) == []
