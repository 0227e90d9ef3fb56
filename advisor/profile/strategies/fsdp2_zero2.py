"""FSDP2 as ZeRO stage 2: parameters gathered in forward and kept until their backward."""

from __future__ import annotations

from advisor.profile.strategies import fully_shard, mesh
from advisor.profile.strategies.base import Case, Job

NAME = "fsdp2-zero2"
SUMMARY = "ZeRO-2: gradients and optimizer state sharded, parameters kept after forward"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As all FSDP2 strategies."""
    return fully_shard.checks(case)


def apply(job: Job) -> None:
    """Shard over the data-parallel ranks."""
    if job.degrees.data > 1:
        fully_shard.shard(job, job.meshes[mesh.DATA], reshard_after_forward=False)
