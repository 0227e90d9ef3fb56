"""How often chance gives what is seen: Fisher's test of pairs, and the floor of waits."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from advisor.statistics import floor_tail, sign_flip_tail


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


@pytest.mark.parametrize("ratio", [0.1, 0.4])
def test_waits_without_memory_seldom_have_a_floor(ratio: float) -> None:
    waits = np.random.default_rng(7).exponential(3.0, (40_000, 6))
    drawn = float((waits.min(axis=1) >= ratio * waits.mean(axis=1)).mean())
    assert floor_tail([ratio, *[(6 - ratio) / 5] * 5]) == pytest.approx(drawn, abs=0.01)


def test_no_floor_is_chance() -> None:
    assert floor_tail([]) == floor_tail([0.0, 5.0]) == floor_tail([-1.0, 5.0]) == 1.0
    assert floor_tail([41.0, 40.0, 42.0, 48.0, 48.0, 47.0]) < 1e-4
