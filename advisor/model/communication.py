"""Which library moves data in a kernel, with which operation: a look-up in communication.yaml.

The table holds names of kernels with where each was seen; nothing here knows a library.
"""

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from advisor.config.loader import FileModel, load_model
from advisor.vocabulary.operations import operation

LOOKED_AT = 1_024
"""Characters of a name that are looked at; the rest are arguments of templates.

RE2's patterns are linear there and quadratic in Python, and a name may be megabytes long.
"""


class Named(FileModel):
    """What a name of this pattern is, with where it was seen."""

    pattern: str
    source: str


class CommunicationKernel(Named):
    """Kernels of one library and operation."""

    library: str
    op: str
    bytes: Literal["c10d", "operator", "none"]


class ComputeKernel(Named):
    """Kernels that are known to compute."""

    what: str


class Communication(FileModel):
    """The whole table.

    ``operators`` of the host ask for communication; ``local`` kernels of libraries send nothing.
    """

    kernels: list[CommunicationKernel]
    operators: list[Named]
    local: list[Named]
    compute: list[ComputeKernel]


class Known(NamedTuple):
    """What a kernel's name tells; ``op`` is 'other' where only its launch does."""

    library: str
    op: str
    bytes_from: str


@cache
def communication() -> Communication:
    """The validated table."""
    return load_model(Path(__file__).with_suffix(".yaml"), Communication)


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
    if _local().search(name, 0, LOOKED_AT):
        return None
    for pattern, entry in _patterns():
        if pattern.search(name, 0, LOOKED_AT):
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
