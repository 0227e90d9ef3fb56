"""`advisor demo`: what it changes in the workload, and what it says of the machine beforehand."""

from __future__ import annotations

import os

import pytest

from advisor.cli import demo
from advisor.config.paths import shipped
from advisor.config.workload import load_workload


def test_a_healthy_step_computes_longer_for_the_same_call() -> None:
    """The call stays as long: more sequences hide it, and what else runs for a moment."""
    workload = load_workload(shipped("workloads") / "gpt2.yaml")
    faulty, healthy = (
        workload.with_settings(demo.settings(2, healthy=flag)) for flag in (False, True)
    )
    assert healthy.micro_batch >= 4 * faulty.micro_batch
    assert healthy.steps == faulty.steps >= 10
    assert healthy.world_size == 2


@pytest.mark.parametrize(("load", "is_said"), [(0.1, False), (7.7, True)])
def test_a_busy_machine_is_said_before_its_waiting_is_found(
    load: float, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert bool(demo.busy_machine()) == is_said
