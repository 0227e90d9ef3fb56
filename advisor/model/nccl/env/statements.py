"""What is known of single settings (statements.yaml): costs, new names, other programs' names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from advisor.config.loader import load_model
from advisor.model.nccl.env.issue import Severity
from advisor.model.nccl.version import parse_version


def _valid_pattern(value: str) -> str:
    re.compile(value)
    return value


def _valid_release(value: str) -> str:
    parse_version(value)
    return value


Release = Annotated[str, AfterValidator(_valid_release)]


class Statement(BaseModel):
    """A value that costs something, by a pattern of what NCCL reads.

    ``several_nodes``: it holds only where the job has more than one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    variable: str
    when: Annotated[str, AfterValidator(_valid_pattern)]
    severity: Severity
    title: str
    why: str
    action: str
    source: str
    since: Release | None = None
    until: Release | None = None
    several_nodes: bool = False


class Renamed(BaseModel):
    """A name that another has replaced."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    to: str
    source: str
    since: Release | None = None


class Statements(BaseModel):
    """The whole of statements.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    costs: list[Statement]
    renamed: dict[str, Renamed]
    foreign: dict[str, str]
    networks: dict[str, str]


@cache
def statements() -> Statements:
    """Costs, new names, names that other programs read, networks that plugins bring."""
    return load_model(Path(__file__).with_name("statements.yaml"), Statements)
