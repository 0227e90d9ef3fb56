"""Shapes of published models by name; each entry says where its sizes were published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from advisor.config.loader import load_model, read_yaml
from advisor.config.workload import Workload, load_workload
from advisor.errors import AdvisorError
from advisor.model.transformer import TransformerShape

_GPT2 = "Radford et al. 2019; sizes as in the released gpt2 checkpoints' config.json"
_GPT3 = "Brown et al. 2020, arXiv:2005.14165, table 2.1"
_LLAMA1 = "Touvron et al. 2023, arXiv:2302.13971, table 2; FFN widths of the released params.json"
_LLAMA2 = "Touvron et al. 2023, arXiv:2307.09288; FFN widths of the released params.json"
_LLAMA3 = "Llama team 2024, arXiv:2407.21783, table 3"
_LLAMA32 = "Meta's Llama 3.2 1B model card and config.json, 2024"
_MIXTRAL = "Jiang et al. 2024, arXiv:2401.04088, table 1"


def _gpt(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    *,
    sequence: int = 1024,
    source: str = _GPT2,
) -> TransformerShape:
    return TransformerShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn_hidden=4 * hidden,
        vocab=50257,
        sequence=sequence,
        bias=True,
        tied_embeddings=True,
        learned_positions=True,
        norm_tensors=2,
        source=source,
    )


def _llama(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    ffn_hidden: int,
    source: str,
    *,
    kv_heads: int = 0,
    vocab: int = 32000,
    sequence: int = 2048,
    tied: bool = False,
    experts: int = 1,
    experts_per_token: int = 1,
) -> TransformerShape:
    return TransformerShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn_hidden=ffn_hidden,
        vocab=vocab,
        sequence=sequence,
        gated_mlp=True,
        tied_embeddings=tied,
        experts=experts,
        experts_per_token=experts_per_token,
        source=source,
    )


_ALL: tuple[TransformerShape, ...] = (
    _gpt("gpt2", 12, 768, 12),
    _gpt("gpt2-medium", 24, 1024, 16),
    _gpt("gpt2-large", 36, 1280, 20),
    _gpt("gpt2-xl", 48, 1600, 25),
    _gpt("gpt3-175b", 96, 12288, 96, sequence=2048, source=_GPT3),
    _llama("llama-7b", 32, 4096, 32, 11008, _LLAMA1),
    _llama("llama-13b", 40, 5120, 40, 13824, _LLAMA1),
    _llama("llama-33b", 60, 6656, 52, 17920, _LLAMA1),
    _llama("llama-65b", 80, 8192, 64, 22016, _LLAMA1),
    _llama("llama2-7b", 32, 4096, 32, 11008, _LLAMA2, sequence=4096),
    _llama("llama2-13b", 40, 5120, 40, 13824, _LLAMA2, sequence=4096),
    _llama("llama2-70b", 80, 8192, 64, 28672, _LLAMA2, kv_heads=8, sequence=4096),
    _llama(
        "llama3.2-1b",
        16,
        2048,
        32,
        8192,
        _LLAMA32,
        kv_heads=8,
        vocab=128256,
        sequence=131072,
        tied=True,
    ),
    _llama("llama3-8b", 32, 4096, 32, 14336, _LLAMA3, kv_heads=8, vocab=128256, sequence=8192),
    _llama("llama3-70b", 80, 8192, 64, 28672, _LLAMA3, kv_heads=8, vocab=128256, sequence=8192),
    _llama("llama3-405b", 126, 16384, 128, 53248, _LLAMA3, kv_heads=8, vocab=128256, sequence=8192),
    _llama(
        "mixtral-8x7b",
        32,
        4096,
        32,
        14336,
        _MIXTRAL,
        kv_heads=8,
        sequence=32768,
        experts=8,
        experts_per_token=2,
    ),
)

_ALL += (
    TransformerShape(
        name="deepseek-v3",
        layers=61,
        hidden=7168,
        heads=128,
        head_dim=160,
        ffn_hidden=18432,
        vocab=129280,
        sequence=4096,
        gated_mlp=True,
        experts=256,
        experts_per_token=8,
        expert_ffn_hidden=2048,
        shared_experts=1,
        dense_layers=3,
        # queries through rank 1,536, keys and values through 512; heads of 128 + 64 and of 128
        attention_parameters=7168 * 1536
        + 1536 * 128 * 192
        + 7168 * (512 + 64)
        + 512 * 128 * (128 + 128)
        + 128 * 128 * 7168,
        source="DeepSeek-AI 2024, arXiv:2412.19437, section 4.2, and config.json of the release",
    ),
)

PRESETS: dict[str, TransformerShape] = {shape.name: shape for shape in _ALL}

_ALIASES = {
    "gpt2-small": "gpt2",
    "gpt3": "gpt3-175b",
    "llama-70b": "llama2-70b",
    "llama2-70b-gqa": "llama2-70b",
    "llama-1b": "llama3.2-1b",
    "mixtral": "mixtral-8x7b",
}


def preset(name: str) -> TransformerShape:
    """The shape called `name`, whatever its case. Raises AdvisorError with near names."""
    key = name.strip().lower().replace("_", "-")
    key = _ALIASES.get(key, key)
    if key in PRESETS:
        return PRESETS[key]
    close = get_close_matches(key, [*PRESETS, *_ALIASES], n=3, cutoff=0.5)
    near = f"did you mean {' or '.join(close)}? " if close else ""
    raise AdvisorError(
        f"unknown model '{name}'", hint=f"{near}known models: {', '.join(sorted(PRESETS))}"
    )


class _ShapeFile(BaseModel):
    """The fields of TransformerShape, as a YAML file."""

    model_config = ConfigDict(extra="forbid")

    name: str
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    ffn_hidden: int = Field(ge=1)
    vocab: int = Field(ge=1)
    sequence: int = Field(ge=1)
    kv_heads: int = Field(default=0, ge=0)
    gated_mlp: bool = False
    bias: bool = False
    tied_embeddings: bool = False
    learned_positions: bool = False
    norm_tensors: int = Field(default=1, ge=1, le=2)
    experts: int = Field(default=1, ge=1)
    experts_per_token: int = Field(default=1, ge=1)
    head_dim: int = Field(default=0, ge=0)
    expert_ffn_hidden: int = Field(default=0, ge=0)
    shared_experts: int = Field(default=0, ge=0)
    dense_layers: int = Field(default=0, ge=0)
    attention_parameters: int = Field(default=0, ge=0)
    source: str = ""


# What a workload file calls them (model.family, model.preset).
_WORKLOAD_PRESETS = {
    ("gpt2", "small"): "gpt2",
    ("gpt2", "medium"): "gpt2-medium",
    ("gpt2", "large"): "gpt2-large",
    ("gpt2", "xl"): "gpt2-xl",
    ("llama", "1b"): "llama3.2-1b",
    ("llama", "7b"): "llama-7b",
    ("llama", "13b"): "llama-13b",
    ("llama", "70b"): "llama2-70b",
    ("moe", "8x7b"): "mixtral-8x7b",
}


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
    key = _WORKLOAD_PRESETS.get((choice.family, choice.preset))
    if key is None:
        known = ", ".join(f"{family}/{size}" for family, size in _WORKLOAD_PRESETS)
        raise AdvisorError(
            f"no plan for the preset {choice.family}/{choice.preset}",
            where=path,
            hint=f"known: {known}; tiny presets are for trials on CPUs",
        )
    shape = PRESETS[key]
    changed: dict[str, Any] = {
        own: value
        for own, value in (
            ("layers", choice.layers),
            ("hidden", choice.hidden),
            ("heads", choice.heads),
            ("vocab", choice.vocabulary),
        )
        if value is not None
    }
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
