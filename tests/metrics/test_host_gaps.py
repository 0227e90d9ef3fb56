"""A device's idle stretches, and what lies between two recordings of one job."""

from __future__ import annotations

import numpy as np

from advisor.metrics.host.gaps import _recorded_until
from advisor.metrics.steps.annotated import Step, Steps

MS = 1_000_000


def test_what_was_not_recorded_between_two_steps_is_no_gap_of_either() -> None:
    windows = ((1, 0, 100), (2, 100, 200), (9, 900, 1000))
    steps = Steps(tuple(Step(n, a * MS, b * MS, None, None, True, "x") for n, a, b in windows))
    assert _recorded_until(steps) == {2: 200 * MS}
    assert steps.by_window(np.array([199 * MS])).tolist() == [2]
