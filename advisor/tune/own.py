"""Somebody's own command as the job of a sweep: settings reach it by its environment and the hook.

The recommendation says what to write in the script; until then ``run.sh`` starts the command with
the hook, which applies it.
"""

import json
import math
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.config.atomic_files import write_atomic
from advisor.config.own import TRIAL_FOLDER, OwnJob
from advisor.config.script_words import how_to_write
from advisor.config.sweep import Configuration
from advisor.errors import AdvisorError
from advisor.profile import own
from advisor.profile.failures import LaunchError
from advisor.profile.hook import order
from advisor.tune.job import Limits, Timed, settings_of, variables_of
from advisor.tune.reference import timed
from advisor.vocabulary.numbers import real

# Steps recorded after the timed ones, so that every trial can be diagnosed.
_TRACED_STEPS = 2
_LEAST_SAMPLES = 3
_LEAST_NUMBERS = 2 * _LEAST_SAMPLES - 1  # the first half is start and warm-up
_FIND_S = 30.0
# Says what the expression holds; a process of its own, as one that nests repeats may never end.
_FIND = """
import json, re, sys
objective, log = json.load(sys.stdin)
with open(log, encoding="utf-8", errors="replace") as file:
    json.dump(re.findall(objective, file.read()), sys.stdout)
"""


@dataclass(frozen=True)
class OwnCommand:
    """``built`` is what the script's wrappers are (:mod:`advisor.profile.hook.construction`)."""

    job: OwnJob
    built: dict[str, dict[str, Any]]
    world_size: int = 0
    traced: int = _TRACED_STEPS
    device: str = "cuda"

    @property
    def name(self) -> str:
        """Its own, or its script's."""
        return self.job.title

    @property
    def is_emulated(self) -> bool:
        """Never: its compute is its own."""
        return False

    def document(self) -> dict[str, Any]:
        """The job as given."""
        return {"own": self.job.model_dump(mode="json")}

    def assumptions(self) -> list[str]:
        """What a recommendation holds for."""
        return [
            f"{self.world_size} ranks, started as: {own.written(self.job.command)}",
            "the same torch, backend and links; check again after changing one of them",
            f"steps {self.job.warmup_steps + 1} to "
            f"{self.job.warmup_steps + self.job.timed_steps} stand for the job",
        ]

    def run(self, configuration: Configuration, folder: Path, limits: Limits) -> Timed:
        """One run, ended once its steps are timed and recorded."""
        return timed(self.look(configuration, folder, limits), objective=self._objective(folder))

    def look(
        self, configuration: Configuration, folder: Path, limits: Limits
    ) -> list[dict[str, Any]]:
        """The same; what each rank left. Raises LaunchError."""
        asked = order.Order(
            str(folder.resolve()),
            warmup=self.job.warmup_steps,
            steps=self.job.timed_steps,
            traced=self.traced,
            settings=settings_of(configuration),
            variables=_set(configuration),
            ends=not self.job.runs_to_its_end,
            stop_above_ns=None if self.job.objective else limits.stop_above_cost,
        )
        variables = {k: v for k, v in os.environ.items() if k not in variables_of(configuration)}
        variables |= _set(configuration)
        place = str((folder / "job").resolve())
        command = [part.replace(TRIAL_FOLDER, place) for part in self.job.command]
        return own.run(command, asked, variables, timeout_s=limits.timeout_s)

    def refuse_rare_numbers(self, folder: Path) -> None:
        """Raise AdvisorError where a trial's output would hold too few numbers for the objective,
        as the output of this run in ``folder`` tells."""
        if self.job.objective is None:
            return
        found = len(_numbers(self.job.objective, folder / own.LOG))
        steps = self.job.warmup_steps + self.job.timed_steps
        ran = steps + self.traced
        trial = ran if self.job.runs_to_its_end else steps + _TRACED_STEPS
        if found * trial >= _LEAST_NUMBERS * ran:
            return
        more = math.ceil(_LEAST_NUMBERS * ran / max(found, 1)) - trial + self.job.timed_steps
        hint = "let the command make more steps" if self.job.runs_to_its_end else f"--steps {more}"
        raise AdvisorError(
            f"the output of {ran} steps has {found} numbers for the objective "
            f"{self.job.objective!r}; a trial needs {_LEAST_NUMBERS}",
            hint=hint if found else f"write it as the job does: see {folder / own.LOG}",
        )

    def _objective(self, folder: Path) -> list[float]:
        """What the job's output says, as a cost; [] without a pattern. Raises LaunchError."""
        if self.job.objective is None:
            return []
        found = map(real, _numbers(self.job.objective, folder / own.LOG))
        said = [number for number in found if number is not None]
        values = said[len(said) // 2 :]
        if len(values) < _LEAST_SAMPLES or any(value <= 0 for value in values):
            raise LaunchError(
                f"the output has {len(values)} usable numbers for the objective "
                f"{self.job.objective!r}; {_LEAST_SAMPLES} positive ones are needed",
                hint=f"see {folder / own.LOG}; ask for more steps with --steps",
            )
        return values if self.job.lower_is_better else [1 / value for value in values]

    def write(self, changes: Configuration, folder: Path, note: str) -> list[Path]:
        """run.sh: the command with the winner's variables, its settings applied by the hook."""
        settings = settings_of(changes)
        lines = [f". {shlex.quote(str((folder / 'env.sh').resolve()))}"]
        if settings:
            asked = order.Order(
                str((folder / "recommended").resolve()), settings=settings, variables=_set(changes)
            )
            wanted = order.environment(asked, {})
            path = f'{shlex.quote(wanted["PYTHONPATH"])}"${{PYTHONPATH:+:$PYTHONPATH}}"'
            lines += [
                "# Until the script says it itself, the hook applies: "
                + ", ".join(f"{name}={value}" for name, value in settings.items()),
                f"export PYTHONPATH={path}",
                f"export {order.VARIABLE}={shlex.quote(wanted[order.VARIABLE])}",
            ]
        lines.append(f"exec {own.written(self.job.command)}")
        text = "\n".join(["#!/bin/sh", note.rstrip(), "set -eu", *lines])
        return [write_atomic(folder / "run.sh", f"{text}\n", mode=0o700)]

    def how_to_set(self, changes: Configuration) -> list[str]:
        """A line for each setting of torch: what to write in this script."""
        return how_to_write(settings_of(changes), self.built, self.device)


def _set(configuration: Configuration) -> dict[str, str]:
    return {k: v for k, v in variables_of(configuration).items() if v is not None}


def _numbers(objective: str, log: Path) -> list[str]:
    """What the objective's group holds wherever it is found in the output. Raises LaunchError."""
    try:
        ended = subprocess.run(
            [sys.executable, "-I", "-c", _FIND],
            input=json.dumps([objective, str(log)]),
            capture_output=True,
            check=True,
            text=True,
            timeout=_FIND_S,
        )
    except subprocess.SubprocessError as error:
        raise LaunchError(
            f"{log} cannot be searched for the objective {objective!r} within {_FIND_S:.0f} s",
            hint="a repeat inside a repeat, as in (?:a+)+, may never end: write it without",
        ) from error
    found: list[str] = json.loads(ended.stdout)
    return found
