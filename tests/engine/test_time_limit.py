"""Queries are stopped by the processor time they use, not by how busy the machine is."""

from __future__ import annotations

import threading
import time

from advisor.engine.time_limit import TimeLimit


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_waiting_for_a_busy_machine_uses_nothing_up() -> None:
    cpu, wall = _Clock(), _Clock()
    limit = TimeLimit(20, lambda: None, cpu=cpu, wall=wall)
    with limit:
        cpu.now += 5
        wall.now += 120
        assert not limit.exceeded()


def test_processor_time_does() -> None:
    cpu, wall = _Clock(), _Clock()
    limit = TimeLimit(20, lambda: None, cpu=cpu, wall=wall)
    with limit:
        cpu.now += 20.5
        wall.now += 10.5
        assert limit.exceeded()
    with limit:
        assert not limit.exceeded()


def test_what_uses_no_processor_is_bounded_too() -> None:
    cpu, wall = _Clock(), _Clock()
    limit = TimeLimit(20, lambda: None, cpu=cpu, wall=wall)
    with limit:
        wall.now += 301
        assert limit.exceeded()


def test_it_stops_what_runs_and_nothing_after() -> None:
    cpu, wall = _Clock(), _Clock()
    stopped = threading.Event()
    calls: list[float] = []

    def stop() -> None:
        calls.append(cpu.now)
        stopped.set()

    limit = TimeLimit(0.04, stop, cpu=cpu, wall=wall)
    with limit:
        cpu.now += 1
        assert stopped.wait(120)
    seen = len(calls)
    cpu.now += 1
    time.sleep(0.05)  # five looks
    assert len(calls) == seen
    limit.close()


def test_a_block_that_ends_in_time_is_left_alone() -> None:
    calls: list[int] = []
    with TimeLimit(20, lambda: calls.append(1)):
        pass
    assert calls == []
