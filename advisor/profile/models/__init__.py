"""Single-device models, one family per file: ``PRESETS`` of ``Shape`` and ``build(shape)``."""

import dataclasses
import importlib
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile.models import emulated
from advisor.profile.models.decoder import Decoder

_NOT_FAMILIES = {"decoder", "emulated"}


@cache
def families() -> tuple[str, ...]:
    """Names of the model families."""
    folder = str(Path(__file__).parent)
    names = {module.name for module in pkgutil.iter_modules([folder])}
    return tuple(sorted(names - _NOT_FAMILIES))


def family(name: str) -> ModuleType:
    """The module of a family. Raises AdvisorError for an unknown one."""
    if name not in families():
        raise AdvisorError(f"unknown model '{name}'", hint=f"known: {', '.join(families())}")
    return importlib.import_module(f"{__name__}.{name}")


def shape_of(workload: Workload) -> Any:
    """The sizes that a workload asks for: its preset with its overrides. Raises AdvisorError."""
    if workload.emulated is not None and workload.compute == "emulated":
        return emulated.shape_of(workload.emulated)
    choice = workload.model
    module = family(choice.family)
    where = f"model {choice.family} {choice.preset}"
    if choice.preset not in module.PRESETS:
        raise AdvisorError(
            "no such preset", where=where, hint=f"known: {', '.join(module.PRESETS)}"
        )
    preset = module.PRESETS[choice.preset]
    fields = {field.name for field in dataclasses.fields(preset)}
    chosen = choice.model_dump(exclude={"family", "preset"}, exclude_none=True)
    for unknown in sorted(set(chosen) - fields):
        raise AdvisorError(f"model {choice.family} has no setting '{unknown}'", where=where)
    try:
        return dataclasses.replace(preset, **chosen)
    except ValueError as error:
        raise AdvisorError(str(error), where=where) from error


def checks(workload: Workload, shape: Any) -> list[str]:
    """What the model cannot do with the workload's other settings."""
    if workload.sequence_length > shape.positions:
        return [
            f"sequence_length {workload.sequence_length} and model {workload.model.family} "
            f"{workload.model.preset}: it has {shape.positions} positions"
        ]
    return []


def build(workload: Workload) -> Decoder:
    """The model with fresh weights, on torch's default device."""
    shape = shape_of(workload)
    if workload.compute == "emulated":
        return emulated.build(shape)
    model: Decoder = family(workload.model.family).build(shape)
    return model


def outlined(workload: Workload) -> Decoder:
    """The model on torch's meta device: shapes without memory or values."""
    with torch.device("meta"), _NoValues():
        return build(workload)


class _NoValues(TorchFunctionMode):
    """No parameter gets first values: for random ones on the meta device torch imports its
    compiler, which takes as long as importing torch."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)
