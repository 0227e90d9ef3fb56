"""Somebody's own training command as a job: how it is started, timed and judged.

``HookSettings`` are the settings that the recorder's hook can apply in it without a change of its
script; everything else is an environment variable.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from advisor.config.loader import FileModel, load_model, read_plain
from advisor.config.sweep import Axis, Space

TRIAL_FOLDER = "{trial}"
"""Stands in a command for a folder of the trial's own."""


class HookSettings(BaseModel):
    """What the hook sets where a script builds its wrapper; names and values as torch has them.

    The last ones are keys of ``zero_optimization`` in DeepSpeed's configuration, sizes in elements.
    """

    bucket_cap_mb: float = Field(25.0, gt=0)
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool = False
    comm_hook: Literal["none", "fp16", "bf16"] = "none"
    reshard_after_forward: bool = True
    reduce_precision: Literal["fp32", "bf16"] = "fp32"
    prefetch_forward: int = Field(0, ge=0)
    prefetch_backward: int = Field(0, ge=0)
    reduce_bucket_size: int = Field(500_000_000, gt=0)
    overlap_comm: bool = False
    contiguous_gradients: bool = True
    stage3_prefetch_bucket_size: int = Field(50_000_000, ge=0)
    stage3_param_persistence_threshold: int = Field(100_000, ge=0)


class OwnJob(FileModel):
    """A workload file with ``command:``; the same is given on the command line after ``--``.

    ``objective`` is a regular expression with one group for a number in the job's output; larger
    is better unless ``lower_is_better``. A job that ``runs_to_its_end`` is never ended early.
    """

    name: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    description: str = ""
    command: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda v: tuple(shlex.split(v)) if isinstance(v, str) else v),
    ] = Field(min_length=1)
    warmup_steps: int = Field(5, ge=1)
    timed_steps: int = Field(20, ge=3)
    objective: str | None = None
    lower_is_better: bool = False
    runs_to_its_end: bool = False

    @field_validator("objective")
    @classmethod
    def _one_group(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            pattern = re.compile(value)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from error
        if pattern.groups != 1:
            raise ValueError(
                "needs one group ( ) around the number, for example 'tok/s: ([0-9.]+)'"
            )
        return value

    @property
    def title(self) -> str:
        """Its name, else that of its script."""
        script = next((part for part in self.command if part.endswith(".py")), self.command[0])
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "-", Path(script).stem) or "job"


class OwnAxis(Axis):
    """An axis of a sweep of somebody's own command."""

    SETTINGS = HookSettings
    devices: tuple[Literal["cpu", "cuda"], ...] = ()
    advised_by: tuple[str, ...] = ()  # rules whose finding says to change it


class OwnSpace(Space):
    """The axes that the hook and the environment can vary."""

    AXIS = OwnAxis
    axes: Sequence[OwnAxis] = Field(min_length=1)


def is_own_job(path: Path) -> bool:
    """Whether a workload file names a command."""
    document: Any = read_plain(path)
    return isinstance(document, dict) and "command" in document


def load_own_job(path: Path) -> OwnJob:
    """Read a workload file with ``command:``; every mistake is reported with file and line."""
    return load_model(path, OwnJob)
