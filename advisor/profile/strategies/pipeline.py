"""Shared by the pipeline strategies: cuts the layers into stages and makes torch's schedule.

Rank p of the pipeline holds stage p (interleaved: also p + pp, p + 2 pp, ...). The first stage has
the embedding, the last the head. The micro-batches of the schedule are the workload's
gradient_accumulation. GPT-2's head shares its weight with the embedding, and here they live on
different ranks: their gradients are added up between the first and the last stage after every
backward pass, so that both copies stay equal.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel.ddp import _reconstruct_dtensor
from torch.nn.parallel import DistributedDataParallel

from advisor.config.workload import Workload
from advisor.profile import names
from advisor.profile.models.decoder import Decoder, next_token_loss
from advisor.profile.ranges import named
from advisor.profile.strategies import mesh
from advisor.profile.strategies.base import Case, Job

KIND = "pipeline"


_INTERLEAVED = "ScheduleInterleaved1F1B"


def checks(case: Case, *, schedule: str) -> list[str]:
    """There must be a layer for every stage, and the micro-batches that the schedule needs."""
    size, workload = case.degrees.pipeline, case.workload
    problems, count = _of_stages(case, schedule), workload.gradient_accumulation
    if schedule == "Schedule1F1B" and count < size > 1:
        problems.append(
            f"pp {size} and gradient_accumulation {count}: 1F1B needs a micro-batch for every stage"
        )
    if schedule == _INTERLEAVED and workload.virtual_stages < 2:
        problems.append(
            f"strategy pp-interleaved and virtual_stages {workload.virtual_stages}: needs 2 "
            "or more, or strategy pp"
        )
    if schedule == _INTERLEAVED and count % size:
        problems.append(
            f"pp {size} and gradient_accumulation {count}: pp-interleaved "
            "runs the micro-batches in rounds of pp"
        )
    return problems


def _stages_per_rank(workload: Workload, schedule: str) -> int:
    return workload.virtual_stages if schedule == _INTERLEAVED else 1


def _of_stages(case: Case, schedule: str) -> list[str]:
    size, workload, layers = case.degrees.pipeline, case.workload, case.shape.layers
    stages_per_rank = _stages_per_rank(workload, schedule)
    stages = size * stages_per_rank
    problems = []
    if size == 1:
        return [f"pp {size} and strategy {workload.strategy}: a pipeline needs 2 ranks or more"]
    if layers < stages:
        said = f" x virtual_stages {stages_per_rank}" if stages_per_rank > 1 else ""
        problems.append(f"pp {size}{said} and layers {layers}: fewer layers than stages")
    cut = workload.stage_layers
    if cut is not None and (len(cut) != stages or sum(cut) != layers):
        problems.append(
            f"stage_layers {list(cut)} and layers {layers}: not {stages} stages of them"
        )
    if workload.sync_every_micro_batch:
        problems.append(
            f"pp {size} and sync_every_micro_batch: a schedule reduces gradients once, at its end"
        )
    return problems


def apply(job: Job, *, schedule: str) -> None:
    """Keep this rank's stages, and plan the schedule for when they are wrapped."""
    size, stages_per_rank = job.degrees.pipeline, _stages_per_rank(job.workload, schedule)
    group = job.meshes[mesh.PIPELINE].get_group()
    position = dist.get_rank(group)
    stages = size * stages_per_rank
    (model,) = job.parts
    numbers = [position + size * turn for turn in range(stages_per_rank)]
    sizes = list(job.workload.stage_layers or _even(len(model.layers), stages))
    tied = _is_tied(model)
    job.parts = [_stage(model, number, sizes) for number in numbers]
    job.details["stage_layers"] = sizes
    if tied:
        _tie(job, numbers, stages)

    def build() -> None:
        made = [
            PipelineStage(part, number, stages, job.device, group=group)
            for part, number in zip(job.parts, numbers, strict=True)
        ]
        for stage in made:
            _annotate(stage)
            _infer_beside_ddp(stage)
        micro_batches = job.workload.gradient_accumulation

        def share_of_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return next_token_loss(logits, labels) / micro_batches

        job.schedule = getattr(pipelining, schedule)(
            made if stages_per_rank > 1 else made[0],
            n_microbatches=micro_batches,
            loss_fn=share_of_loss,
            scale_grads=False,  # the loss is scaled already, which needs no pass over gradients
        )
        job.is_first_stage = numbers[0] == 0
        job.is_last_stage = numbers[-1] == stages - 1

    job.build_schedule = build


