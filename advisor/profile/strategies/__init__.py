"""Parallelism, applied from outside to single-device models: one file per strategy, found by name.

A strategy module has

- ``NAME``, and ``KIND``: the dimension (pipeline, tensor, expert or data);
- ``checks(case)``: reasons why it cannot run, each naming both settings; asked before launch;
- ``apply(job)``: changes one rank's job.

Strategies of different kinds are joined by ``+`` and applied in a fixed order: the pipeline cuts
the model first; tensor and expert parallelism replace parts of its layers; activation checkpointing
wraps the layers as they then are; data parallelism goes around everything, because it reduces
whatever gradients come out; the pipeline's schedule and the optimizer are made last, of what all of
this left.

The strategies of DeepSpeed need its package, which is optional.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from torch.utils.checkpoint import checkpoint

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import models, sizes
from advisor.profile.strategies import mesh
from advisor.profile.strategies.base import Case, Degrees, Job, default_optimizer, layers_of

ORDER = ("pipeline", "tensor", "expert", "data")
_SHARED = {
    *("base", "ddp_hooks", "deepspeed_zero", "fsdp1", "fully_shard"),
    *("mesh", "pipeline", "tensor"),
}
_ALIASES = {"dp": "ddp"}


@cache
def names() -> tuple[str, ...]:
    """All strategies, in alphabetical order: files by their names, with ``-`` for ``_``."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(sorted(one.name.replace("_", "-") for one in modules if one.name not in _SHARED))


def _module(name: str) -> ModuleType:
    """A strategy, imported when somebody uses it: some of torch takes as long to import as all of
    it, in every rank."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def resolve(name: str) -> list[ModuleType]:
    """The modules of a strategy name, in the order in which they are applied.

    Names are joined by ``+``, at most one of each kind. Raises AdvisorError.
    """
    parts = [_ALIASES.get(part, part) for part in name.split("+")]
    known = names()
    for part in parts:
        if part not in known:
            raise AdvisorError(f"unknown strategy '{part}'", hint=f"known: {', '.join(known)}")
    modules = [_module(part) for part in parts]
    modules.sort(key=lambda module: ORDER.index(module.KIND))
    for first, second in pairwise(modules):
        if first.KIND == second.KIND:
            raise AdvisorError(
                f"strategies {first.NAME} and {second.NAME} are both {first.KIND} parallelism",
                hint="join strategies of different kinds",
            )
    return modules


def prepare(workload: Workload) -> tuple[Workload, Degrees]:
    """Refuse what cannot work, before launch; all reasons in one AdvisorError.

    Returns the workload with gradient_accumulation worked out from global_batch, and the degrees.
    """
    modules = resolve(workload.strategy)
    shape = models.shape_of(workload)
    degrees, problems = mesh.degrees(workload, modules)
    if workload.global_batch is not None and not problems:
        workload, problems = _accumulate(workload, workload.global_batch, degrees)
    problems += models.checks(workload, shape)
    if workload.world_size == 1 and any(module.NAME != "single" for module in modules):
        problems.append(
            f"strategy {workload.strategy} and world_size 1: no other rank to work with; "
            "use strategy single, or 2 ranks or more"
        )
    if not problems:
        case = Case(workload, shape, degrees, tuple(str(module.NAME) for module in modules))
        problems = [problem for module in modules for problem in module.checks(case)]
    if problems:
        raise AdvisorError("\n".join(problems), where=f"strategy {workload.strategy}")
    return workload, degrees


def check(workload: Workload) -> None:
    """As :func:`prepare`, for its refusals only."""
    prepare(workload)


def apply(job: Job) -> None:
    """Apply the workload's strategy to a job, in the order explained above."""
    for module in cut(job):
        module.apply(job)
    if job.build_schedule is not None:
        job.build_schedule()
    if job.optimizer is None:
        job.optimizer = default_optimizer(job)


def cut(job: Job) -> list[ModuleType]:
    """The part that divides the model; what data parallelism goes around it is returned.

    It needs no data and no device, so that a plan can run it on torch's meta device.
    """
    modules = resolve(job.workload.strategy)
    job.meshes = mesh.build(job.degrees, job.device.type)
    job.data_rank = mesh.data_rank(job.degrees, job.rank)
    job.autocast = job.workload.precision == "bf16"
    around = [module for module in modules if module.KIND == "data"]
    if not around and job.degrees.data > 1:
        around = [_module("ddp")]
    for module in modules:
        if module not in around:
            module.apply(job)
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
