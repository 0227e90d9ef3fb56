"""What strategies work on: the case to check before launch, and one rank's job to change."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from advisor.config.workload import Workload

OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True)
class Degrees:
    """How many ranks each kind of parallelism spans; their product is the world size.

    ``data`` counts the ranks that train on different data. ``expert`` and ``shard`` lie inside it:
    experts are spread, and HSDP shards, over that many of the data-parallel ranks.
    """

    pipeline: int = 1
    tensor: int = 1
    data: int = 1
    expert: int = 1
    shard: int = 1


@dataclass(frozen=True)
class Case:
    """What a strategy is asked to run: settings, the model's sizes, the degrees, its companions."""

    workload: Workload
    shape: Any
    degrees: Degrees
    names: tuple[str, ...]


class Strategy(NamedTuple):
    """One kind of parallelism: ``checks`` gives reasons why it cannot run, each naming both
    settings, before launch; ``apply`` changes one rank's job."""

    name: str
    kind: str
    checks: Callable[[Case], list[str]]
    apply: "Callable[[Job], None]"


@dataclass
class Job:
    """One rank's training job.

    ``parts`` are the model's pieces on this rank (one, or several under interleaved pipelines).
    ``data_rank`` of ``data_ranks`` says which micro-batches this rank trains on. A strategy may
    set ``optimizer``; what is left unset becomes the workload's, over all parameters.
    ``micro_batch_context(last)`` is entered around each micro-batch (DDP's no_sync).
    ``build_schedule`` makes the pipeline schedule once the parts are wrapped.
    ``after_backward`` runs before the optimizer, ``after_step`` with the step's number at its end.
    ``details`` goes into the recording's metadata.
    """

    workload: Workload
    shape: Any
    degrees: Degrees
    device: torch.device
    rank: int
    parts: list[nn.Module]
    meshes: dict[str, Any] = field(default_factory=dict)
    data_rank: int = 0
    optimizer: Any = None
    autocast: bool = False
    schedule: Any = None
    is_first_stage: bool = True
    is_last_stage: bool = True
    build_schedule: Callable[[], None] | None = None
    micro_batch_context: Callable[[bool], AbstractContextManager[Any]] = field(
        default=lambda _last: nullcontext()
    )
    ignored_parameters: set[nn.Parameter] = field(default_factory=set)
    after_backward: list[Callable[[], None]] = field(default_factory=list)
    after_step: list[Callable[[int], None]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def data_ranks(self) -> int:
        """How many ranks train on different data."""
        return self.degrees.data

    def data_group(self) -> Any:
        """The process group of the ranks that train on different data; None is the whole world."""
        return self.meshes["dp"].get_group() if "dp" in self.meshes else None

    def parameters(self) -> list[nn.Parameter]:
        """All parameters of all parts, once each."""
        seen: dict[int, nn.Parameter] = {}
        for part in self.parts:
            for parameter in part.parameters():
                seen.setdefault(id(parameter), parameter)
        return list(seen.values())


def alone(name: str, **degrees: int) -> list[str]:
    """What a strategy that wraps the model whole cannot be joined with: ``degrees`` above one."""
    return [
        f"strategy {name} and {setting} {size}: use fsdp2, which composes"
        for setting, size in degrees.items()
        if size > 1
    ]


def default_optimizer(job: Job) -> torch.optim.Optimizer:
    """The workload's optimizer with its learning rate and torch's other defaults.

    Parameters on different device meshes go into groups of their own, because AdamW's grouped
    kernels take tensors of one kind only.
    """
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in job.parameters():
        # Of a DTensor, whose class takes half a second to import.
        groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    kind_of = OPTIMIZERS[job.workload.optimizer]
    optimizer: torch.optim.Optimizer = kind_of(
        [{"params": members} for members in groups.values()], lr=job.workload.learning_rate
    )
    return optimizer


def layers_of(part: nn.Module) -> list[nn.Module]:
    """The layers that a (not yet wrapped) part holds."""
    return list(part.layers)
