"""Shared by the FSDP2 strategies: wraps layers, sets prefetch, precision and gradient sync.

Units are the layers (or groups of ``wrap_layers`` of them; 0 = the whole model at once) and then
the root, which holds the embedding and the head. FSDP2 names its own ranges in the trace:
``FSDP::all_gather (layers.3)``, ``FSDP::post_backward_reduce`` and so on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from advisor.config.workload import Workload
from advisor.profile.strategies.base import Case, Job, layers_of
from advisor.profile.strategies.mesh import BOTH, DATA

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


KIND = "data"


def checks(case: Case, *, replicates: bool = False, **_: object) -> list[str]:
    """Prefetch needs units to fetch ahead of the one that computes.

    Experts have a group of their own inside the data-parallel ranks, which leaves none for shards
    that are replicated.
    """
    workload, problems = case.workload, []
    size, layers = workload.wrap_layers, _most_layers(case)
    if not size or layers <= size:
        held = "" if size == 0 else f" on {layers} layer{'s' if layers > 1 else ''}"
        problems = [
            f"{setting} and wrap_layers {size}{held}: with one unit nothing can be fetched ahead"
            for setting in ("prefetch_forward", "prefetch_backward")
            if getattr(workload, setting)
        ]
    if replicates and case.degrees.expert > 1:
        problems.append("strategy hsdp and ep: both divide the data-parallel ranks")
    return problems


def _most_layers(case: Case) -> int:
    """Layers of the largest stage, or of the whole model."""
    if case.workload.stage_layers and case.degrees.pipeline > 1:
        return max(case.workload.stage_layers)
    stages = case.degrees.pipeline
    if "pp-interleaved" in case.names:
        stages *= case.workload.virtual_stages
    return -(-int(case.shape.layers) // stages)


def apply(job: Job, *, reshard_after_forward: bool, replicates: bool = False) -> None:
    """Shard all parts over the data-parallel ranks, if there are several.

    ``replicates``: over the inner dimension of their mesh, and replicate over the outer.
    """
    if job.degrees.data == 1:
        return
    workload = job.workload
    options: dict[str, Any] = {
        "mesh": job.meshes[BOTH if replicates else DATA],
        "mp_policy": precision(workload),
        "ignored_params": job.ignored_parameters or None,
    }
    job.autocast = False  # the policy casts parameters and inputs instead
    for part in job.parts:
        units = _units(layers_of(part), workload.wrap_layers)
        for unit in units:
            fully_shard(unit, reshard_after_forward=reshard_after_forward, **options)
        # The root is needed again as soon as the backward pass begins: never resharded before it.
        fully_shard(part, reshard_after_forward=False, **options)
        leaders = [unit[0] for unit in units]
        _prefetch(leaders, workload.prefetch_forward, "forward")
        _prefetch(leaders[::-1], workload.prefetch_backward, "backward")
    if job.build_schedule is None and not workload.sync_every_micro_batch:
        (root,) = job.parts

        @contextmanager
        def context(last: bool) -> Iterator[None]:
            root.set_requires_gradient_sync(last)
            root.set_is_last_backward(last)
            yield

        job.micro_batch_context = context


def precision(workload: Workload) -> MixedPrecisionPolicy:
    """bf16 computes in bf16 and reduces in float32 unless ``reduce_precision`` says otherwise."""
    compute = _DTYPES[workload.precision]
    reduce = _DTYPES[workload.reduce_precision or "fp32"]
    if compute == reduce == torch.float32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)


def _units(layers: list[nn.Module], size: int) -> list[list[nn.Module]]:
    if size == 0:
        return []
    return [layers[start : start + size] for start in range(0, len(layers), size)]


def _prefetch(units: list[FSDPModule], ahead: int, direction: str) -> None:
    if ahead == 0:
        return
    for position, unit in enumerate(units):
        following = units[position + 1 : position + 1 + ahead]
        if following:
            getattr(unit, f"set_modules_to_{direction}_prefetch")(following)
