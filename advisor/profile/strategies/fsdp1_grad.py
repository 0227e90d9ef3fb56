"""FSDP1 with SHARD_GRAD_OP."""

from __future__ import annotations

from torch.distributed.fsdp import ShardingStrategy

from advisor.profile.strategies import fsdp1
from advisor.profile.strategies.base import Case, Job

NAME = "fsdp1-grad"
SUMMARY = "torch's first FSDP, ZeRO-2: parameters kept from forward to backward"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As all FSDP1 strategies."""
    return fsdp1.checks(case)


def apply(job: Job) -> None:
    """Shard over the data-parallel ranks."""
    fsdp1.shard(job, ShardingStrategy.SHARD_GRAD_OP)
