"""FSDP1 with FULL_SHARD."""

from __future__ import annotations

from torch.distributed.fsdp import ShardingStrategy

from advisor.profile.strategies import fsdp1
from advisor.profile.strategies.base import Case, Job

NAME = "fsdp1-full"
SUMMARY = "torch's first FSDP, ZeRO-3: parameters sharded again after forward"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As all FSDP1 strategies."""
    return fsdp1.checks(case)


def apply(job: Job) -> None:
    """Shard over the data-parallel ranks."""
    fsdp1.shard(job, ShardingStrategy.FULL_SHARD)
