"""Trains many workloads one after another in the same processes; run by test_strategies.py.

``torchrun ... run_cases.py CASES.json LOSSES.json [TRACES]``: starting processes takes longer than
training these models, so that all strategies share them. Losses are means over the ranks that know
them. With a folder TRACES the workload's ``steps`` are recorded into TRACES/name.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from advisor.config.workload import Workload
from advisor.profile import worker
from advisor.profile.exit_process import exit_without_destructors
from advisor.profile.loop import Loop
from advisor.profile.recording import Recording, gloo_groups, gloo_threads


def main(cases_file: Path, losses_file: Path, traces: Path | None = None) -> None:
    """Train every case, write {name: losses}."""
    rank = int(os.environ["RANK"])
    cases = [Workload.model_validate(case) for case in json.loads(cases_file.read_text())]
    losses: dict[str, Any] = {}
    dist.init_process_group("gloo")
    for workload in cases:
        job, layers = worker.build(workload, torch.device("cpu"), rank)
        loop = Loop(job, layers, report=lambda _step, _phase: None, strike=lambda _step: None)
        record = None
        if traces is not None:
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
            "data_ranks": job.data_ranks,
        }
    dist.destroy_process_group()
    if rank == 0:
        losses_file.write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
    exit_without_destructors()
