"""Parallelism, applied from outside to single-device models: one file per strategy, found by name.

A strategy module has ``NAME``, ``SUMMARY``, ``KIND`` (which dimension of parallelism it is),
``checks(workload)`` (reasons why it cannot run, naming both settings; asked before launch) and
``apply(job)``.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile.strategies.base import Job, default_optimizer

_NOT_STRATEGIES = {"base"}
ORDER = ("pipeline", "tensor", "expert", "data")


@cache
def available() -> dict[str, ModuleType]:
    """All strategies by name, in alphabetical order."""
    folder = str(Path(__file__).parent)
    found = {}
    for module in pkgutil.iter_modules([folder]):
        if module.name in _NOT_STRATEGIES:
            continue
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        found[str(loaded.NAME)] = loaded
    return dict(sorted(found.items()))


def resolve(name: str) -> list[ModuleType]:
    """The modules of a strategy name, in the order in which they are applied.

    Names are joined by ``+``, at most one of each kind. Raises AdvisorError.
    """
    known = available()
    modules = []
    for part in name.split("+"):
        if part not in known:
            raise AdvisorError(f"unknown strategy '{part}'", hint=f"known: {', '.join(known)}")
        modules.append(known[part])
    modules.sort(key=lambda module: ORDER.index(module.KIND))
    for first, second in pairwise(modules):
        if first.KIND == second.KIND:
            raise AdvisorError(
                f"strategies {first.NAME} and {second.NAME} are both {first.KIND} parallelism",
                hint="join strategies of different kinds",
            )
    return modules


def check(workload: Workload) -> None:
    """Refuse what cannot work, before launch. Raises AdvisorError with all reasons."""
    problems: list[str] = []
    for module in resolve(workload.strategy):
        problems += module.checks(workload)
    if problems:
        raise AdvisorError("\n".join(problems), where=f"strategy {workload.strategy}")


def apply(job: Job) -> None:
    """Apply the workload's strategy to a job, kind by kind, and give it an optimizer."""
    for module in resolve(job.workload.strategy):
        module.apply(job)
    if job.build_schedule is not None:
        job.build_schedule()
    if job.optimizer is None:
        job.optimizer = default_optimizer(job)
