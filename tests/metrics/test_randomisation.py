"""Fisher's randomisation test of pairs, and what calls of one step tell twice."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.links.evidence import observe
from advisor.metrics.timeline.statistics import sign_flip_tail


@pytest.mark.parametrize("values", [[3.0, 5.0, -1.0, 2.0], [1.0], [0.0, 0.0], [-4.0, 1.0], []])
def test_few_values_are_counted(values: list[float]) -> None:
    sums = [
        sum(s * abs(v) for s, v in zip(signs, values, strict=True))
        for signs in product((1, -1), repeat=len(values))
    ]
    total = sum(values)
    expected = 1.0 if total <= 0 else float(np.mean([s >= total - 1e-9 for s in sums]))
    assert sign_flip_tail(values) == pytest.approx(expected)


def test_many_values_agree_with_draws() -> None:
    generator = np.random.default_rng(5)
    values = generator.normal(0.6, 1.0, 40)
    signs = generator.choice([-1.0, 1.0], (40_000, 40))
    drawn = float((signs @ np.abs(values) >= values.sum()).mean())
    assert sign_flip_tail(values) == pytest.approx(drawn, abs=0.01)


@pytest.mark.parametrize(("persists", "worth"), [(True, (5, 20)), (False, (60, 120))])
def test_who_is_late_all_through_a_step_tells_once(persists: bool, worth: tuple[int, int]) -> None:
    """Ten steps of twelve gathers; of two ranks one ends 10 ms later."""
    generator = np.random.default_rng(3)
    columns = []
    for step in range(10):
        of_step = int(generator.integers(2))
        for number in range(12):
            late = of_step if persists else int(generator.integers(2))
            begin = (step * 100 + number) * 100_000_000
            columns.append({
                rank: Call(rank, "all_gather", begin,
                           begin + (50 if rank == late else 40) * 1_000_000,
                           event_id=0, group="0", group_size=2, step=step, bytes=4_000_000,
                           last_rank=late, transfer=40_000_000)
                for rank in (0, 1)
            })  # fmt: skip
    ring = observe("0", (0, 1), columns, {}, {0: "a", 1: "b"})
    assert ring is not None
    low, high = worth
    assert low <= ring.independent <= high
