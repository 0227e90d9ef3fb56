"""DeepSpeed's ZeRO stage 3: parameters gathered for each module, in forward and in backward."""

from __future__ import annotations

from advisor.profile.strategies import deepspeed_zero
from advisor.profile.strategies.base import Case, Job

NAME = "deepspeed-zero3"
SUMMARY = "DeepSpeed's ZeRO-3: parameters, gradients and optimizer state sharded"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As all DeepSpeed strategies."""
    return deepspeed_zero.checks(case, stage=3)


def apply(job: Job) -> None:
    """Shard over the data-parallel ranks."""
    deepspeed_zero.shard(job, stage=3)
