"""DeepSpeed's ZeRO stage 2: gradients and the optimizer's state sharded."""

from __future__ import annotations

from advisor.profile.strategies import deepspeed_zero
from advisor.profile.strategies.base import Case, Job

NAME = "deepspeed-zero2"
SUMMARY = "DeepSpeed's ZeRO-2: gradients and optimizer state sharded"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As all DeepSpeed strategies."""
    return deepspeed_zero.checks(case, stage=2)


def apply(job: Job) -> None:
    """Shard over the data-parallel ranks."""
    deepspeed_zero.shard(job, stage=2)
