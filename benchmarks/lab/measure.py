"""Measuring configurations in turn (A B C A B C …), each in fresh processes, and tracing some.

What is kept per configuration: ``config.json``, ``steps.json`` (per round, the ranks' timed steps
in ns, without the profiler) and ``traces/``.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from benchmarks.lab import runs
from benchmarks.lab.config import RunConfig, from_json
from benchmarks.lab.families import Family
from benchmarks.lab.hosts import Network
from benchmarks.lab.record import import_once
from benchmarks.lab.worker import Phase

ROUNDS = 2
TIMED_STEPS = 15
RECORDED_STEPS = 8
STEPS_FILE = "steps.json"
CONFIG_FILE = "config.json"
TRACES = "traces"
_ATTEMPTS = 2


def measure(
    configs: Mapping[str, RunConfig],
    traced: Collection[str],
    folder: Path,
    *,
    say: Callable[[str], None],
    rounds: int = ROUNDS,
) -> None:
    """Measure every configuration ``rounds`` times, in turn; trace those in ``traced`` at the end.

    Raises PhaseError when a configuration fails twice.
    """
    shutil.rmtree(folder, ignore_errors=True)
    times: dict[str, list[list[list[int]]]] = {name: [] for name in configs}
    with Network(max(config.hosts for config in configs.values())) as network:
        for number in range(rounds):
            began = time.monotonic()
            for name, config in configs.items():
                recorded = RECORDED_STEPS if number == rounds - 1 and name in traced else 0
                phase = Phase(folder / name / "phase", timed=TIMED_STEPS, recorded=recorded)
                times[name].append(_insist(network, config, phase))
                if recorded:
                    _keep_traces(phase.folder, folder / name / TRACES)
                runs.discard(phase.folder)
            say(f"{folder.name}: round {number + 1} took {time.monotonic() - began:.0f} s")
    for name, config in configs.items():
        (folder / name / CONFIG_FILE).write_text(config.to_json() + "\n")
    for name, of_rounds in times.items():
        (folder / name / STEPS_FILE).write_text(json.dumps(of_rounds) + "\n")


def is_recorded(family: Family, folder: Path) -> bool:
    """Whether all of a family was measured into ``folder``, with the settings that it has now."""
    return all(
        _is_measured(folder / family.name / name, config) for name, config in family.configs.items()
    )


def _is_measured(folder: Path, config: RunConfig) -> bool:
    if not (folder / STEPS_FILE).exists():
        return False
    return from_json((folder / CONFIG_FILE).read_text()) == config


def record_families(
    families: Iterable[Family], folder: Path, *, again: bool, say: Callable[[str], None]
) -> list[str]:
    """Measure the families into ``folder/<name>``; the names that failed. Present ones are kept."""
    import_once()
    failed = []
    for family in families:
        if is_recorded(family, folder) and not again:
            continue
        try:
            measure(family.configs, family.traced, folder / family.name, say=say)
        except runs.PhaseError as error:
            failed.append(family.name)
            say(f"{family.name}: failed: {error}")
    return failed


def round_medians_ns(folder: Path) -> list[int]:
    """Of one configuration, the step of each round: median over ranks of their median steps."""
    return [runs.step_ns(times) for times in json.loads((folder / STEPS_FILE).read_text())]


def _insist(network: Network, config: RunConfig, phase: Phase) -> list[list[int]]:
    """Once more where a phase failed: on a busy machine a rendezvous can run into its limit."""
    for attempt in range(_ATTEMPTS):
        try:
            return runs.run_phase(network, config, phase)
        except runs.PhaseError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _keep_traces(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.trace.json.gz")):
        path.rename(target / path.name)
