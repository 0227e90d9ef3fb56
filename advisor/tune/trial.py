"""One trial: a fresh process group with one configuration, timed; every way to fail is a result.

NCCL reads its environment once per process, so that nothing is reused between trials. The trial's
folder keeps its logs and a short trace that ``advisor diagnose`` reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advisor.config.sweep import ENVIRONMENT_PREFIX, Configuration
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.ingest.trial_end import FILE_NAME
from advisor.tune.atomic_files import write_atomic
from advisor.tune.statistics import median_and_mad

if TYPE_CHECKING:
    from advisor.profile.failures import LaunchError

Status = Literal["ok", "crash", "hang", "oom", "refused", "stopped early"]

# Steps recorded after the timed ones, so that every trial can be diagnosed.
_TRACED_STEPS = 2


@dataclass(frozen=True)
class TrialResult:
    """What one trial gave. ``step_ns`` are the timed steps (per step the slowest rank).

    ``sitting`` counts how often the sweep was resumed before it: only trials of one sitting are
    compared, since the machine may be another one in the next.
    """

    number: int
    configuration: Configuration
    is_baseline: bool
    purpose: str
    status: Status
    step_ns: list[int] = field(default_factory=list)
    tokens_per_step: int = 0
    peak_memory_bytes: int | None = None
    message: str = ""
    folder: str = ""
    seconds: float = 0.0
    sitting: int = 0

    @property
    def is_timed(self) -> bool:
        """Whether it gave step times: it ran to its end, or was stopped because it was losing."""
        return self.status in ("ok", "stopped early")

    @property
    def median_ns(self) -> float:
        """Median step, ns."""
        return median_and_mad(self.step_ns)[0]

    @property
    def mad_ns(self) -> float:
        """Median absolute deviation of the steps, ns."""
        return median_and_mad(self.step_ns)[1]

    @property
    def cost(self) -> float:
        """What is minimised: ns per token, so that other batch sizes compare fairly."""
        return self.median_ns / max(self.tokens_per_step, 1)

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> TrialResult:
        """From the journal."""
        return cls(**document)


def run_trial(
    workload: Workload,
    configuration: Configuration,
    folder: Path,
    *,
    number: int,
    is_baseline: bool,
    purpose: str,
    timeout_s: float,
    stop_above_cost: float | None = None,
    sitting: int = 0,
) -> TrialResult:
    """Run ``workload`` with ``configuration`` to the end, a crash, a hang or out of memory.

    How it ended is left in its folder too (trial.json), for those who look there. A trial whose
    cost (ns per token) is clearly above ``stop_above_cost`` is 'stopped early': its steps so far
    are kept, there is no trace. Raises LaunchStoppedError when somebody ends it: an interrupted
    trial says nothing of its configuration.
    """
    from advisor.profile import strategies
    from advisor.profile.failures import LaunchError, LaunchStoppedError
    from advisor.profile.launch import launch
    from advisor.profile.orphans import LAUNCHER

    started = time.monotonic()

    def result(status: Status, message: str = "", **values: Any) -> TrialResult:
        made = TrialResult(
            number=number,
            configuration=configuration,
            is_baseline=is_baseline,
            purpose=purpose,
            status=status,
            message=message,
            folder=folder.name,
            seconds=round(time.monotonic() - started, 3),
            sitting=sitting,
            **values,
        )
        if folder.is_dir():
            write_atomic(folder / FILE_NAME, json.dumps(made.to_json(), indent=1) + "\n")
        return made

    settings = {k: v for k, v in configuration.items() if not k.startswith(ENVIRONMENT_PREFIX)}
    try:
        job, _ = strategies.prepare(workload.with_settings({**settings, "steps": _TRACED_STEPS}))
    except AdvisorError as error:
        return result("refused", str(error))
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    try:
        with _environment({**configuration, f"env.{LAUNCHER}": str(os.getpid())}):
            launch(job, folder, timeout_s=timeout_s, stop_above_ns_per_token=stop_above_cost)
    except LaunchStoppedError:
        raise
    except LaunchError as error:
        return result(_status(error), str(error))
    except AdvisorError as error:
        return result("refused", str(error))
    per_rank = _results(folder, job.world_size)
    if not per_rank:
        return result("crash", "no rank left a result")
    steps = [max(times) for times in zip(*(r["timed_ns"] for r in per_rank), strict=False)]
    if not steps:
        return result("crash", "no timed steps")
    data_ranks = int(per_rank[0].get("data_ranks") or 1)
    memory = [r.get("peak_allocated_bytes", r.get("peak_rss_bytes")) for r in per_rank]
    stopped = any(r.get("stopped_early") for r in per_rank)
    return result(
        "stopped early" if stopped else "ok",
        f"clearly slower than the best after {len(steps)} steps" if stopped else "",
        step_ns=[int(step) for step in steps],
        tokens_per_step=job.micro_batch
        * job.sequence_length
        * job.gradient_accumulation
        * data_ranks,
        peak_memory_bytes=max((int(m) for m in memory if m is not None), default=None),
    )


def _status(error: LaunchError) -> Status:
    if "made no progress" in str(error):
        return "hang"
    return "oom" if error.out_of_memory else "crash"


def _results(folder: Path, world_size: int) -> list[dict[str, Any]]:
    found = []
    for rank in range(world_size):
        path = folder / "logs" / f"rank{rank}.result.json"
        if not path.is_file():
            return []
        found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


@contextlib.contextmanager
def _environment(configuration: Configuration) -> Iterator[None]:
    """The configuration's variables for the time of the trial; None means not set."""
    wanted = {
        name.removeprefix(ENVIRONMENT_PREFIX): value
        for name, value in configuration.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    before = {name: os.environ.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            _set(name, None if value is None else str(value))
        yield
    finally:
        for name, old in before.items():
            _set(name, old)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
