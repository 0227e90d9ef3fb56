"""What a fault is: what changes in a healthy job, where, which rule names it, which fix mends it.
The kinds are in faults_hardware.py, faults_host.py and faults_script.py.

Each is a function of (job, size, rng) that returns the faulty job; ``size`` is the wanted cost as
a share of the healthy step and ``step`` that step's length. What it really costs is simulated,
never taken from here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.gpulab.job import Job


@dataclass(frozen=True)
class Place:
    """Where a fault is; what is empty need not be named. ``direction``: 'send' or 'receive'."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    direction: str = ""
    edge: tuple[int, int] = ()  # type: ignore[assignment]
    stage: int = -1
    group: str = ""

    @property
    def given(self) -> bool:
        """Whether there is anything to find."""
        return bool(self.ranks or self.hosts or self.edge or self.stage >= 0 or self.group)


@dataclass(frozen=True)
class Made:
    """A fault as it was made. ``healthy`` replaces the base where the fault needs another one."""

    faulty: Job
    place: Place = Place()
    healthy: Job | None = None
    without: tuple[tuple[str, Job], ...] = ()
    """Of several faults at once: rules, and the job without the fault that each of them names."""


@dataclass(frozen=True)
class Fault:
    """A kind. ``rules``: any of them, named first, is the cause; ``fixes``: patterns of which the
    first fix must match one."""

    kind: str
    rules: tuple[str, ...]
    fixes: tuple[str, ...]
    strategies: tuple[str, ...]
    make: Callable[[Job, float, float, random.Random], Made]
    hosts: int = 1
    """The least number of hosts."""


FAULTS: dict[str, Fault] = {}
ALL = ("ddp", "fsdp2", "hsdp")


def fault(
    kind: str, rules: str, fixes: str, strategies: tuple[str, ...] = ALL, hosts: int = 1
) -> Callable[[Callable[[Job, float, float, random.Random], Made]], None]:
    def register(make: Callable[[Job, float, float, random.Random], Made]) -> None:
        FAULTS[kind] = Fault(
            kind, tuple(rules.split()), tuple(fixes.split("; ")), strategies, make, hosts
        )

    return register
