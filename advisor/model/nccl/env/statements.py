"""What is known of single settings (statements.yaml): costs, new names, other programs' names."""

import re
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from advisor.config.loader import FileModel, load_model
from advisor.model.nccl.env.issue import Effect, EnvIssue, Severity
from advisor.model.nccl.releases import Release


def _valid_pattern(value: str) -> str:
    re.compile(value)
    return value


class Remark(FileModel):
    """What is said of a setting; in its texts {…} are figures of the case."""

    severity: Severity
    title: str
    why: str
    action: str
    source: str = ""
    since: str = ""
    until: str = ""
    effect: Effect = ""

    def of(self, name: str, value: str, **values: object) -> EnvIssue:
        """The remark on one setting, with the figures ``values``."""
        said = {
            field: getattr(self, field).format(name=name, value=value, **values)
            for field in Remark.model_fields
        }
        return EnvIssue(name, value, **said)


class Statement(Remark):
    """A value that costs something, by a pattern of what NCCL reads.

    ``several_nodes``: it holds only where the job has more than one.
    """

    variable: str
    when: Annotated[str, AfterValidator(_valid_pattern)]
    source: str
    since: Release = ""
    until: Release = ""
    several_nodes: bool = False


class Renamed(FileModel):
    """A name that another has replaced."""

    to: str
    source: str
    since: Release = ""


class Statements(FileModel):
    """The whole of statements.yaml."""

    costs: list[Statement]
    renamed: dict[str, Renamed]
    foreign: dict[str, str]
    remarks: dict[str, Remark]
    networks: dict[str, str]
    ranges: dict[str, tuple[int, int]]


@cache
def statements() -> Statements:
    """Costs, new names, names that other programs read, remarks, networks that plugins bring."""
    return load_model(Path(__file__).with_name("statements.yaml"), Statements)


def remark(code: str, name: str, value: str, **values: object) -> EnvIssue:
    """The remark ``code`` on one setting, with the figures ``values``."""
    return statements().remarks[code].of(name, value, **values)
