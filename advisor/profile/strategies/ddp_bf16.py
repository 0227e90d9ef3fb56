"""DDP with gradients cast to bf16 on the wire, by torch's own communication hook."""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from advisor.profile.strategies import ddp
from advisor.profile.strategies.base import Case, Job
from advisor.profile.strategies.ddp_hooks import apply_with_hook

NAME = "ddp-bf16"
SUMMARY = "DDP with gradients sent as bf16: half the bytes"
KIND = "data"


def checks(case: Case) -> list[str]:
    """As DDP."""
    return ddp.checks(case)


def apply(job: Job) -> None:
    """DDP and the hook."""
    apply_with_hook(job, bf16_compress_hook, lambda group: group)
