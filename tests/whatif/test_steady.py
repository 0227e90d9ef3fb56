"""A network that is slow in some steps: the mean tells its cost; a quiet call gains nothing."""

from __future__ import annotations

import pytest

from advisor.whatif.predict import predict_restored
from advisor.whatif.program import Call, Issue, Program, Wait, Work
from advisor.whatif.slow_places import steadied

QUIET, BUSY, CALLS = 2e6, 12e6, 5


def step(service_ns: float) -> Program:
    """Two ranks that compute 50 ms, then wait for five calls one after the other."""
    calls = {
        number: Call((0, 1), "g", service_ns, "all_reduce", 1 << 20, burst=number)
        for number in range(CALLS)
    }
    turns = [item for number in calls for item in (Issue(number), Wait(number))]
    return Program(
        items={rank: [Work(50e6), *turns] for rank in (0, 1)},
        calls=calls,
        start_ns={0: 0.0, 1: 0.0},
        shared=True,
        measured_ns=50e6 + CALLS * service_ns,
    )


@pytest.mark.parametrize(("busy", "crosses"), [(2, True), (0, True), (2, False)])
def test_a_network_that_is_slow_in_some_steps_costs_their_mean(busy: int, crosses: bool) -> None:
    steps = [step(QUIET)] * (7 - busy) + [step(BUSY)] * busy
    service = steadied(steps, lambda ranks: crosses, lambda call: call.ranks)
    found = predict_restored(steps, service, comes_and_goes=True)
    assert found is not None
    lost = CALLS * (BUSY - QUIET) * busy / 7 if crosses else 0.0
    assert found.gain_ns == pytest.approx(lost, abs=1e3)
    assert found.gain_low_ns <= lost <= found.gain_high_ns
