"""Applies settings where a script builds its wrappers, and notes what the script itself asked for.

DDP's and FSDP1's constructors, ``fully_shard`` and DeepSpeed's reading of its ZeRO settings are
wrapped: what ``wanted`` names replaces the script's. ``built`` has the present settings.
"""

import contextlib
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

wanted: dict[str, Any] = {}
built: dict[str, dict[str, Any]] = {}
"""Settings by wrapper (ddp, fsdp1, fsdp2, deepspeed); ``made_by``: the library that built it."""

_DDP = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters")
_DEFAULT_CAP_MB = 25  # torch.nn.parallel.DistributedDataParallel's own
_FABRIC = "lightning.fabric"
_LIBRARIES = (
    "transformers", "accelerate", "torchtitan",
    "lightning", "pytorch_lightning", "lightning_fabric",
)  # fmt: skip
# Decorators, auto-wrapping, and what deepspeed.initialize calls on its way.
_BETWEEN = ("torch", "advisor", "contextlib", "functools", "deepspeed")
# What each stage of ZeRO reads of its section (deepspeed/runtime/zero/config.py, by their aliases).
_ZERO = ("reduce_bucket_size", "overlap_comm", "contiguous_gradients")
_BY_STAGE = {
    1: _ZERO,
    2: _ZERO,
    3: (*_ZERO, "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"),
}
_HOOKS = {"fp16": "fp16_compress_hook", "bf16": "bf16_compress_hook"}
_sharded: list[Any] = []
_order_seen: list[Any] = []


