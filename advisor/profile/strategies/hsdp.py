"""Hybrid sharding: FSDP2 inside groups of ``shard`` ranks, gradients all-reduced between them.

Groups are neighbouring ranks, so that the heavy traffic stays inside a node.
"""

from __future__ import annotations

from advisor.profile.strategies import fully_shard, mesh
from advisor.profile.strategies.base import Case, Job

KIND = "data"


def checks(case: Case) -> list[str]:
    """As all FSDP2 strategies; experts have a group of their own inside the data-parallel ranks."""
    problems = fully_shard.checks(case)
    if case.degrees.expert > 1:
        problems.append("strategy hsdp and ep: both divide the data-parallel ranks")
    return problems


def apply(job: Job) -> None:
    """Shard over the inner dimension, replicate over the outer."""
    fully_shard.shard(job, job.meshes[mesh.BOTH], reshard_after_forward=True)
