"""ZeRO stage 1: DDP, with the optimizer's state spread over the data-parallel ranks."""

from torch.distributed.optim import ZeroRedundancyOptimizer

from advisor.profile.strategies import ddp
from advisor.profile.strategies.base import OPTIMIZERS, Case, Job

KIND = "data"


def checks(case: Case) -> list[str]:
    """As DDP; experts' parameters differ between ranks, so their state cannot be spread."""
    problems = ddp.checks(case)
    if case.degrees.expert > 1:
        problems.append("strategy zero1 and ep: zero1 takes parameters that all ranks hold")
    return problems


def apply(job: Job) -> None:
    """DDP and the sharded optimizer."""
    ddp.apply(job)
    job.optimizer = ZeroRedundancyOptimizer(
        job.parameters(),
        optimizer_class=OPTIMIZERS[job.workload.optimizer],
        process_group=job.data_group(),
        lr=job.workload.learning_rate,
    )
