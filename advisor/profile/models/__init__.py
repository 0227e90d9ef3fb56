"""Single-device models, one family per file: ``PRESETS`` of ``Shape`` and ``build(shape)``."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

from advisor.config.workload import ModelChoice
from advisor.errors import AdvisorError

_FRAME = "decoder"


def families() -> list[str]:
    """Names of the model families."""
    folder = str(Path(__file__).parent)
    return sorted(m.name for m in pkgutil.iter_modules([folder]) if m.name != _FRAME)


def family(name: str) -> ModuleType:
    """The module of a family. Raises AdvisorError for an unknown one."""
    if name not in families():
        raise AdvisorError(f"unknown model '{name}'", hint=f"known: {', '.join(families())}")
    return importlib.import_module(f"{__name__}.{name}")


def shape_of(choice: ModelChoice) -> Any:
    """The sizes that a workload asks for: its preset with its overrides."""
    module = family(choice.family)
    if choice.preset not in module.PRESETS:
        known = ", ".join(module.PRESETS)
        raise AdvisorError(
            f"model {choice.family} has no preset '{choice.preset}'", hint=f"known: {known}"
        )
    preset = module.PRESETS[choice.preset]
    fields = {field.name for field in dataclasses.fields(preset)}
    chosen = choice.model_dump(exclude={"family", "preset"}, exclude_none=True)
    unknown = sorted(set(chosen) - fields)
    if unknown:
        raise AdvisorError(f"model {choice.family} has no setting '{unknown[0]}'")
    try:
        return dataclasses.replace(preset, **chosen)
    except ValueError as error:
        raise AdvisorError(str(error), where=f"model {choice.family} {choice.preset}") from error


def build(choice: ModelChoice) -> Any:
    """The model (a ``Decoder``) with fresh weights, on torch's default device."""
    return family(choice.family).build(shape_of(choice))
