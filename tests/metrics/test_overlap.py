"""What compute loses beside transfers, told from kernels that were seen both ways."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.host.overlap import overlap_row
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline
from advisor.store.events import Events

US = 1_000
WORK_NS = 100 * US
SLOWDOWN = 1.6


class _Named:
    """Events whose kernels have these numbers for names."""

    run = "run"

    def __init__(self, names: list[int]) -> None:
        self.names = np.array(names)

    def read(self, *_: Any) -> dict[str, Any]:
        numbers = np.arange(len(self.names))
        return {"event_id": numbers, "number": self.names, "has_shape": numbers % 2}


def recorded(beside_us: list[float], waits_us: int = 0, twice: int = 1) -> dict[str, Any]:
    """Kernels of 100 us alone, one after another, of which the first so many us (as the clock has
    it) lie beside a transfer of a call that has waited 100 us beside the kernel before."""
    rows, calls, names = [], [], []
    now = 0
    for number, beside in enumerate(beside_us):
        moves = round(beside * US)
        takes = WORK_NS + round(moves * (1 - 1 / SLOWDOWN))
        rows.append((COMPUTE, now, now + takes))
        names.append(number % twice)
        if moves:
            begin = now - waits_us * US
            rows.append((COMM, begin, now + moves))
            names.append(-1)
            call = Call(0, "all_reduce", begin, now + moves, event_id=len(rows) - 1)
            call.wait = waits_us * US
            calls.append(call)
        now += takes
    kind, start, end = (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True))
    zero = kind * 0
    line = Timeline(0, True, kind, start, end, zero, np.arange(len(rows)), start, zero)
    found = overlap_row(cast(Events, _Named(names)), line, Occupancy.of(line), calls, Steps(()))
    assert found is not None
    return found


def test_a_kernel_that_is_beside_a_transfer_in_part_is_slowed_for_as_long() -> None:
    beside = [0.0, 0, 0, 80, 160, 100, 30, 0]
    row = recorded(beside)
    assert row["slowdown"] == pytest.approx(SLOWDOWN, rel=0.01)
    lost = sum(beside) * US * (1 - 1 / SLOWDOWN)
    assert row["cost_ns_per_step"] == pytest.approx(lost, rel=0.02)


def test_what_runs_beside_a_call_that_waits_is_not_slowed() -> None:
    """Half of these kernels lie beside calls that only wait: they are neither alone nor under."""
    row = recorded([0, 160.0] * 4 + [0.0] * 4, waits_us=100)
    assert row["calls_under"] == 4
    assert row["with_shapes"] in range(5)
    assert row["slowdown"] == pytest.approx(SLOWDOWN, rel=0.01)


def test_kinds_never_seen_alone_lose_as_much_of_their_time_beside_transfers() -> None:
    """Of the second kind each call is beside a transfer: it counts, but not for sure."""
    row = recorded([0.0, 160, 0, 160, 0, 160, 160, 160, 160, 160, 160, 160], twice=2)
    assert row["kernels"] == 1
    assert row["cost_ns_per_step"] > 1.5 * row["compared_ns_per_step"]
