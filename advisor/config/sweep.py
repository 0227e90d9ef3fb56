"""What a sweep tries: axes of settings and their values, from a YAML file or the shipped default.

An axis is a setting of the workload (``bucket_cap_mb``) or an environment variable
(``env.NCCL_ALGO``). An axis whose ``backends`` or ``strategies`` do not include the workload's is
left out and said so: a knob that the backend ignores is never swept as if it were measured.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from advisor.config.loader import FileModel, load_model, read_plain
from advisor.config.paths import shipped
from advisor.config.space_values import check_values
from advisor.config.workload import Workload

Value = bool | int | float | str | None
Configuration = dict[str, Value]

ENVIRONMENT_PREFIX = "env."
STRATEGY = "strategy"
_INTERFACE = "env.GLOO_SOCKET_IFNAME"
# Whose variables these are: no other backend reads them, whatever a space says.
_READ_BY = {"NCCL_": "nccl", "TORCH_NCCL_": "nccl", "GLOO_": "gloo", "TORCH_GLOO_": "gloo"}
_MODELLED = ("NCCL_ALGO", "NCCL_PROTO")
# They send or reduce in fewer bits, or train another way, whoever lists them.
_CHANGE_TRAINING = {STRATEGY, "comm_hook", "reduce_precision"}


def _no_axis(setting: str) -> str | None:
    """Why no sweep may vary a setting, or a section's setting; None where it may."""
    known = _no_axes()
    return known.get(setting) or known.get(setting.split(".", maxsplit=1)[0])


@cache
def _no_axes() -> dict[str, str]:
    found: dict[str, str] = read_plain(Path(__file__).with_name("no_axes.yaml"))
    return found


class Axis(FileModel):
    """One knob and the values to try; the job's own value is always tried as well.

    ``SETTINGS`` is the model whose fields are the settings that are no environment variables.
    """

    SETTINGS: ClassVar[type[BaseModel]] = Workload

    setting: str = Field(pattern=r"^(env\.[A-Z][A-Z0-9_]*|[a-z][a-z0-9_.]*)$")
    values: list[Value] = Field(min_length=1)
    backends: list[str] = Field([])
    strategies: list[str] = Field([])
    changes_training: bool = Field(
        default=False,
        validate_default=True,
        description="the setting changes numerics, batch or semantics, not only speed",
    )
    why: str = ""
    expected_share: float = Field(
        0.0, exclude=True, description="of the step, by a first diagnosis; not from a file"
    )

    @field_validator("values")
    @classmethod
    def _distinct(cls, values: list[Value], info: ValidationInfo) -> list[Value]:
        if str(info.data.get("setting", "")).startswith(ENVIRONMENT_PREFIX):
            # The environment holds text: 8 and "8" are one value.
            values = [str(v) if type(v) in (int, float) else v for v in values]
        if len({repr(value) for value in values}) != len(values):
            raise ValueError("lists a value twice")
        return values

    @field_validator("changes_training")
    @classmethod
    def _by_itself(cls, marked: bool, info: ValidationInfo) -> bool:
        return marked or info.data.get("setting") in _CHANGE_TRAINING

    @field_validator("setting", mode="before")
    @classmethod
    def _prefixed(cls, setting: Any) -> Any:
        if isinstance(setting, str) and re.fullmatch("[A-Z][A-Z0-9_]*", setting):
            raise ValueError(
                f"unknown setting '{setting}'; a variable is written "
                f"'{ENVIRONMENT_PREFIX}{setting}'"
            )
        return setting

    @field_validator("setting")
    @classmethod
    def _known(cls, setting: str) -> str:
        known = _settings_of(cls.SETTINGS)
        if why := _no_axis(setting):
            raise ValueError(f"{setting} is no axis: {why}")
        if not setting.startswith(ENVIRONMENT_PREFIX) and setting not in known:
            known = tuple(name for name in known if not _no_axis(name))
            close = get_close_matches(setting, known, n=1)
            tail = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
            raise ValueError(f"unknown setting '{setting}'{tail}")
        return setting

    @property
    def variable(self) -> str:
        """Its name without the prefix: ``NCCL_ALGO``, ``bucket_cap_mb``."""
        return self.setting.removeprefix(ENVIRONMENT_PREFIX)

    @property
    def is_modelled(self) -> bool:
        """Whether NCCL's cost model knows what it does."""
        return self.variable in _MODELLED

    def applies(self, backend: str, strategy: str) -> bool:
        """Whether this backend and strategy heed the setting."""
        return self._read_by(backend) and self.heeded_by(strategy)

    def _read_by(self, backend: str) -> bool:
        if self.setting.startswith(ENVIRONMENT_PREFIX):
            for prefix, owner in _READ_BY.items():
                if self.variable.startswith(prefix):
                    return backend == owner
        return not self.backends or backend in self.backends

    def why_ignored(self, backend: str, strategy: str, *, modelled_on: str = "") -> str:
        """Why a job that does not heed the setting leaves it out, in a line.

        ``modelled_on`` is the machine on which NCCL's model ranks it instead.
        """
        if self._read_by(backend):
            return f"{strategy} ignores {self.variable}: not swept"
        how = (
            f"modelled on {modelled_on}"
            if modelled_on
            else "use --topology for the modelled figure"
        )
        tail = f" ({how})" if self.is_modelled else ""
        return f"{backend} ignores {self.variable}: not swept{tail}"

    def heeded_by(self, strategy: str) -> bool:
        """Whether a strategy heeds the setting."""
        return not self.strategies or any(part in self.strategies for part in strategy.split("+"))


