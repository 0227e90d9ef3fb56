"""HSDP's exposed communication against a simulation of its events, worked out independently."""

from __future__ import annotations

import random

import pytest

from advisor.model.plan_communication import hybrid_exposed_s, sharded_exposed_s


def simulated_exposed_s(
    units: int, steps: int, gather: float, scatter: float, reduce: float, compute: float
) -> float:
    """One rank: compute, the links inside a node and those between nodes, each one thing a time.

    A unit computes when it is gathered; the next gather is issued when its compute begins; a
    unit's gradients are scattered after its backward, and in the last micro-batch then reduced.
    """
    third = compute / steps / 3 / units
    now = inside = outside = 0.0
    for micro_batch in range(steps):
        for is_backward in (False, True):
            gathered = inside = max(inside, now) + gather
            for unit in range(units):
                now = max(now, gathered)
                if unit + 1 < units:
                    gathered = inside = max(inside, now) + gather
                now += 2 * third if is_backward else third
                if is_backward:
                    inside = max(inside, now) + scatter
                    if micro_batch == steps - 1:
                        outside = max(outside, inside) + reduce / units
    return max(now, inside, outside) - compute


def cases(count: int) -> list[tuple[int, int, float, float, float, float]]:
    rng = random.Random(5)
    made = []
    for _ in range(count):
        units, steps = rng.choice([12, 24, 48, 80]), rng.choice([1, 2, 4, 8])
        gather = 10 ** rng.uniform(-2, 0.7) / units
        made.append(
            (units, steps, gather, gather * rng.choice([1, 2]), 10 ** rng.uniform(-2, 1.2),
             3.0 * steps)
        )  # fmt: skip
    return made


def test_the_step_is_within_an_eighth_of_the_simulated_one_and_never_longer() -> None:
    for case in cases(1500):
        compute = case[-1]
        wanted = compute + simulated_exposed_s(*case)
        found = compute + hybrid_exposed_s(*case)
        assert 0.875 * wanted <= found <= 1.001 * wanted, case


def test_the_backward_pass_hides_a_reduction_beside_the_gathers_not_after_them() -> None:
    # GIVEN gathers and scatters of 1.5 times the compute, and a reduction as long as the compute
    units, compute = 24, 3.0
    piece = 1.5 * compute / units / 3
    found = hybrid_exposed_s(units, 1, piece, piece, compute, compute)
    wanted = simulated_exposed_s(units, 1, piece, piece, compute, compute)
    # THEN the reduction runs while the gathers do; one after the other would expose 2.5 s
    apart = sharded_exposed_s(units, 1, piece, piece, compute) + compute / 3
    assert (found, apart) == (pytest.approx(wanted, abs=0.15), 2.5)


def test_without_a_reduction_it_is_plain_sharding() -> None:
    for units, steps, gather, scatter, _, compute in cases(200):
        assert hybrid_exposed_s(units, steps, gather, scatter, 0.0, compute) == pytest.approx(
            sharded_exposed_s(units, steps, gather, scatter, compute)
        )
