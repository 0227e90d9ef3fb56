"""Where a rank waits: gaps of its own that calls in flight explain."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.whatif.program import Wait, Work
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
    busy = np.array([0, 90 * _MS]), np.array([40 * _MS, 130 * _MS])
    items = walk(Timeline(window=(0, 130 * _MS), busy=busy, calls=[call]))
    first = next(i for i, item in enumerate(items) if isinstance(item, Wait))
    before = sum(item.ns for item in items[:first] if isinstance(item, Work))
    assert (before <= 45 * _MS) is waits
