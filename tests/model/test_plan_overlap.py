"""HSDP's exposed communication against a simulation of its events, worked out independently."""

from __future__ import annotations

import random

import pytest

from advisor.model.plan_communication import hybrid_exposed_s, sharded_exposed_s


def simulated_exposed_s(
    units: int,
    steps: int,
    gather: float,
    scatter: float,
    forward: float,
    backward: float,
    reduce: float,
) -> float:
    """One rank: compute, the links inside a node and those between nodes, each one thing a time.

    A unit computes when it is gathered; the next gather is issued when its compute begins; a
    unit's gradients are scattered after its backward, and in the last micro-batch then reduced.
    """
    now = inside = outside = 0.0
    for micro_batch in range(steps):
        for is_backward in (False, True):
            gathered = inside = max(inside, now) + gather
            for unit in range(units):
                now = max(now, gathered)
                if unit + 1 < units:
                    gathered = inside = max(inside, now) + gather
                now += (backward if is_backward else forward) / units
                if is_backward:
                    inside = max(inside, now) + scatter
                    if micro_batch == steps - 1:
                        outside = max(outside, inside) + reduce / units
    return max(now, inside, outside) - steps * (forward + backward)


def cases(count: int) -> list[tuple[int, int, float, float, float, float, float]]:
    rng = random.Random(5)
    made = []
    for _ in range(count):
        units, steps = rng.choice([12, 24, 48, 80]), rng.choice([1, 2, 4, 8])
        gather = 10 ** rng.uniform(-2, 0.7) / units
        backward = rng.choice([2.0, 3.0])  # without and with computing activations again
        made.append(
            (units, steps, gather, gather * rng.choice([1, 2]), 1.0, backward,
             10 ** rng.uniform(-2, 1.2))
        )  # fmt: skip
    return made


def test_the_step_is_close_to_the_simulated_one_and_never_longer() -> None:
    for case in cases(1500):
        compute = case[1] * (case[4] + case[5])
        wanted = compute + simulated_exposed_s(*case)
        found = compute + hybrid_exposed_s(*case)
        assert 0.9 * wanted <= found <= 1.001 * wanted, case


def test_the_backward_pass_hides_a_reduction_beside_the_gathers_not_after_them() -> None:
    # GIVEN gathers and scatters of 1.5 times the compute, and a reduction as long as the compute
    units, compute = 24, 3.0
    piece = 1.5 * compute / units / 3
    sharded = (units, 1, piece, piece, 1.0, 2.0)
    found = hybrid_exposed_s(*sharded, compute)
    # THEN the reduction runs while the gathers do; one after the other would expose 2.5 s
    apart = sharded_exposed_s(*sharded) + compute / 3
    wanted = simulated_exposed_s(*sharded, compute)
    assert (found, apart) == (pytest.approx(wanted, abs=0.15), pytest.approx(2.5, abs=0.1))


def test_without_a_reduction_it_is_plain_sharding() -> None:
    for case in cases(200):
        assert hybrid_exposed_s(*case[:-1], 0.0) == pytest.approx(sharded_exposed_s(*case[:-1]))
