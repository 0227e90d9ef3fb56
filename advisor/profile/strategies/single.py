"""One process, no communication: the baseline that every strategy is compared with."""

from __future__ import annotations

from advisor.config.workload import Workload
from advisor.profile.strategies.base import Job

NAME = "single"
SUMMARY = "one rank, no communication"
KIND = "data"


def checks(workload: Workload) -> list[str]:
    """Reasons why it cannot run."""
    if workload.world_size != 1:
        return [f"strategy single and world_size {workload.world_size}: single runs on one rank"]
    return []


def apply(job: Job) -> None:
    """Nothing to change."""
    job.data_rank, job.data_ranks = 0, 1