class LeftOut(FileModel):
    """A knob that is known and deliberately not an axis."""

    setting: str
    why: str = Field(min_length=5)


class Space(FileModel):
    """The axes of a sweep, and what was left out of it on purpose."""

    AXIS: ClassVar[type[Axis]] = Axis

    name: str = "space"
    description: str = ""
    axes: Sequence[Axis] = Field(min_length=1)
    left_out: list[LeftOut] = Field([])

    @field_validator("axes")
    @classmethod
    def _once(cls, axes: Sequence[Axis]) -> Sequence[Axis]:
        names = [axis.setting for axis in axes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"setting listed twice: {', '.join(twice)}")
        return axes

    def for_job(self, backend: str, strategy: str) -> tuple[list[Axis], list[Axis]]:
        """The axes that this job heeds, and those it does not.

        Where the strategy itself is swept, those count that any of its values heeds.
        """
        strategies = {strategy}
        for axis in self.axes:
            if axis.setting == STRATEGY and axis.applies(backend, strategy):
                strategies.update(str(value) for value in axis.values)
        heeded = [axis for axis in self.axes if any(axis.applies(backend, s) for s in strategies)]
        return heeded, [axis for axis in self.axes if axis not in heeded]


def on_interface(axes: Iterable[Axis], interface: str | None) -> list[Axis]:
    """Axes of gloo's interfaces written for loopback, moved to the ``interface`` in use.

    Its number of entries is what is swept; which network they name is not for a sweep to change.
    """
    if not interface:
        return list(axes)
    (first, *_) = interface.split(",")
    return [
        axis.model_copy(
            update={
                "values": [
                    ",".join([first] * len(value.split(","))) if isinstance(value, str) else value
                    for value in axis.values
                    if value is not None
                ]
            }
        )
        if axis.setting == _INTERFACE
        else axis
        for axis in axes
    ]


def load_space(path: Path, kind: type[Space] = Space) -> Space:
    """Read a space file; every mistake is reported with file and line."""
    space = load_model(path, kind)
    listed = [(axis.setting, axis.values) for axis in space.axes]
    check_values(path, listed, kind.AXIS.SETTINGS)
    return space


def default_space(backend: str) -> Space:
    """The shipped space for a backend (``workloads/sweeps/<backend>.yaml``)."""
    return load_space(shipped("workloads") / "sweeps" / f"{backend}.yaml")


@cache
def _settings_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Every setting of a model that holds one value, those inside a section dotted."""
    names = []
    for name, field in model.model_fields.items():
        sections = [
            kind
            for kind in (field.annotation, *get_args(field.annotation))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        names += [f"{name}.{inner}" for kind in sections for inner in kind.model_fields] or [name]
    return tuple(sorted(names))
