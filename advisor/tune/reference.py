"""A reference workload as the job of a sweep: launched by us, its settings in its file."""

import io
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from advisor.config.atomic_files import write_atomic
from advisor.config.parsed import plain
from advisor.config.sweep import Configuration
from advisor.config.workload import Workload
from advisor.tune.job import Limits, Timed, environment, settings_of, variables_of

# Steps recorded after the timed ones, so that every trial can be diagnosed.
_TRACED_STEPS = 2
_EMULATED = (
    "compute: emulated: layers wait for as long as the workload says instead of computing; only "
    "communication and what hides it are real, so that the gain holds of no real job's step"
)


@dataclass(frozen=True)
class ReferenceJob:
    """``source`` is the workload's own file, whose comments are kept where it is written anew.

    ``timed_steps`` is what the user's workload says of them (None: nothing); trials may run more.
    """

    workload: Workload
    source: Path | None = None
    timed_steps: int | None = None

    @property
    def name(self) -> str:
        """The workload's."""
        return self.workload.name

    @property
    def is_emulated(self) -> bool:
        """Whether layers wait instead of computing."""
        return self.workload.compute == "emulated"

    def document(self) -> dict[str, Any]:
        """Every setting."""
        return {"workload": self.workload.model_dump(mode="json")}

    def assumptions(self) -> list[str]:
        """What a recommendation holds for."""
        return [
            f"{self.workload.world_size} ranks on this machine, {self.workload.name}, "
            f"strategy {self.workload.strategy}",
            "the same torch, backend and links; check again after changing one of them",
            *([_EMULATED] if self.is_emulated else []),
        ]

    def run(self, configuration: Configuration, folder: Path, limits: Limits) -> Timed:
        """One run, recorded at its end."""
        from advisor.profile import strategies
        from advisor.profile.failures import LaunchError
        from advisor.profile.launch import launch
        from advisor.profile.orphans import LAUNCHER
        from advisor.profile.rendezvous import How

        settings = {**settings_of(configuration), "steps": _TRACED_STEPS}
        job, _ = strategies.prepare(self.workload.with_settings(settings))
        folder.mkdir(parents=True)
        how = How(timeout_s=limits.timeout_s, stop_above_ns_per_token=limits.stop_above_cost)
        with environment({**variables_of(configuration), LAUNCHER: str(os.getpid())}):
            launch(job, folder, how)
        per_rank = _results(folder, job.world_size)
        if not per_rank:
            raise LaunchError("no rank left a result")
        data_ranks = int(per_rank[0].get("data_ranks") or 1)
        return timed(
            per_rank,
            tokens_per_step=job.micro_batch
            * job.sequence_length
            * job.gradient_accumulation
            * data_ranks,
        )

    def write(self, changes: Configuration, folder: Path, note: str) -> list[Path]:
        """workload.yaml, run.sh and torchrun.sh."""
        patched = self.workload.with_settings(settings_of(changes)).without("timed_steps")
        if self.timed_steps is not None:
            patched = patched.with_settings({"timed_steps": self.timed_steps})
        text = _patched_text(patched, self.source)
        written = [write_atomic(folder / "workload.yaml", note + text)]
        sourced = shlex.quote(str((folder / "env.sh").resolve()))
        script = f"#!/bin/sh\n{note}set -eu\n. {sourced}\n"
        recommended = shlex.quote(str((folder / "recommended").resolve()))
        job = shlex.quote(str((folder / "workload.yaml").resolve()))
        started = {
            "run.sh": f'advisor profile {job} -o {recommended} "$@"',
            "torchrun.sh": _torchrun(patched, folder / "recommended-torchrun"),
        }
        for name, line in started.items():
            written.append(write_atomic(folder / name, f"{script}exec {line}\n", mode=0o700))
        return written

    def how_to_set(self, changes: Configuration) -> list[str]:
        """Nothing: the files run it."""
        del changes
        return []


def timed(per_rank: list[dict[str, Any]], **values: Any) -> Timed:
    """What the ranks' result files say of a run. Raises LaunchError where no step was timed."""
    from advisor.profile.failures import LaunchError

    steps = [max(times) for times in zip(*(r["timed_ns"] for r in per_rank), strict=False)]
    if not steps:
        raise LaunchError("no timed steps")
    memory = [r.get("peak_allocated_bytes", r.get("peak_rss_bytes")) for r in per_rank]
    columns = [r["losses"] for r in per_rank if r.get("losses")]
    return Timed(
        step_ns=[int(step) for step in steps],
        peak_memory_bytes=max((int(m) for m in memory if m is not None), default=None),
        stopped_early=any(r.get("stopped_early") for r in per_rank),
        losses=[sum(step) / len(step) for step in zip(*columns, strict=False)],
        **values,
    )


def _results(folder: Path, world_size: int) -> list[dict[str, Any]]:
    from advisor.profile import files

    paths = [files.result(folder, rank) for rank in range(world_size)]
    if not all(path.is_file() for path in paths):
        return []
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _torchrun(workload: Workload, folder: Path) -> str:
    """The torchrun line that runs ``workload`` into ``folder``, which is prepared for it."""
    from advisor.profile import commands, files, launch

    (folder / "logs").mkdir(files.LOGS_MODE, parents=True, exist_ok=True)
    launch.write_job(workload, folder)
    (line,) = commands.torchrun(workload, folder, nodes=1, endpoint="")
    return line


# A comment of the user's is never broken over two lines.
_WIDTH = 4096


def _patched_text(workload: Workload, source: Path | None) -> str:
    """``workload`` as YAML: its file ``source`` with what differs (its comments and order stay), or
    without one all anew."""
    wanted = workload.model_dump(mode="json", exclude_unset=True)
    if source is not None:
        text = _changed(source, wanted)
        if text is not None and _reads_as(text, workload):
            return text
    stream = io.StringIO()
    YAML(typ="safe", pure=True).dump(wanted, stream)
    return stream.getvalue()


def _changed(source: Path, wanted: dict[str, Any]) -> str | None:
    yaml = YAML(typ="rt")
    yaml.width = _WIDTH
    yaml.preserve_quotes = True
    try:
        document = yaml.load(source.read_text(encoding="utf-8"))
        before = Workload.model_validate(plain(document))
    except (OSError, UnicodeDecodeError, YAMLError, ValidationError):
        return None  # changed since it was read: the caller writes it anew
    _merge(document, before.model_dump(mode="json", exclude_unset=True), wanted)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _merge(document: Any, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Change in ``document`` what ``wanted`` says otherwise than ``before``, and nothing else."""
    for name in [name for name in before if name not in wanted]:
        del document[name]
    for name, value in wanted.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(document[name], old, value)
        elif name not in before or value != old:
            document[name] = value


def _reads_as(text: str, workload: Workload) -> bool:
    try:
        found = Workload.model_validate(plain(YAML(typ="safe", pure=True).load(text)))
    except (YAMLError, ValidationError):
        return False
    return found == workload
