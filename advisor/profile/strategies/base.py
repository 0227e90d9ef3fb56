"""What strategies work on: one job per rank, changed step by step in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from advisor.config.workload import Workload


@dataclass
class Job:
    """One rank's training job.

    ``parts`` are the model's pieces on this rank (one, or several under interleaved pipelines).
    ``data_rank`` of ``data_ranks`` says which micro-batches this rank trains on. A strategy may
    set ``optimizer``; what is left unset becomes AdamW over all parameters.
    ``micro_batch_context(last)`` is entered around each micro-batch (DDP's no_sync).
    ``after_backward`` runs before the optimizer, ``after_step`` with the step's number at its end.
    ``details`` goes into the recording's metadata.
    """

    workload: Workload
    shape: Any
    device: torch.device
    rank: int
    world_size: int
    parts: list[nn.Module]
    mesh: Any = None
    data_rank: int = 0
    data_ranks: int = 1
    optimizer: Any = None
    schedule: Any = None
    micro_batch_context: Callable[[bool], AbstractContextManager[Any]] = field(
        default=lambda _last: nullcontext()
    )
    ignored_parameters: set[nn.Parameter] = field(default_factory=set)
    build_schedule: Callable[[], None] | None = None
    after_backward: list[Callable[[], None]] = field(default_factory=list)
    after_step: list[Callable[[int], None]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def parameters(self) -> list[nn.Parameter]:
        """All parameters of all parts, once each."""
        seen: dict[int, nn.Parameter] = {}
        for part in self.parts:
            for parameter in part.parameters():
                seen.setdefault(id(parameter), parameter)
        return list(seen.values())


def default_optimizer(job: Job, parameters: Any | None = None) -> torch.optim.Optimizer:
    """AdamW with the workload's learning rate and torch's defaults."""
    chosen = job.parameters() if parameters is None else parameters
    return torch.optim.AdamW(chosen, lr=job.workload.learning_rate)


def data_ranks(workload: Workload, model_parallel: int) -> int:
    """Ranks left for data parallelism once each model replica takes ``model_parallel`` ranks."""
    return workload.world_size // model_parallel
