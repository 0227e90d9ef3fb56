"""One trial: a fresh process group with one configuration, timed; every way to fail is a result.

NCCL reads its environment once per process, so that nothing is reused between trials. The trial's
folder keeps its logs and a short trace that ``advisor diagnose`` reads.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from advisor.config.atomic_files import write_atomic
from advisor.config.sweep import Configuration
from advisor.errors import AdvisorError
from advisor.ingest.trial_end import FILE_NAME
from advisor.tune.job import Job, Limits
from advisor.tune.statistics import median_and_mad

if TYPE_CHECKING:
    from advisor.profile.failures import LaunchError

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Ns = Annotated[int, Field(gt=0, lt=1 << 63)]
Status = Literal["ok", "crash", "hang", "oom", "refused", "stopped early"]


@dataclass(frozen=True)
class TrialResult:
    """What one trial gave. ``step_ns`` are the timed steps (per step the slowest rank).

    ``losses`` and ``objective`` are as in :class:`advisor.tune.job.Timed`. ``sitting`` counts how
    often the sweep was resumed before it: only trials of one sitting are compared, since the
    machine may be another one in the next.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    number: _Count
    configuration: Configuration
    is_baseline: bool
    purpose: str
    status: Status
    step_ns: list[_Ns] = field(default_factory=list)
    tokens_per_step: _Count = 0
    peak_memory_bytes: _Count | None = None
    message: str = ""
    folder: str = ""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    sitting: _Count = 0
    losses: list[float] = field(default_factory=list)
    objective: list[_Positive] = field(default_factory=list)

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
        """What is minimised: ns per token, so that other batch sizes compare fairly; else the
        median of what the job's own output says (``objective``)."""
        if self.objective:
            return statistics.median(self.objective)
        return self.median_ns / max(self.tokens_per_step, 1)

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return asdict(self)

    @classmethod
    def from_json(cls, line: str) -> TrialResult:
        """From the journal. Raises ValueError for what no trial gives."""
        found = _adapter().validate_json(line, strict=True)
        if found.is_timed and not (found.step_ns or found.objective):
            raise ValueError("a trial that ran to its end has no times")
        return found


@cache
def _adapter() -> TypeAdapter[TrialResult]:
    return TypeAdapter(TrialResult)


def run_trial(
    job: Job,
    configuration: Configuration,
    folder: Path,
    *,
    number: int,
    is_baseline: bool,
    purpose: str,
    limits: Limits,
    sitting: int = 0,
) -> TrialResult:
    """Run ``job`` with ``configuration`` to the end, a crash, a hang or out of memory.

    How it ended is left in its folder too (trial.json), for those who look there. A trial whose
    cost is clearly above the limit is 'stopped early': its steps so far are kept, there is no
    trace. Raises LaunchStoppedError when somebody ends it: an interrupted trial says nothing of its
    configuration.
    """
    from advisor.profile.failures import LaunchError, LaunchStoppedError

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

    if folder.exists():
        shutil.rmtree(folder)
    try:
        found = job.run(configuration, folder, limits)
    except LaunchStoppedError:
        raise
    except LaunchError as error:
        return result(_status(error), str(error))
    except AdvisorError as error:
        return result("refused", str(error))
    values = vars(found).copy()
    if values.pop("stopped_early"):
        slow = f"clearly slower than the best after {len(found.step_ns)} steps"
        return result("stopped early", slow, **values)
    return result("ok", **values)


def _status(error: LaunchError) -> Status:
    if "made no progress" in str(error):
        return "hang"
    return "oom" if error.out_of_memory else "crash"
