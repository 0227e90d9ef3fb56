"""Which library moves data in a kernel, with which operation: a look-up in communication.yaml.

The table holds names of kernels with where each was seen; nothing here knows a library.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple

from advisor.config.loader import FileModel, load_model
from advisor.vocabulary.operations import operation

"""Libraries that NCCL's settings and logs are about."""


class CommunicationKernel(FileModel):
    """Kernels of one library and operation."""

    library: str
    pattern: str
    op: str
    bytes: Literal["c10d", "operator", "none"]
    source: str


class AskingOperator(FileModel):
    """Host operators that ask for communication."""

    pattern: str
    source: str


class LocalKernel(FileModel):
    """Kernels of communication libraries that send nothing."""

    pattern: str
    source: str


class ComputeKernel(FileModel):
    """Kernels that are known to compute."""

    pattern: str
    what: str
    source: str


class Communication(FileModel):
    """The whole table."""

    kernels: list[CommunicationKernel]
    operators: list[AskingOperator]
    local: list[LocalKernel]
    compute: list[ComputeKernel]


class Known(NamedTuple):
    """What a kernel's name tells; ``op`` is 'other' where only its launch does."""

    library: str
    op: str
    bytes_from: str


@cache
def communication() -> Communication:
    """The validated table."""
    with resources.as_file(resources.files("advisor.model") / "communication.yaml") as path:
        return load_model(Path(path), Communication)


@cache
def _local() -> re.Pattern[str]:
    return re.compile("|".join(one.pattern for one in communication().local), re.ASCII)


@cache
def _patterns() -> list[tuple[re.Pattern[str], CommunicationKernel]]:
    return [(re.compile(one.pattern, re.ASCII), one) for one in communication().kernels]


@lru_cache(maxsize=10_000)
def known_kernel(name: str) -> Known | None:
    """The library and operation of a communication kernel; None for any other name.

    >>> known_kernel("void deep_ep::internode::dispatch<false, 8>(int4*)")
    Known(library='deep_ep', op='all_to_all', bytes_from='operator')
    """
    if _local().search(name):
        return None
    for pattern, entry in _patterns():
        if pattern.search(name):
            op = entry.op
            if op == "name":
                op = operation(name)
            return Known(entry.library, "other" if op == "recorded" else op, entry.bytes)
    return None


def asks_pattern() -> str:
    """RE2 of the host operators that ask for communication."""
    return "|".join(f"(?:{one.pattern})" for one in communication().operators)


def compute_pattern() -> str:
    """RE2 of the kernels that are known to compute."""
    return "|".join(f"(?:{one.pattern})" for one in communication().compute)
