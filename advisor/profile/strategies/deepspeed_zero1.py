"""DeepSpeed's ZeRO stage 1: the optimizer's state spread over the data-parallel ranks."""

from __future__ import annotations

from advisor.profile.strategies import deepspeed_zero
from advisor.profile.strategies.base import Case, Job

NAME = "deepspeed-zero1"
SUMMARY = "DeepSpeed's ZeRO-1: the optimizer's state sharded"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As all DeepSpeed strategies."""
    return deepspeed_zero.checks(case, stage=1)


def apply(job: Job) -> None:
    """Shard over the data-parallel ranks."""
    deepspeed_zero.shard(job, stage=1)
