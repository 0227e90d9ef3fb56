"""Racing: all ranks stop at the same step, losers only, and what a real trial keeps."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from advisor.config.workload import Workload
from advisor.profile.early_stop import STEPS_BETWEEN_LOOKS, Race, surely_at_least_ns
from advisor.tune.job import Limits
from advisor.tune.reference import ReferenceJob
from advisor.tune.trial import run_trial


def outcomes(steps_of_rank: list[list[int]], limit_ns: float) -> list[int | None]:
    """Run the looks of every rank in a thread of its own; the look at which each stopped."""
    store = dist.HashStore()
    stopped: list[int | None] = [None] * len(steps_of_rank)

    def one(rank: int) -> None:
        race = Race(store, rank, len(steps_of_rank), limit_ns)
        for look in range(3):
            seen = steps_of_rank[rank][: (look + 1) * STEPS_BETWEEN_LOOKS]
            if race.is_lost(seen):
                stopped[rank] = look
                return

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(steps_of_rank))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return stopped


def test_one_slow_rank_stops_all_at_the_same_look() -> None:
    slow_later = [100] * 4 + [200] * 11
    assert outcomes([[100] * 15, slow_later, [100] * 15], limit_ns=150) == [1, 1, 1]


def test_a_trial_that_is_not_slower_runs_to_its_end() -> None:
    assert outcomes([[100] * 15, [149] * 15], limit_ns=150) == [None, None]


def test_scattered_steps_are_given_the_benefit_of_the_doubt() -> None:
    rng = np.random.default_rng(1)
    scattered = [int(v) for v in 160 + 60 * rng.standard_normal(5)]
    assert surely_at_least_ns(scattered) < 150 < surely_at_least_ns([160, 161, 159, 160, 162])


@pytest.mark.long
@pytest.mark.slow
def test_a_losing_trial_keeps_its_steps_and_says_so(tmp_path: Path) -> None:
    # GIVEN two gloo ranks and a limit that no step can meet
    workload = Workload.model_validate(
        {
            "model": {"family": "gpt2", "layers": 1, "hidden": 32, "vocabulary": 64},
            "micro_batch": 1,
            "sequence_length": 16,
            "warmup_steps": 1,
            "timed_steps": 15,
            "world_size": 2,
        }
    )
    settings = {"number": 0, "is_baseline": False, "purpose": "search"}
    job = ReferenceJob(workload)
    # WHEN it runs
    lost = run_trial(job, {}, tmp_path / "lost", limits=Limits(120.0, 1e-3), **settings)  # type: ignore[arg-type]
    # THEN it ends at the first look, with its steps and no trace; without the limit it goes on
    assert (lost.status, len(lost.step_ns)) == ("stopped early", STEPS_BETWEEN_LOOKS)
    assert lost.median_ns > 0
    assert not list((tmp_path / "lost").glob("rank*.json.gz"))
    whole = run_trial(job, {}, tmp_path / "whole", limits=Limits(120.0, 1e12), **settings)  # type: ignore[arg-type]
    assert (whole.status, len(whole.step_ns)) == ("ok", 15)
    assert len(list((tmp_path / "whole").glob("rank*.json.gz"))) == 2
