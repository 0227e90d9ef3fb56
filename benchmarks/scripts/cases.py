"""The cases of ``cases.yaml``: which script, with which arguments, and what the tool must say."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from advisor.config.loader import read_plain

SCRIPTS = Path(__file__).parents[2] / "tests" / "scripts"


class Fault(BaseModel):
    """What is wrong in a run, and what the first finding must say of it."""

    model_config = ConfigDict(extra="forbid")
    cause: list[str]
    ranks: list[int] = []
    reason: str = ""
    both: str = ""
    mean: bool = False


class Script(BaseModel):
    """One script with its faults."""

    model_config = ConfigDict(extra="forbid")
    script: str
    arguments: str = ""
    link_mbit: float = 0.0
    records_itself: str = ""
    also: dict[str, str] = {}
    faults: dict[str, Fault]


@dataclass(frozen=True)
class Case:
    """One run: ``fault`` is None where it is healthy; ``both`` as in the file."""

    name: str
    script: Script
    fault: str | None = None
    both: str = ""

    @property
    def id(self) -> str:
        """Its folder's name."""
        extra = "".join(self.both.split()).replace("--", "+")
        return f"{self.name}/{self.fault or 'healthy'}{'' if self.fault else extra}"

    @property
    def truth(self) -> Fault | None:
        """What the fault is; None of a healthy run."""
        return self.script.faults[self.fault] if self.fault else None

    @property
    def healthy(self) -> Case:
        """The same without its fault."""
        return Case(self.name, self.script, None, self.both)

    def command(self, folder: Path) -> list[str]:
        """The script's own command line."""
        text = f"{self.script.arguments} {self.both}".replace("{folder}", str(folder))
        fault = ["--fault", self.fault] if self.fault else []
        return [str(SCRIPTS / self.script.script), *shlex.split(text), *fault]


def cases(only: str = "") -> Iterator[Case]:
    """Faulty cases, each right before the healthy one that it is compared with."""
    document = read_plain(Path(__file__).parent / "cases.yaml")
    for name, described in document.items():
        script = Script.model_validate(described)
        for fault, truth in script.faults.items():
            case = Case(name, script, fault, truth.both)
            if not only or any(case.id.startswith(part) for part in only.split(",")):
                yield case
