"""What a workload would need, without running it: the model on torch's meta device, really cut.

A meta tensor has a shape and no memory, and torch's fake process group answers without talking to
anyone: so one process builds the largest preset and cuts it as a rank of a large job would. What
each rank then holds gives memory and traffic by the formulas that recordings are compared with.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from advisor.config.workload import Workload
from advisor.metrics.models.theory_size import flops_per_step, held_activation_bytes, state_bytes
from advisor.metrics.models.theory_traffic import corrections, terms
from advisor.metrics.models.workload import Recorded, described
from advisor.profile import models, strategies
from advisor.profile.strategies.base import Job


@dataclass(frozen=True)
class Needs:
    """Of the rank that needs most; bytes, and those sent per step. FLOPs are of the whole job."""

    strategy: str
    ranks: int
    parameters: int
    state_bytes: float
    activation_bytes: float
    sent_bytes: float
    flops_per_step: float | None
    tokens_per_step: int

    @property
    def memory_bytes(self) -> float:
        """State and activations."""
        return self.state_bytes + self.activation_bytes


def total_parameters(workload: Workload) -> int:
    """Parameters of the whole model."""
    return sum(parameter.numel() for parameter in models.outlined(workload).parameters())


def needs(workload: Workload) -> Needs:
    """What one rank needs under the workload's strategy. Raises AdvisorError where it cannot work.

    Ranks of a pipeline stage hold the same, and the stages between the ends hold less than those,
    so that the first rank of the first and of the last stage are enough.
    """
    workload, degrees = strategies.prepare(workload)
    world = workload.world_size
    ranks = [0] if degrees.pipeline == 1 else [0, world - world // degrees.pipeline]
    held = [_held(workload, rank) for rank in ranks]
    run = described(workload.strategy, workload.model_dump(mode="json"), held)
    return Needs(
        strategy=workload.strategy,
        ranks=world,
        parameters=max(round(rank.shared + rank.experts) for rank in run.ranks),
        **_largest(run),
        flops_per_step=flops_per_step(run),
        tokens_per_step=run.tokens_per_step,
    )


def _largest(run: Recorded) -> dict[str, float]:
    most = max(run.ranks, key=lambda r: state_bytes(run, r) + held_activation_bytes(run, r))
    sent = [
        sum(size for _, _, size in [*terms(run, rank), *corrections(run, rank)])
        for rank in run.ranks
    ]
    return {
        "state_bytes": state_bytes(run, most),
        "activation_bytes": held_activation_bytes(run, most),
        "sent_bytes": max(sent),
    }


def _held(workload: Workload, rank: int) -> dict[str, Any]:
    device = torch.device("meta")
    with _alone(rank, workload.world_size):
        _, degrees = strategies.prepare(workload)
        shape = models.shape_of(workload)
        job = Job(workload, shape, degrees, device, rank, [models.outlined(workload)])
        strategies.cut(job)
    return {**job.details, "rank": rank, "world_size": workload.world_size}


@contextmanager
def _alone(rank: int, world_size: int) -> Iterator[None]:
    """A process group of which only this process exists."""
    if world_size == 1:
        yield
        return
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
