"""Trains many workloads one after another in the same processes; run by test_strategies.py.

``python run_cases.py RANKS CASES.json LOSSES.json TRACES``: starting processes and importing torch
takes longer than training these models, so that all strategies share the ranks, and the ranks are
forked from one process that has imported torch. Losses are means over the ranks that know them. The
workload's ``steps`` are recorded into TRACES/name.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from advisor.config.workload import Workload
from advisor.profile import worker
from advisor.profile.loop import Loop
from advisor.profile.recording import Recording, gloo_groups, gloo_threads
from advisor.profile.worker import exit_without_destructors


def train(rank: int, ranks: int, cases_file: Path, losses_file: Path, traces: Path) -> None:
    """Train every case, write {name: losses}."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    cases = [Workload.model_validate(case) for case in json.loads(cases_file.read_text())]
    losses: dict[str, Any] = {}
    meeting = losses_file.with_suffix(".meeting").resolve().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    for workload in cases:
        job, layers = worker.build(workload, torch.device("cpu"), rank)
        loop = Loop(job, layers, report=lambda _step, _phase: None, strike=lambda _step: None)
        record = partial(
            Recording,
            traces / workload.name / f"rank{rank}.json",
            steps=workload.steps,
            device="cpu",
            metadata=partial(worker.metadata, job, []),
        )
        own = loop.run(record).losses
        groups = gloo_groups()
        everyone: list[Any] = [None] * workload.world_size
        dist.all_gather_object(everyone, (own, len(gloo_threads(groups)), len(groups)))
        known = [entry[0] for entry in everyone if entry[0]]
        losses[workload.name] = {
            "losses": [sum(step) / len(step) for step in zip(*known, strict=True)],
            "threads_fit": all(threads == 2 * count for _, threads, count in everyone),
            "micro_batch": workload.micro_batch,
            "data_ranks": job.data_ranks,
        }
    dist.destroy_process_group()
    if rank == 0:
        losses_file.write_text(json.dumps(losses))
    exit_without_destructors()


def main(ranks: int, *files: Path) -> int:
    """Fork the ranks; 1 when one of them fails, which makes the others' next call fail."""
    torch.optim.SGD([torch.zeros(1)])  # imports torch's compiler, as every optimizer does
    fork = multiprocessing.get_context("fork")
    started = [fork.Process(target=train, args=(rank, ranks, *files)) for rank in range(ranks)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    return int(any(process.exitcode for process in started))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *map(Path, sys.argv[2:])))
