"""Shared by the FSDP1 strategies: torch's first FullyShardedDataParallel, layer by layer."""

from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from advisor.config.workload import Workload
from advisor.profile.strategies.base import Case, Job, alone, layers_of

KIND = "data"


def checks(case: Case, **_: object) -> list[str]:
    """FSDP1 wraps every layer by itself and knows neither DTensors nor pipelines nor experts."""
    name, degrees, workload = case.names[-1], case.degrees, case.workload
    problems = alone(name, tp=degrees.tensor, pp=degrees.pipeline, ep=degrees.expert)
    if workload.wrap_layers != 1:
        problems.append(
            f"strategy {name} and wrap_layers {workload.wrap_layers}: only fsdp2 groups layers"
        )
    return problems


def apply(job: Job, *, strategy: str) -> None:
    """Wrap the model."""
    workload = job.workload
    (model,) = job.parts
    job.autocast = False
    wrapped = FullyShardedDataParallel(
        model,
        process_group=job.data_group(),
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=ModuleWrapPolicy({type(layer) for layer in layers_of(model)}),
        mixed_precision=_precision(workload),
        device_id=job.device,
        forward_prefetch=workload.prefetch_forward > 0,
        use_orig_params=True,
    )
    job.parts = [wrapped]
    if not workload.sync_every_micro_batch:
        job.micro_batch_context = lambda last: nullcontext() if last else wrapped.no_sync()


def _precision(workload: Workload) -> MixedPrecision | None:
    if workload.precision == "fp32":
        return None
    reduce = torch.bfloat16 if workload.reduce_precision == "bf16" else torch.float32
    return MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce)
