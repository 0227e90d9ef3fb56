"""What a sweep needs of the job that it tunes: a reference workload, or somebody's own command."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from advisor.config.sweep import ENVIRONMENT_PREFIX, Configuration


@dataclass(frozen=True)
class Timed:
    """What a run gave: ``step_ns`` per step of the slowest rank.

    ``objective`` are samples of what is minimised where that is not the step; ``losses`` are the
    mean over ranks per step, from the first.
    """

    step_ns: list[int]
    tokens_per_step: int = 0
    peak_memory_bytes: int | None = None
    stopped_early: bool = False
    losses: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """Of one run: ``timeout_s`` without progress end it as hung; a cost (ns per token or step)
    clearly above ``stop_above_cost`` ends it as lost.
    """

    timeout_s: float
    stop_above_cost: float | None = None


class Job(Protocol):
    """``is_emulated``: layers wait instead of computing."""

    @property
    def name(self) -> str:
        """What its run is called."""

    @property
    def is_emulated(self) -> bool:
        """Whether layers wait instead of computing."""

    def document(self) -> dict[str, Any]:
        """What it is, for the journal: a sweep of another one is not resumed."""

    def assumptions(self) -> list[str]:
        """What a recommendation holds for."""

    def run(self, configuration: Configuration, folder: Path, limits: Limits) -> Timed:
        """One run. Raises LaunchError where it fails, AdvisorError where it is refused."""

    def write(self, changes: Configuration, folder: Path, note: str) -> list[Path]:
        """The files that run it with ``changes``; ``note`` is the comment at their head."""

    def how_to_set(self, changes: Configuration) -> list[str]:
        """What to write where for ``changes``, a line each; [] where the files say it."""


def settings_of(configuration: Configuration) -> Configuration:
    """What is no environment variable."""
    return {k: v for k, v in configuration.items() if not k.startswith(ENVIRONMENT_PREFIX)}


def variables_of(configuration: Configuration) -> dict[str, str | None]:
    """The environment variables without their prefix; None means not set."""
    return {
        name.removeprefix(ENVIRONMENT_PREFIX): None if value is None else str(value)
        for name, value in configuration.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


@contextlib.contextmanager
def environment(variables: dict[str, str | None]) -> Iterator[None]:
    """This process's environment with ``variables`` for a while."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set(variables)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
