"""HSDP's exposed communication against a simulation of its events, worked out independently."""

from __future__ import annotations

import random

import pytest

from advisor.model.plan_communication import ShardedStep


def simulated_exposed_s(case: ShardedStep, reduce_s: float) -> float:
    """One rank: compute, the links inside a node and those between nodes, each one thing a time.

    A unit computes when it is gathered; the next gather is issued when its compute begins; a
    unit's gradients are scattered after its backward, and in the last micro-batch then reduced.
    """
    now = inside = outside = 0.0
    for micro_batch in range(case.micro_batches):
        for is_backward in (False, True):
            gathered = inside = max(inside, now) + case.gather_s
            for unit in range(case.units):
                now = max(now, gathered)
                if unit + 1 < case.units:
                    gathered = inside = max(inside, now) + case.gather_s
                now += (case.backward_s if is_backward else case.forward_s) / case.units
                if is_backward:
                    inside = max(inside, now) + case.scatter_s
                    if micro_batch == case.micro_batches - 1:
                        outside = max(outside, inside) + reduce_s / case.units
    return max(now, inside, outside) - compute_s(case)


def compute_s(case: ShardedStep) -> float:
    return case.micro_batches * (case.forward_s + case.backward_s)


def cases(count: int) -> list[tuple[ShardedStep, float]]:
    rng = random.Random(5)
    made = []
    for _ in range(count):
        units, steps = rng.choice([12, 24, 48, 80]), rng.choice([1, 2, 4, 8])
        gather = 10 ** rng.uniform(-2, 0.7) / units
        backward = rng.choice([2.0, 3.0])  # without and with computing activations again
        made.append(
            (
                ShardedStep(units, steps, gather, gather * rng.choice([1, 2]), 1.0, backward),
                10 ** rng.uniform(-2, 1.2),
            )
        )
    return made


def test_the_step_is_close_to_the_simulated_one_and_never_longer() -> None:
    for case, reduce_s in cases(1500):
        wanted = compute_s(case) + simulated_exposed_s(case, reduce_s)
        found = compute_s(case) + case.exposed_with_replicas_s(reduce_s)
        assert 0.9 * wanted <= found <= 1.001 * wanted, (case, reduce_s)


def test_the_backward_pass_hides_a_reduction_beside_the_gathers_not_after_them() -> None:
    # GIVEN gathers and scatters of 1.5 times the compute, and a reduction as long as the compute
    units, compute = 24, 3.0
    piece = 1.5 * compute / units / 3
    sharded = ShardedStep(units, 1, piece, piece, 1.0, 2.0)
    found = sharded.exposed_with_replicas_s(compute)
    # THEN the reduction runs while the gathers do; one after the other would expose 2.5 s
    apart = sharded.exposed_s() + compute / 3
    wanted = simulated_exposed_s(sharded, compute)
    assert (found, apart) == (pytest.approx(wanted, abs=0.15), pytest.approx(2.5, abs=0.1))


def test_without_a_reduction_it_is_plain_sharding() -> None:
    for case, _ in cases(200):
        assert case.exposed_with_replicas_s(0.0) == pytest.approx(case.exposed_s())
