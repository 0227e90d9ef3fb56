"""Two jobs in turn: what a fix gives on a machine that grows slower meanwhile."""

from __future__ import annotations

import threading
import time

import pytest

from benchmarks.scripts import turns
from benchmarks.scripts.judge import real_gain

_MS = 1_000_000


def _steps(of_ms: float) -> list[int]:
    """Steps of a job that starts as the machine begins to grow slower, twice as slow at its end."""
    return [int((of_ms + 100 * k / turns.COUNT) * _MS) for k in range(turns.COUNT)]


def test_a_drift_of_twice_the_gain_is_in_neither() -> None:
    faulty = [ns for ns in _steps(150) for _ in range(turns.LENGTH)]
    fixed = [ns for ns in _steps(100) for _ in range(turns.LENGTH)]
    gain, low, high = real_gain(faulty, fixed, mean=False)
    assert low < 50 * _MS < high
    assert gain == pytest.approx(50 * _MS, rel=0.2)


def test_what_happens_in_every_third_step_counts_by_the_mean() -> None:
    fixed = [100 * _MS] * turns.LENGTH * turns.COUNT
    faulty = [ns + 60 * _MS * (at % 3 == 0) for at, ns in enumerate(fixed)]
    assert real_gain(faulty, fixed, mean=True)[0] == pytest.approx(20 * _MS)
    assert real_gain(faulty, fixed, mean=False)[0] == pytest.approx(0)


def _rank(address: str, job: str, running: list[str], seen: list[set[str]]) -> None:
    rank = turns._Rank(address, job)
    for _ in range(turns.STEPS):
        running.append(job)
        time.sleep(0.001)
        seen.append(set(running))
        running.remove(job)
        rank.stepped(rank)


def test_one_job_stands_while_the_other_steps() -> None:
    running: list[str] = []
    seen: list[set[str]] = []
    with turns.Turns(["slow", "fixed"], 2) as floor:
        address = floor.command("slow")[2]
        for job in ("slow", "fixed") * 2:
            threading.Thread(target=_rank, args=(address, job, running, seen)).start()
        taken = floor.take()
        floor.let("slow", "on")
        floor.let("fixed", "on")
    assert {len(steps) for steps in taken.values()} == {turns.COUNT * turns.LENGTH}
    warm = 2 * 2 * turns.WARM_UP
    assert all(len(jobs) == 1 for jobs in seen[warm:])


def test_a_job_that_ends_early_is_told_apart_from_a_turn() -> None:
    with turns.Turns(["slow"], 1) as floor:
        thread = threading.Thread(target=turns._Rank, args=(floor.command("slow")[2], "slow"))
        thread.start()
        thread.join()
        with pytest.raises(ConnectionError, match="slow"):
            floor.take()
