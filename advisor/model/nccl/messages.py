"""What NCCL, its plugins and torch print when something is wrong, and what is to be done about it.

The catalogue is data (messages.yaml): a pattern, its cause, its fix, where it was seen. Adding one
is one entry there. Readers ask :func:`tells` which unmarked lines to keep; the rule ``nccl-error``
joins the kept lines with :func:`messages`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from advisor.config.loader import load_model

_LONGEST = 2_000
# What a line that is no NCCL warning must hold to be looked at: cheap, and nearly never there.
_SIGNS = re.compile(r"NCCL|Watchdog|CUDA|NVRM|TCPStore|CudaError|libibverbs|AF_INET|Duplicate GPU")


class Message(BaseModel):
    """One entry. ``effect`` says whether a job dies of it, runs slower, or another rank died."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    pattern: str
    effect: Literal["dies", "degrades", "follows"]
    cause: str = Field(min_length=10, max_length=110)
    fix: str = Field(min_length=10, max_length=220)
    source: str = Field(pattern=r"^https://")
    anywhere: bool = False
    """Also in lines that are no warning of NCCL's: torch prints it, or NCCL as information."""


class _Messages(BaseModel):
    model_config = ConfigDict(extra="forbid")

    messages: list[Message]


@cache
def messages() -> tuple[Message, ...]:
    """The catalogue in its order: the first entry that fits a line names it."""
    path = Path(__file__).with_name("messages.yaml")
    return tuple(load_model(path, _Messages).messages)


def named(text: str) -> Message | None:
    """The entry that names a warning's text; None for one that nobody listed."""
    return next((item for item in messages() if re.search(item.pattern, text[:_LONGEST])), None)


def tells(line: str) -> bool:
    """Whether a line that is no warning of NCCL's is one that the catalogue names."""
    if _SIGNS.search(line, 0, _LONGEST) is None:
        return False
    return _anywhere().search(line, 0, _LONGEST) is not None


@cache
def _anywhere() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{item.pattern})" for item in messages() if item.anywhere))
