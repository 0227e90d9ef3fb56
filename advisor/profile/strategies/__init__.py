"""Parallelism, applied from outside to single-device models: files found by name, and variants.

A strategy's file has ``KIND``, the dimension (pipeline, tensor, expert or data), ``checks(case)``
and ``apply(job)``; what these take besides makes its variants.

Strategies of different kinds are joined by ``+`` and applied in a fixed order: the pipeline cuts
the model first; tensor and expert parallelism replace parts of its layers; activation checkpointing
wraps the layers as they then are; data parallelism goes around everything, because it reduces
whatever gradients come out; the pipeline's schedule and the optimizer are made last, of what all of
this left.

The strategies of DeepSpeed need its package, which is optional.
"""

import importlib
import pkgutil
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch.utils.checkpoint import checkpoint

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import models, sizes
from advisor.profile.strategies import mesh
from advisor.profile.strategies.base import (
    Case,
    Degrees,
    Job,
    Strategy,
    default_optimizer,
    layers_of,
)

ORDER = ("pipeline", "tensor", "expert", "data")
_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp-bf16": ("ddp_hooks", {"hook": "bf16_compress_hook"}),
    "ddp-fp16": ("ddp_hooks", {"hook": "fp16_compress_hook"}),
    "deepspeed-zero1": ("deepspeed_zero", {"stage": 1}),
    "deepspeed-zero2": ("deepspeed_zero", {"stage": 2}),
    "deepspeed-zero3": ("deepspeed_zero", {"stage": 3}),
    "fsdp1-full": ("fsdp1", {"strategy": "FULL_SHARD"}),
    "fsdp1-grad": ("fsdp1", {"strategy": "SHARD_GRAD_OP"}),
    # As ZeRO stage 3, and as stage 2: parameters are kept from forward to their backward.
    "fsdp2": ("fully_shard", {"reshard_after_forward": True}),
    "fsdp2-zero2": ("fully_shard", {"reshard_after_forward": False}),
    # FSDP2 inside groups of ``shard`` ranks, neighbours so that the heavy traffic stays inside a
    # node; gradients are all-reduced between the groups.
    "hsdp": ("fully_shard", {"reshard_after_forward": True, "replicates": True}),
    # 1F1B (Narayanan et al. 2019): at most pp micro-batches are alive on a rank.
    "pp": ("pipeline", {"schedule": "Schedule1F1B"}),
    # All micro-batches are alive at the turn (Huang et al. 2019).
    "pp-gpipe": ("pipeline", {"schedule": "ScheduleGPipe"}),
    # Several stages on every rank (Narayanan et al. 2021).
    "pp-interleaved": ("pipeline", {"schedule": "ScheduleInterleaved1F1B"}),
    "tp": ("tensor", {"sequence": False}),
    "tp-sp": ("tensor", {"sequence": True}),
}
_SHARED = {"base", "mesh", *(file for file, _ in _VARIANTS.values())}
_ALIASES = {"dp": "ddp"}


@cache
def names() -> tuple[str, ...]:
    """All strategies, in alphabetical order: files by their names, with ``-`` for ``_``."""
    files = {one.name for one in pkgutil.iter_modules([str(Path(__file__).parent)])} - _SHARED
    return tuple(sorted([*_VARIANTS, *(file.replace("_", "-") for file in files)]))


def _strategy(name: str) -> Strategy:
    """A strategy, imported when somebody uses it: some of torch takes as long to import as all of
    it, in every rank."""
    file, how = _VARIANTS.get(name, (name.replace("-", "_"), {}))
    module = importlib.import_module(f"{__name__}.{file}")
    return Strategy(name, module.KIND, partial(module.checks, **how), partial(module.apply, **how))


def resolve(name: str) -> list[Strategy]:
    """The strategies of a joined name, in the order in which they are applied.

    Names are joined by ``+``, at most one of each kind. Raises AdvisorError.
    """
    parts = [_ALIASES.get(part, part) for part in name.split("+")]
    known = names()
    for part in parts:
        if part not in known:
            raise AdvisorError(f"unknown strategy '{part}'", hint=f"known: {', '.join(known)}")
    found = sorted(map(_strategy, parts), key=lambda part: ORDER.index(part.kind))
    for first, second in pairwise(found):
        if first.kind == second.kind:
            raise AdvisorError(
                f"strategies {first.name} and {second.name} are both {first.kind} parallelism",
                hint="join strategies of different kinds",
            )
    return found


def prepare(workload: Workload) -> tuple[Workload, Degrees]:
    """Refuse what cannot work, before launch; all reasons in one AdvisorError.

    Returns the workload with gradient_accumulation worked out from global_batch, and the degrees.
    """
    parts = resolve(workload.strategy)
    shape = models.shape_of(workload)
    degrees, problems = mesh.degrees(workload, parts)
    if workload.global_batch is not None and not problems:
        workload, problems = _accumulate(workload, workload.global_batch, degrees)
    problems += models.checks(workload, shape)
    if workload.world_size == 1 and any(part.name != "single" for part in parts):
        problems.append(
            f"strategy {workload.strategy} and world_size 1: no other rank to work with; "
            "use strategy single, or 2 ranks or more"
        )
    if not problems:
        case = Case(workload, shape, degrees, tuple(part.name for part in parts))
        problems = [problem for part in parts for problem in part.checks(case)]
    if problems:
        raise AdvisorError("\n".join(problems), where=f"strategy {workload.strategy}")
    return workload, degrees


def apply(job: Job) -> None:
    """Apply the workload's strategy to a job, in the order explained above."""
    for part in cut(job):
        part.apply(job)
    if job.build_schedule is not None:
        job.build_schedule()
    if job.optimizer is None:
        job.optimizer = default_optimizer(job)


def cut(job: Job) -> list[Strategy]:
    """The part that divides the model; what data parallelism goes around it is returned.

    It needs no data and no device, so that a plan can run it on torch's meta device.
    """
    found = resolve(job.workload.strategy)
    job.meshes = mesh.build(job.degrees, job.device.type)
    job.data_rank = mesh.data_rank(job.degrees, job.rank)
    job.autocast = job.workload.precision == "bf16"
    around = [one for one in found if one.kind == "data"]
    if not around and job.degrees.data > 1:
        around = [_strategy("ddp")]
    for one in found:
        if one not in around:
            one.apply(job)
    if job.workload.activation_checkpointing == "full":
        for part in job.parts:
            for layer in layers_of(part):
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    job.details |= sizes.held(job)
    return around


def _accumulate(
    workload: Workload, global_batch: int, degrees: Degrees
) -> tuple[Workload, list[str]]:
    at_once = workload.micro_batch * degrees.data
    if global_batch % at_once:
        return workload, [
            f"global_batch {global_batch} and micro_batch {workload.micro_batch} on {degrees.data} "
            f"data-parallel ranks: not a multiple of {at_once}; set global_batch to "
            f"{max(1, round(global_batch / at_once)) * at_once}, or another micro_batch"
        ]
    settled = {"gradient_accumulation": global_batch // at_once, "global_batch": None}
    return workload.model_copy(update=settled), []
