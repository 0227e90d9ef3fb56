"""What to write in a script for a setting that the hook applied, in the words of its library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Library that builds the wrapper -> setting -> what to write. Sources: torch 2.13
# nn/parallel/distributed.py, distributed/fsdp/_fully_shard; transformers 5.23 TrainingArguments;
# accelerate 1.15 utils/dataclasses.py (DistributedDataParallelKwargs); lightning 2.6
# pytorch/strategies/ddp.py.
_DDP = "DistributedDataParallel(model, {name}={value})"
_ACCELERATE = "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({name}={value})])"
_LIGHTNING = "Trainer(strategy=DDPStrategy({name}={value}))"
_TRAINER = {
    "bucket_cap_mb": "TrainingArguments(ddp_bucket_cap_mb={value})",
    "find_unused_parameters": "TrainingArguments(ddp_find_unused_parameters={value})",
    "static_graph": "TrainingArguments(ddp_static_graph={value})",
    "gradient_as_bucket_view": (
        "from accelerate import DistributedDataParallelKwargs; trainer.accelerator.ddp_handler = "
        "DistributedDataParallelKwargs({name}={value}), before trainer.train()"
    ),
}
_HOOKS = "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks; "
_HOOK = "default_hooks.{value}_compress_hook"
_COMM_HOOK = {
    "": _HOOKS + "model.register_comm_hook(None, " + _HOOK + ")",
    # Before its training begins the Trainer has wrapped nothing.
    "transformers": _HOOKS
    + "in a TrainerCallback's on_train_begin: trainer.model_wrapped.register_comm_hook(None, "
    + _HOOK
    + ")",
    "accelerate": "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs("
    "comm_hook=DDPCommunicationHookType.{upper})])",
    "lightning": _HOOKS + "Trainer(strategy=DDPStrategy(ddp_comm_hook=" + _HOOK + "))",
}
_ON_A_CPU = "; on a CPU also model._set_unshard_async_op(True)"
_FSDP2 = {
    "reshard_after_forward": "fully_shard(module, reshard_after_forward={value})",
    "reduce_precision": (
        "fully_shard(module, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.{dtype}))"
    ),
    "prefetch_forward": (
        "for each unit, in the order in which they run: "
        "unit.set_modules_to_forward_prefetch([the next {value}])" + _ON_A_CPU
    ),
    "prefetch_backward": (
        "for each unit, in the reverse order: "
        "unit.set_modules_to_backward_prefetch([the next {value}])" + _ON_A_CPU
    ),
}
_FSDP1 = {
    "reshard_after_forward": (
        "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"
    ),
    "prefetch_forward": "FullyShardedDataParallel(model, forward_prefetch={value})",
}
_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}


def how_to_write(settings: Mapping[str, Any], built: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each of ``settings``, for the wrapper and the library that built it."""
    return [
        _template(name, wrapper, str(how.get("made_by", ""))).format(
            name=name,
            value=int(value) if type(value) is float and value.is_integer() else value,
            upper=str(value).upper(),
            dtype=_DTYPES.get(str(value), str(value)),
        )
        for wrapper, how in built.items()
        for name, value in settings.items()
        if name in how
    ]


def _template(name: str, wrapper: str, library: str) -> str:
    library = "lightning" if library == "pytorch_lightning" else library
    if wrapper != "ddp":
        return {"fsdp1": _FSDP1, "fsdp2": _FSDP2}[wrapper][name]
    if name == "comm_hook":
        return _COMM_HOOK.get(library, _COMM_HOOK[""])
    if library == "transformers":
        return _TRAINER[name]
    return {"accelerate": _ACCELERATE, "lightning": _LIGHTNING}.get(library, _DDP)
