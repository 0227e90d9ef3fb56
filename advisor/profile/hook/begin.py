"""Sets the hook to work in a process that has imported torch, module by module."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from advisor.profile.hook import construction, order, saves, steps

_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "torch.distributed.fsdp._fully_shard._fully_shard": construction.change_fully_shard,
    "torch.distributed.fsdp.fully_sharded_data_parallel": construction.change_fsdp1,
    "deepspeed.runtime.zero.config": construction.change_deepspeed,
}

# Calls that torch keeps with the time when they were asked for (docs.pytorch.org, flight recorder):
# releases from 2.8 on warn of the second name. What the user sets stays.
_FLIGHT_RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_CALLS_KEPT = "512"


def after_import(name: str, module: ModuleType) -> set[str]:
    """Do what module ``name`` waits for; the names of further modules to be told of."""
    asked = order.given()
    if asked is None:
        return set()
    if name != "torch":
        _CHANGES.get(name, saves.suppress)(module)
        return set()
    marker = order.loaded(Path(asked.folder))
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        if asked.ends:
            raise
        print(f"advisor: nothing is recorded, the job goes on: {error}", file=sys.stderr)
        return set()
    if asked.every and not any(name in os.environ for name in _FLIGHT_RECORDER):
        os.environ[_FLIGHT_RECORDER[module.__version__ < (2, 8)]] = _CALLS_KEPT
    construction.wanted.update(asked.settings)
    construction.change_ddp()
    steps.count(asked)
    if asked.ends:
        saves.suppress(module)
        return set(_CHANGES) | set(saves.WRITERS)
    return set(_CHANGES)
