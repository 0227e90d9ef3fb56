"""How the lab's model is trained: one function per strategy, from torch's own public parts.

Each builder returns a :class:`Job`: ``step(batch)`` does forward, backward and optimizer, annotated
with the names that the reader takes phases from.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from benchmarks.lab.config import RunConfig
from benchmarks.lab.layers import (
    ExpertLayer,
    TensorParallelLayer,
    make_model,
)

LEARNING_RATE = 1e-6


@dataclass
class Job:
    """``step`` runs one training step on a batch (one tensor per micro-batch)."""

    step: Callable[[list[torch.Tensor]], None]


def build(config: RunConfig, rank: int) -> Job:
    """The job of one rank; the default process group must exist."""
    return BUILDERS[config.strategy](config, rank)


def _loss(output: torch.Tensor) -> torch.Tensor:
    return output.mean()


def _train(
    config: RunConfig,
    model: nn.Module,
    optimizer: Any,
    *,
    quiet: Callable[[bool], contextlib.AbstractContextManager[Any]],
    after_backward: Callable[[], None] | None = None,
) -> Job:
    """A plain loop; ``quiet(is_last)`` switches gradient synchronisation per micro-batch."""

    def step(batch: list[torch.Tensor]) -> None:
        for number, micro in enumerate(batch):
            is_last = number == len(batch) - 1
            with quiet(is_last or config.sync_every_micro_batch):
                with record_function("## forward ##"):
                    loss = _loss(model(micro))
                with record_function("## backward ##"):
                    loss.backward()
        if after_backward is not None:
            after_backward()
        with record_function("## optimizer ##"):
            optimizer.step()
            optimizer.zero_grad()

    return Job(step)


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, foreach=True)


def _ddp_wrap(config: RunConfig, model: nn.Module, group: Any = None) -> Any:
    wrapped = DistributedDataParallel(
        model,
        process_group=group,
        bucket_cap_mb=config.bucket_cap_mb,
        find_unused_parameters=config.find_unused_parameters,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        static_graph=config.static_graph,
    )
    if config.gradient_dtype == "bfloat16":
        wrapped.register_comm_hook(group, _reduce_in_bfloat16)
    return wrapped


# No annotations: torch compares them with its own types, and here they would be strings.
def _reduce_in_bfloat16(group, bucket):  # type: ignore[no-untyped-def]
    """What torch's bf16_compress_hook does; that one refuses gloo."""
    buffer = bucket.buffer()
    narrow = buffer.to(torch.bfloat16).div_(dist.get_world_size(group))
    work = dist.all_reduce(narrow, group=group, async_op=True)
    return work.get_future().then(lambda done: buffer.copy_(done.value()[0]))


def _ddp_quiet(model: Any) -> Callable[[bool], contextlib.AbstractContextManager[Any]]:
    return lambda sync: contextlib.nullcontext() if sync else model.no_sync()


def _ddp(config: RunConfig, rank: int) -> Job:
    model = make_model(config, rank)
    if config.blocking:
        return _blocking(config, model)
    wrapped = _ddp_wrap(config, model)
    return _train(config, wrapped, _sgd(wrapped.parameters()), quiet=_ddp_quiet(wrapped))


def _blocking(config: RunConfig, model: nn.Module) -> Job:
    """Gradients reduced by hand as each becomes ready, the loop waiting for every one."""
    sync = True

    def reduce_now(parameter: torch.Tensor) -> None:
        if sync and parameter.grad is not None:
            dist.all_reduce(parameter.grad)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce_now)

    @contextlib.contextmanager
    def quiet(is_last: bool) -> Any:
        nonlocal sync
        sync = is_last
        yield

    return _train(config, model, _sgd(model.parameters()), quiet=quiet)


def _zero1(config: RunConfig, rank: int) -> Job:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    wrapped = _ddp_wrap(config, make_model(config, rank))
    optimizer = ZeroRedundancyOptimizer(
        wrapped.parameters(), optimizer_class=torch.optim.SGD, lr=LEARNING_RATE,
        parameters_as_bucket_view=True,
    )  # fmt: skip
    return _train(config, wrapped, optimizer, quiet=_ddp_quiet(wrapped))