def change_ddp() -> None:
    """From here on DDP takes the wanted settings."""
    from torch.nn.parallel import DistributedDataParallel

    build = DistributedDataParallel.__init__
    register = DistributedDataParallel.register_comm_hook
    signature = inspect.signature(build)

    @functools.wraps(build)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        asked = {name: bound.arguments[name] for name in _DDP}
        asked["bucket_cap_mb"] = asked["bucket_cap_mb"] or _DEFAULT_CAP_MB
        built.setdefault("ddp", {**asked, "comm_hook": "none", "made_by": _made_by()})
        bound.arguments.update({name: wanted[name] for name in _DDP if name in wanted})
        with _blaming_the_script():
            build(*bound.args, **bound.kwargs)
        _register(self)

    def _register(model: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        name = _HOOKS.get(str(wanted.get("comm_hook")))
        if name is not None:
            register(model, None, getattr(default_hooks, name))

    @functools.wraps(register)
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        built["ddp"]["comm_hook"] = getattr(hook, "__name__", type(hook).__name__)
        if "comm_hook" not in wanted:
            register(self, state, hook)

    DistributedDataParallel.__init__ = construct
    DistributedDataParallel.register_comm_hook = register_comm_hook


def change_fully_shard(module: ModuleType) -> None:
    """From here on ``fully_shard`` takes the wanted settings."""
    shard = module.fully_shard

    @functools.wraps(shard)
    def fully_shard(target: Any, **kwargs: Any) -> Any:
        policy = kwargs.get("mp_policy")
        reduce_dtype = getattr(policy, "reduce_dtype", None)
        built.setdefault(
            "fsdp2",
            {
                "reshard_after_forward": kwargs.get("reshard_after_forward") is not False,
                "reduce_precision": "bf16" if str(reduce_dtype) == "torch.bfloat16" else "fp32",
                "prefetch_forward": 0,
                "prefetch_backward": 0,
                "made_by": _made_by(),
            },
        )
        if "reshard_after_forward" in wanted:
            kwargs["reshard_after_forward"] = wanted["reshard_after_forward"]
        if "reduce_precision" in wanted:
            kwargs["mp_policy"] = _reducing(module, policy, str(wanted["reduce_precision"]))
        with _blaming_the_script():
            made = shard(target, **kwargs)
        units = made if isinstance(made, list) else [made]
        _sharded.extend((unit, unit.register_forward_pre_hook(_note_order)) for unit in units)
        return made

    module.fully_shard = fully_shard  # type: ignore[attr-defined]


def change_fsdp1(module: ModuleType) -> None:
    """From here on FullyShardedDataParallel takes the wanted settings."""
    wrapper = module.FullyShardedDataParallel
    build = wrapper.__init__

    @functools.wraps(build)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        strategy = module.ShardingStrategy
        shards = kwargs.get("sharding_strategy") in (None, strategy.FULL_SHARD)
        built.setdefault(
            "fsdp1",
            {
                "reshard_after_forward": shards,
                "prefetch_forward": int(bool(kwargs.get("forward_prefetch", False))),
                "made_by": _made_by(),
            },
        )
        if "prefetch_forward" in wanted:
            kwargs["forward_prefetch"] = bool(wanted["prefetch_forward"])
        if wanted.get("reshard_after_forward") is False and shards:
            kwargs["sharding_strategy"] = strategy.SHARD_GRAD_OP
        elif wanted.get("reshard_after_forward") and (
            kwargs.get("sharding_strategy") is strategy.SHARD_GRAD_OP
        ):
            kwargs["sharding_strategy"] = strategy.FULL_SHARD
        with _blaming_the_script():
            build(self, *args, **kwargs)

    wrapper.__init__ = construct


def change_deepspeed(module: ModuleType) -> None:
    """From here on ZeRO's section of a DeepSpeed configuration takes the wanted settings.

    It is read here whether ``deepspeed.initialize`` gets a dict, a file or its arguments' path.
    """
    read = module.get_zero_config

    @functools.wraps(read)
    def get_zero_config(document: Any) -> Any:
        found = read(document)
        fields = {
            name: name.removeprefix("stage3_") for name in _BY_STAGE.get(int(found.stage), ())
        }
        present = {name: getattr(found, f) for name, f in fields.items() if hasattr(found, f)}
        if not present:  # stage 0 has neither buckets nor partitions of ZeRO's
            return found
        built.setdefault("deepspeed", {"stage": int(found.stage), **present, "made_by": _made_by()})
        asked = {name: wanted[name] for name in present if name in wanted}
        if not asked:
            return found
        section = document["zero_optimization"]
        known = section if isinstance(section, dict) else {"stage": int(found.stage)}
        return read({**document, "zero_optimization": {**known, **asked}})

    module.get_zero_config = get_zero_config  # type: ignore[attr-defined]


def after_first_step() -> None:
    """The order in which sharded modules run is known now: set the prefetching that is wanted.

    A unit's gather is asked for while the one before it computes; in the backward pass the order
    is the reverse.
    """
    import torch

    for _, handle in _sharded:
        handle.remove()
    prefetches = any(wanted.get(f"prefetch_{setting}") for setting in ("forward", "backward"))
    if prefetches and not torch.cuda.is_initialized():
        # On a CPU a gather blocks its rank unless it is asked for asynchronously.
        for unit, _ in _sharded:
            unit._set_unshard_async_op(True)
    inner = _order_seen[1:]  # the root's own parameters are gathered first of all
    for setting, order in (("forward", inner), ("backward", inner[::-1])):
        depth = wanted.get(f"prefetch_{setting}")
        if depth is None:
            continue
        for place, module in enumerate(order):
            ahead = order[place + 1 : place + 1 + int(depth)]
            getattr(module, f"set_modules_to_{setting}_prefetch")(ahead)


def _note_order(module: Any, _: Any) -> None:
    if all(module is not seen for seen in _order_seen):
        _order_seen.append(module)


def _reducing(module: ModuleType, policy: Any, precision: str) -> Any:
    import dataclasses

    import torch

    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    present = policy if policy is not None else module.MixedPrecisionPolicy()
    return dataclasses.replace(present, reduce_dtype=dtype)


@contextlib.contextmanager
def _blaming_the_script() -> Iterator[None]:
    """A warning of the wrapper's own about how it is called names the line that calls it."""
    caller = sys._getframe(3)
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:
        for one in caught:
            ours = one.filename == __file__
            filename, line = (
                (caller.f_code.co_filename, caller.f_lineno) if ours else (one.filename, one.lineno)
            )
            warnings.warn_explicit(one.message, one.category, filename, line, source=one.source)


def _made_by() -> str:
    """The library whose code builds the wrapper; '' where the script itself does.

    A Trainer of Hugging Face builds DDP through Accelerate, and is set by its own arguments: of
    libraries that call each other the outermost. A script's own code ends the search, so that a
    wrapper which a LightningModule builds in its hooks is the script's.
    """
    found, frame = "", sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in _LIBRARIES:
            found = _FABRIC if module.startswith(f"{_FABRIC}.") else package
        elif package not in _BETWEEN:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return found
