"""Emulated layers: gradients of the right size, time that is waited, operators in the profile."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from advisor.profile import emulate  # noqa: E402
from advisor.profile.emulate import EmulatedLayer  # noqa: E402
from benchmarks.lab.layers import EmulatedModel  # noqa: E402


@pytest.fixture
def waits(monkeypatch):
    """Deadlines asked for, in ns from the call, instead of waiting for them."""
    asked = []
    monkeypatch.setattr(emulate.time, "monotonic_ns", lambda: 1_000)
    monkeypatch.setattr(emulate, "wait_until", lambda deadline: asked.append(deadline - 1_000))
    return asked


@pytest.mark.slow
def test_gradients_have_the_size_of_their_parameters(waits):
    model = EmulatedModel([EmulatedLayer([3, 5], forward_ns=10, backward_ns=20) for _ in range(2)])
    x = torch.ones(2, 4, requires_grad=True)
    model(x).sum().backward()
    assert x.grad.shape == x.shape
    for parameter in model.parameters():
        assert parameter.grad.shape == parameter.shape
        assert parameter.grad.abs().sum() > 0


@pytest.mark.slow
def test_forward_and_backward_wait_for_their_own_time(waits):
    layer = EmulatedLayer([4], forward_ns=10, backward_ns=20)
    layer(torch.ones(1, requires_grad=True)).sum().backward()
    assert waits == [10, 20]


@pytest.mark.slow
def test_time_scale_makes_a_slow_rank(waits):
    layer = EmulatedLayer([4], forward_ns=10, backward_ns=20)
    layer.time_scale = 1.5
    layer(torch.ones(1, requires_grad=True)).sum().backward()
    assert waits == [15, 30]


def test_a_wait_ends_at_its_deadline_and_not_before(monkeypatch):
    clock = iter([0, 600, 1_100])  # the first sleep ends early, as sleeps may
    slept = []
    monkeypatch.setattr(emulate.time, "monotonic_ns", lambda: next(clock))
    monkeypatch.setattr(emulate.time, "sleep", slept.append)
    emulate.wait_until(1_000)
    assert slept == [1_000 / 1e9, 400 / 1e9]


def test_the_profiler_sees_the_operator_in_both_directions(waits):
    layer = EmulatedModel([EmulatedLayer([4], forward_ns=10, backward_ns=20)])
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        layer(torch.ones(1, requires_grad=True)).sum().backward()
    counts = {event.key: event.count for event in profiler.key_averages()}
    assert counts[emulate.OPERATOR] == 2
    assert counts["## layer 0 ##"] == 1
