"""Shapes of published models by name (models.yaml), and of files that describe one."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import create_model

from advisor.config.loader import FileModel, load_model, read_yaml
from advisor.config.workload import Workload, load_workload
from advisor.errors import AdvisorError
from advisor.model.transformer import TransformerShape

_ShapeFile: type[FileModel] = create_model(  # type: ignore[call-overload]
    "_ShapeFile",
    __base__=FileModel,
    **{
        item.name: (item.type, ... if item.default is MISSING else item.default)
        for item in fields(TransformerShape)
    },
)
"""The fields of TransformerShape, as a YAML file."""


class _Published(FileModel):
    """Models of one publication, with what they have in common."""

    source: str
    common: dict[str, int | bool]
    models: dict[str, dict[str, int | bool]]


class _Catalogue(FileModel):
    published: list[_Published]
    aliases: dict[str, str]
    workloads: dict[str, str]


@cache
def _catalogue() -> _Catalogue:
    return load_model(Path(__file__).with_name("models.yaml"), _Catalogue)


@cache
def presets() -> Mapping[str, TransformerShape]:
    """The shape of each published model, by name."""
    return {
        name: _shape({"name": name, "source": one.source, **one.common, **own})
        for one in _catalogue().published
        for name, own in one.models.items()
    }


def _shape(given: Mapping[str, Any]) -> TransformerShape:
    return TransformerShape(**_ShapeFile.model_validate(given).model_dump())


def preset(name: str) -> TransformerShape:
    """The shape called `name`, whatever its case. Raises AdvisorError with near names."""
    known, aliases = presets(), _catalogue().aliases
    key = name.strip().lower().replace("_", "-")
    key = aliases.get(key, key)
    if key in known:
        return known[key]
    close = get_close_matches(key, [*known, *aliases], n=3, cutoff=0.5)
    near = f"did you mean {' or '.join(close)}? " if close else ""
    raise AdvisorError(
        f"unknown model '{name}'", hint=f"{near}known models: {', '.join(sorted(known))}"
    )


@dataclass(frozen=True)
class ModelInput:
    """A shape, and the sequence length and global batch that came with it, if any."""

    shape: TransformerShape
    sequence: int | None = None
    global_batch: int | None = None


def read_model(name: str) -> ModelInput:
    """A preset by name, a YAML file with a shape, or a workload file of `advisor profile`.

    Raises AdvisorError (file and line).
    """
    if not name.endswith((".yaml", ".yml")):
        return ModelInput(preset(name))
    document = read_yaml(Path(name))
    if isinstance(document, Mapping) and "model" in document:
        return _from_workload(name, load_workload(Path(name)))
    try:
        return ModelInput(TransformerShape(**load_model(Path(name), _ShapeFile).model_dump()))
    except ValueError as error:
        raise AdvisorError(str(error), where=name) from error


def _from_workload(path: str, workload: Workload) -> ModelInput:
    choice = workload.model
    known, called = _catalogue().workloads, f"{choice.family}/{choice.preset}"
    if called not in known:
        raise AdvisorError(
            f"no plan for the preset {called}",
            where=path,
            hint=f"known: {', '.join(known)}; tiny presets are for trials on CPUs",
        )
    shape = presets()[known[called]]
    sizes = {"layers": choice.layers, "hidden": choice.hidden, "heads": choice.heads}
    sizes |= {"vocab": choice.vocabulary}
    changed: dict[str, Any] = {own: value for own, value in sizes.items() if value is not None}
    if choice.family == "gpt2" and choice.hidden is not None:
        changed["ffn_hidden"] = 4 * choice.hidden
    if choice.heads is not None:
        changed["kv_heads"] = min(shape.kv_heads, choice.heads)
    if changed:
        try:
            shape = replace(shape, **changed, head_dim=0, name=workload.name)
        except ValueError as error:
            raise AdvisorError(str(error), where=path) from error
    return ModelInput(shape, workload.sequence_length, workload.global_batch)
