"""Shared by the tensor-parallel strategies: Megatron's column and row cuts as a DTensor plan.

In every layer the first linear maps are cut by columns and the last by rows, so that one all-reduce
after attention and one after the MLP restore the activations, and two more in the backward pass
their gradients (Shoeybi et al. 2019). With sequence parallelism each all-reduce becomes a
reduce-scatter and an all-gather, and the norms work on a slice of the sequence (Korthikanti et al.
2022). Embedding and head stay whole on every rank: their gradients are equal there by themselves.
"""

from functools import partial
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from advisor.profile.strategies import mesh
from advisor.profile.strategies.base import Case, Job, layers_of

_BY_COLUMNS = {"query_key_value", "query", "key", "value", "up", "gate"}
_BY_ROWS = {"output", "down"}
_BLOCKS = ("attention", "mlp")
_NORMS = ("attention_norm", "mlp_norm")
_SEQUENCE = Shard(1)


KIND = "tensor"


def checks(case: Case, *, sequence: bool) -> list[str]:
    """Heads, widths (and the sequence) must be divisible; experts are cut by ep instead."""
    size, shape, workload = case.degrees.tensor, case.shape, case.workload
    problems = []
    if workload.compute == "emulated":
        return [f"tp {size} and compute emulated: emulated layers have no matrices to cut"]
    if workload.model.family == "moe":
        return [f"tp {size} and model moe: its experts are spread by strategy ep"]
    problems += [
        f"tp {size} and {setting} {getattr(shape, setting)}: must be a divisor"
        for setting in ("heads", "key_value_heads")
        if getattr(shape, setting) % size
    ]
    if sequence and workload.sequence_length % size:
        problems.append(
            f"tp {size} and sequence_length {workload.sequence_length}: tp-sp cuts the sequence"
        )
    return problems


def apply(job: Job, *, sequence: bool) -> None:
    """Cut the layers of all parts over the tensor-parallel ranks."""
    if job.degrees.tensor == 1:
        return
    ranks = job.meshes[mesh.TENSOR]
    for part in job.parts:
        for layer in layers_of(part):
            parallelize_module(layer, ranks, _plan(layer, sequence=sequence))
        if sequence:
            _cut_sequence_around(part, ranks)
    if sequence:
        job.after_backward.append(partial(_add_up_slices, job))


def _plan(layer: nn.Module, *, sequence: bool) -> dict[str, Any]:
    outside = _SEQUENCE if sequence else Replicate()
    plan: dict[str, Any] = {}
    for name, module in layer.named_modules():
        leaf = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and leaf in _BY_COLUMNS:
            plan[name] = ColwiseParallel()
        elif isinstance(module, nn.Linear) and leaf in _BY_ROWS:
            plan[name] = RowwiseParallel(output_layouts=outside)
    for block in _BLOCKS:
        # Once per block, so that the gradients of several column cuts share one all-reduce.
        plan[block] = PrepareModuleInput(
            input_layouts=(outside,), desired_input_layouts=(Replicate(),)
        )
    if sequence:
        plan |= dict.fromkeys(_NORMS, SequenceParallel())
    return plan


def _add_up_slices(job: Job) -> None:
    """Make the norms' gradients whole, once: each rank saw its slice of the sequence.

    Left as they are, DTensor adds them up anew wherever the optimizer uses them (AdamW: three
    times). Data parallelism has done it already where there is any.
    """
    for parameter in job.parameters():
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(p.is_partial() for p in gradient.placements):
            whole = [Replicate() if p.is_partial() else p for p in gradient.placements]
            parameter.grad = gradient.redistribute(placements=whole)


def _cut_sequence_around(part: nn.Module, ranks: Any) -> None:
    """The first layer gets its slice of the sequence, the head the whole of it again."""
    if part.embedding is not None:
        give = PrepareModuleOutput(
            output_layouts=(Replicate(),), desired_output_layouts=(_SEQUENCE,)
        )
        parallelize_module(part.embedding, ranks, give)
    if part.head is not None:
        take = PrepareModuleInput(
            input_layouts=(_SEQUENCE,), desired_input_layouts=(Replicate(),), use_local_output=True
        )
        parallelize_module(part.head, ranks, {"norm": SequenceParallel(), "vocabulary": take})
