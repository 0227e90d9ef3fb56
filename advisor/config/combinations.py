"""The combinations of a sweep's axes: one value for each, the present one among them."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from advisor.config.sweep import ENVIRONMENT_PREFIX, STRATEGY, Axis, Configuration, Value
from advisor.config.workload import Workload


def baseline(axes: list[Axis], workload: Workload, environment: dict[str, str]) -> Configuration:
    """The workload's present value of every axis (None = variable not set)."""
    values: Configuration = {}
    for axis in axes:
        if axis.setting.startswith(ENVIRONMENT_PREFIX):
            values[axis.setting] = environment.get(axis.setting.removeprefix(ENVIRONMENT_PREFIX))
        else:
            values[axis.setting] = _read(workload.model_dump(), axis.setting)
    return values


def grid(axes: list[Axis], start: Configuration) -> Iterator[Configuration]:
    """Every combination, the present values included, each once (see :func:`heeded`)."""
    strategies = [axis for axis in axes if axis.setting == STRATEGY]
    for strategy in values_of(strategies[0], start) if strategies else [None]:
        columns = [
            [strategy]
            if axis.setting == STRATEGY
            else values_of(axis, start)
            if strategy is None or axis.heeded_by(str(strategy))
            else [start[axis.setting]]
            for axis in axes
        ]
        for combination in itertools.product(*columns):
            yield {axis.setting: value for axis, value in zip(axes, combination, strict=True)}


def values_of(axis: Axis, start: Configuration) -> list[Value]:
    """The present value, then the others of the axis (25 is 25.0, but True is not 1)."""
    present = start[axis.setting]

    def is_present(value: Value) -> bool:
        return value == present and isinstance(value, bool) == isinstance(present, bool)

    return [present, *(value for value in axis.values if not is_present(value))]


def heeded(axes: Iterable[Axis], start: Configuration, point: Configuration) -> Configuration:
    """``point`` with the settings that its own strategy ignores left as they are in ``start``.

    Without a swept strategy every axis is heeded.
    """
    if STRATEGY not in point:
        return point
    strategy = str(point[STRATEGY])
    return {
        axis.setting: point[axis.setting] if axis.heeded_by(strategy) else start[axis.setting]
        for axis in axes
    }


def _read(document: Any, dotted: str) -> Value:
    for part in dotted.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document if isinstance(document, bool | int | float | str) else None
