"""Fisher's randomisation test of pairs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

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