def _even(layers: int, stages: int) -> list[int]:
    each, left = divmod(layers, stages)
    return [each + (number < left) for number in range(stages)]


def _stage(model: Decoder, number: int, sizes: list[int]) -> Decoder:
    start = sum(sizes[:number])
    is_first, is_last = number == 0, number == len(sizes) - 1
    return Decoder(
        model.embedding if is_first else None,
        list(model.layers)[start : start + sizes[number]],
        model.head if is_last else None,
    )


def _is_tied(model: Decoder) -> bool:
    ends = [part for part in (model.embedding, model.head) if part is not None]
    both = [{id(parameter) for parameter in part.parameters()} for part in ends]
    return bool(set.intersection(*both))


def _tie(job: Job, numbers: list[int], stages: int) -> None:
    ends = _group_of_ends(job)
    is_end = 0 in numbers or stages - 1 in numbers

    def add_up() -> None:
        for part in job.parts:
            weight = _tied_weight(part)
            if weight is not None and weight.grad is not None:
                gradient = weight.grad
                local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
                dist.all_reduce(local, group=ends)

    if is_end:
        job.after_backward.append(add_up)


def _tied_weight(part: nn.Module) -> nn.Parameter | None:
    inner = getattr(part, "module", part)
    if inner.embedding is not None:
        return inner.embedding.tokens.weight
    return inner.head.vocabulary.weight if inner.head is not None else None


def _group_of_ends(job: Job) -> Any:
    """The first and the last rank of this rank's pipeline; every rank makes all such groups."""
    ranks = torch.arange(dist.get_world_size()).view(job.degrees.pipeline, -1)
    ends = [[int(column[0]), int(column[-1])] for column in ranks.T]
    group, _ = dist.new_subgroups_by_enumeration(_with_rest(ends, ranks))
    return group


def _with_rest(ends: list[list[int]], ranks: torch.Tensor) -> list[list[int]]:
    """Groups must cover every rank: those in the middle get groups of one."""
    return ends + [[int(rank)] for row in ranks[1:-1] for rank in row]


def _infer_beside_ddp(stage: PipelineStage) -> None:
    """Keep DDP out of the pass in which torch infers the stages' shapes.

    Newer torch (2.13) runs a real forward and backward: the reducer would count its gradients as a
    step's and fail when it rebuilds its buckets. Older torch (2.11) runs a forward without
    gradients: tensor parallelism makes its DTensors of DDP's parameters in the first forward, and
    keeps them, so that they would never reach the parameters again.
    """
    if not isinstance(stage.submod, DistributedDataParallel):
        return
    newer = hasattr(stage, "_forward_metadata_inference")
    name = "_forward_metadata_inference" if newer else "_shape_inference"
    infer = getattr(stage, name)

    def beside(*args: Any, **kwargs: Any) -> Any:
        if not newer:
            _reconstruct_dtensor(stage.submod.module, None)
        with stage.submod.no_sync():
            return infer(*args, **kwargs)

    setattr(stage, name, beside)


def _annotate(stage: PipelineStage) -> None:
    """Forward and backward ranges around every chunk: the schedule interleaves them."""

    def ranged(inner: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        with named(name):
            return inner(*args, **kwargs)

    stage.forward_one_chunk = partial(ranged, stage.forward_one_chunk, names.FORWARD)
    stage.backward_one_chunk = partial(ranged, stage.backward_one_chunk, names.BACKWARD)