def _fsdp(config: RunConfig, rank: int) -> Job:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if config.strategy == "hsdp":
        # Shard within pairs of neighbours, replicate across them.
        mesh = init_device_mesh(
            "cpu", (config.ranks // 2, 2), mesh_dim_names=("replicate", "shard")
        )
    else:
        mesh = init_device_mesh("cpu", (config.ranks,), mesh_dim_names=("shard",))
    reshard = config.strategy != "fsdp2-zero2" if config.reshard is None else config.reshard
    policy = (
        MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
        if config.gradient_dtype == "bfloat16"
        else MixedPrecisionPolicy()
    )
    model: Any = make_model(config, rank)
    layers = list(model.layers)
    wide = config.wrap_layers
    units = [layers[first : first + wide] for first in range(0, len(layers), wide)]
    for unit in units:
        whole = unit if wide > 1 else unit[0]
        fully_shard(whole, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    if config.prefetch:
        # On a CPU all-gathers overlap only when asked for ahead and asynchronously.
        model._set_unshard_async_op(True)
        leaders: list[Any] = [unit[0] for unit in units]
        for place, layer in enumerate(leaders):
            following = leaders[place + 1 : place + 1 + config.prefetch_forward]
            if following:
                layer.set_modules_to_forward_prefetch(following)
        for layer, after in itertools.pairwise(leaders):
            after.set_modules_to_backward_prefetch([layer])

    @contextlib.contextmanager
    def quiet(sync: bool) -> Any:
        model.set_requires_gradient_sync(sync)
        yield

    return _train(config, model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), quiet=quiet)


def _tensor(config: RunConfig, rank: int) -> Job:
    """Tensor parallel pairs, data parallel across them (pure tensor parallel on two ranks)."""
    pairs = config.ranks // 2
    if config.tensor_across_hosts:
        mesh = init_device_mesh("cpu", (2, pairs), mesh_dim_names=("tp", "dp"))
    else:
        mesh = init_device_mesh("cpu", (pairs, 2), mesh_dim_names=("dp", "tp"))
    group = mesh["tp"].get_group()
    model = make_model(config, rank, layer=lambda: TensorParallelLayer(config, rank, group))
    if pairs == 1:
        quiet = lambda _: contextlib.nullcontext()  # noqa: E731
        return _train(config, model, _sgd(model.parameters()), quiet=quiet)
    wrapped = _ddp_wrap(config, model, mesh["dp"].get_group())
    return _train(config, wrapped, _sgd(wrapped.parameters()), quiet=_ddp_quiet(wrapped))


def _expert(config: RunConfig, rank: int) -> Job:
    """Dense parts replicated, one expert per rank in every second layer."""
    model = make_model(config, rank)
    for number in range(1, config.layers, 2):
        model.layers[number] = ExpertLayer(config, rank)
    own = [name for name, _ in model.named_parameters() if ".expert." in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, own)
    wrapped = _ddp_wrap(config, model)
    return _train(config, wrapped, _sgd(model.parameters()), quiet=_ddp_quiet(wrapped))


def _pipeline(config: RunConfig, rank: int) -> Job:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    counts = config.stage_layers or _equal_parts(config.layers, config.ranks)
    stage_model = make_model(config, rank, layers=counts[rank])
    stage = PipelineStage(stage_model, rank, config.ranks, torch.device("cpu"))
    kind = ScheduleGPipe if config.strategy == "pp-gpipe" else Schedule1F1B
    schedule = kind(
        stage, n_microbatches=config.micro_batches, loss_fn=lambda output, _target: _loss(output)
    )
    optimizer = _sgd(stage_model.parameters())
    is_first, is_last = rank == 0, rank == config.ranks - 1

    def step(batch: list[torch.Tensor]) -> None:
        whole = torch.cat(batch)
        arguments = (whole,) if is_first else ()
        if is_last:
            schedule.step(*arguments, target=whole, losses=[])
        else:
            schedule.step(*arguments)
        with record_function("## optimizer ##"):
            optimizer.step()
            optimizer.zero_grad()

    return Job(step)


def _equal_parts(total: int, parts: int) -> tuple[int, ...]:
    return tuple(total // parts + (part < total % parts) for part in range(parts))


BUILDERS: dict[str, Callable[[RunConfig, int], Job]] = {
    "ddp": _ddp,
    "zero1": _zero1,
    "fsdp2": _fsdp,
    "fsdp2-zero2": _fsdp,
    "hsdp": _fsdp,
    "tp": _tensor,
    "pp": _pipeline,
    "pp-gpipe": _pipeline,
    "ep": _expert,
}
