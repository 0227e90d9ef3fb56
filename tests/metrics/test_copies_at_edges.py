"""Copies before a program's first kernel are its start, whatever else its device notes."""

from __future__ import annotations

import numpy as np

from advisor.metrics.host.copies import _at_edge
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.steps.whole import WHOLE_TRACE
from advisor.metrics.timeline.timeline import COMPUTE, KINDS, MEMORY, Timeline

MS = 1_000_000


def test_a_wait_between_copies_is_no_kernel() -> None:
    """Seen in an Nsight export: the host waits after each of 318 copies of weights, and only the
    first of them lay before such a wait."""
    kinds = np.array([MEMORY, KINDS.index("sync"), MEMORY, COMPUTE, MEMORY, COMPUTE])
    start = np.arange(len(kinds)) * 10 * MS
    none = np.zeros_like(start)
    line = Timeline(0, True, kinds, start, start + MS, none, none, start, none)
    step = Steps((Step(0, 0, 100 * MS, None, None, True, WHOLE_TRACE),))
    copies = kinds == MEMORY
    found = _at_edge(line, line.start[copies], line.end[copies], step)
    assert found.tolist() == [True, True, False]
