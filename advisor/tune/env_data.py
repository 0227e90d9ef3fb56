"""What is known of NCCL's environment variables: nccl_variables.csv and env_leftovers.yaml."""

from __future__ import annotations

import csv
import re
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from advisor.config.loader import load_model
from advisor.model.nccl.version import NcclVersion, parse_version

Severity = Literal["error", "warning", "info"]

# The newest release whose variables were read.
NEWEST: NcclVersion = (2, 30, 7)

_CLASSES = {
    "S": "system configuration: may stay in scripts",
    "D": "debugging: the guide says not to keep it in production or scripts",
    "U": "undocumented: may change or vanish with any release",
    "": "",
}


@dataclass(frozen=True)
class EnvIssue:
    """One thing to know about one setting.

    `since` and `until` are the NCCL releases for which it holds ('' where it always did, or
    still does); `category` is the guide's class S, D, U or ''.
    """

    variable: str
    value: str
    severity: Severity
    title: str
    why: str
    action: str
    category: str = ""
    since: str = ""
    until: str = ""
    line: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the class in words."""
        return {**asdict(self), "category_means": _CLASSES[self.category]}


def _valid_pattern(value: str) -> str:
    re.compile(value)
    return value


def _valid_release(value: str) -> str:
    parse_version(value)
    return value


Release = Annotated[str, AfterValidator(_valid_release)]


@dataclass(frozen=True)
class Variable:
    """One variable: releases that read it, its class in the guide, defaults by release."""

    name: str
    since: NcclVersion | None
    until: NcclVersion | None
    category: str
    defaults: tuple[tuple[NcclVersion, int | None], ...]

    def default(self, version: NcclVersion) -> int | None:
        """The plain numeric default in that release; None when there is none."""
        found = None
        for since, value in self.defaults:
            if since <= version:
                found = value
        return found


class Leftover(BaseModel):
    """A setting that is usually left over, and what it costs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variable: str
    when: Annotated[str, AfterValidator(_valid_pattern)]
    severity: Severity
    title: str
    why: str
    action: str
    since: Release | None = None
    until: Release | None = None


class Renamed(BaseModel):
    """A name that another has replaced."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: str
    source: str
    since: Release | None = None


class EnvRules(BaseModel):
    """The whole of env_leftovers.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    leftovers: list[Leftover]
    renamed: dict[str, Renamed]
    foreign: list[str]


@cache
def variables() -> dict[str, Variable]:
    """Every variable NCCL's source reads or read, by name."""
    text = files("advisor.tune").joinpath("nccl_variables.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {row["name"]: _variable(row) for row in csv.DictReader(lines)}


def _variable(row: dict[str, str]) -> Variable:
    defaults = []
    for item in row["defaults"].split():
        since, _, value = item.partition("=")
        defaults.append((parse_version(since), int(value) if value else None))
    return Variable(
        name=row["name"],
        since=parse_version(row["since"]) if row["since"] else None,
        until=parse_version(row["until"]) if row["until"] else None,
        category=row["class"],
        defaults=tuple(defaults),
    )


@cache
def env_rules() -> EnvRules:
    """Leftovers, renamed and foreign names."""
    return load_model(Path(__file__).with_name("env_leftovers.yaml"), EnvRules)
