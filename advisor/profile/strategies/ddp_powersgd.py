"""DDP with PowerSGD (Vogels et al. 2019): gradients sent as low-rank factors, with error feedback.

The first steps send plain gradients, as PowerSGD asks for (``start_powerSGD_iter``).
"""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from advisor.profile.strategies import ddp
from advisor.profile.strategies.base import Case, Job
from advisor.profile.strategies.ddp_hooks import apply_with_hook

NAME = "ddp-powersgd"
SUMMARY = "DDP with gradients sent as low-rank factors (powersgd_rank)"
KIND = "data"

_PLAIN_ITERATIONS = 2  # the least PowerSGDState takes with error feedback


def checks(case: Case) -> list[str]:
    """As DDP; its error feedback cannot be told from accumulated gradients in a pipeline."""
    return ddp.checks(case)


def apply(job: Job) -> None:
    """DDP and the hook."""
    rank = job.workload.powersgd_rank
    seed = job.workload.seed
    apply_with_hook(
        job,
        powerSGD_hook,
        lambda group: PowerSGDState(
            group,
            matrix_approximation_rank=rank,
            start_powerSGD_iter=_PLAIN_ITERATIONS,
            random_seed=seed,
        ),
    )
