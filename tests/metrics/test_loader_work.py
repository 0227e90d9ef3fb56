"""What a data loader runs on the training's thread is loading, not the step's compute."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.timeline.timeline import _LOADER, _OPERATOR, _working


@pytest.mark.parametrize(("loader_thread", "chosen"), [(1, [1, 3]), (2, [1, 2, 3])])
def test_operators_inside_a_loaders_span_are_no_compute(
    loader_thread: int, chosen: list[int]
) -> None:
    """GIVEN a loader's span of 10 to 50, and operators at 0, 20 and 60 of the training's thread."""
    rows = [
        (loader_thread, 10, 50, _LOADER),
        (1, 0, 8, _OPERATOR),
        (1, 20, 40, _OPERATOR),
        (1, 60, 70, _OPERATOR),
    ]
    order = sorted(range(len(rows)), key=lambda n: (rows[n][0], rows[n][1], -rows[n][2]))
    columns = [np.array([rows[n][place] for n in order], dtype=np.int64) for place in range(4)]
    found = _working(*columns)
    assert sorted(order[place] for place in np.flatnonzero(found)) == chosen
