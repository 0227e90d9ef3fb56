"""Which configuration to try next, given everything tried so far. A pure function of the results.

Small grids are tried whole. Larger ones are searched in three stages: what the models of the
traced baseline rank best, then one change at a time from the best so far, then a
tree-structured Parzen estimator (Optuna) over the rest. Nothing is tried twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.config.sweep import Axis, Configuration, Value, grid

# Share of a grid that is tried when it is too large to exhaust.
GRID_SHARE = 0.2
# Predicted values per axis that are tried first.
_PREDICTED_FIRST = 2

Key = tuple[tuple[str, str], ...]


def key_of(configuration: Configuration) -> Key:
    """A hashable identity; 1 and True and '1' stay different."""
    return tuple(sorted((name, repr(value)) for name, value in configuration.items()))


@dataclass(frozen=True)
class Tried:
    """A configuration and its cost relative to the baseline around it; None when it failed."""

    configuration: Configuration
    ratio: float | None


@dataclass
class Search:
    """``predictions``: setting -> {repr(value): predicted step relative to the present one}."""

    axes: Sequence[Axis]
    start: Configuration
    limit: int
    predictions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.points = [p for p in grid(list(self.axes), self.start) if p != self.start]

    @property
    def exhaustive(self) -> bool:
        """Whether every point of the grid will be tried."""
        return self.limit >= len(self.points)

    def next(self, tried: Sequence[Tried]) -> Configuration | None:
        """The next configuration, or None when the search is over."""
        if len(tried) >= min(self.limit, len(self.points)):
            return None
        done = {key_of(item.configuration) for item in tried} | {key_of(self.start)}
        for stage in (self._predicted, self._one_change, self._estimated):
            for candidate in stage(tried):
                if key_of(candidate) not in done:
                    return candidate
        return next((point for point in self.points if key_of(point) not in done), None)

    def _values(self, axis: Axis) -> list[Value]:
        present = self.start[axis.setting]
        return [present, *(value for value in axis.values if value != present)]

    def _predicted(self, tried: Sequence[Tried]) -> list[Configuration]:
        """The best predicted values of each predicted axis, alone, best first."""
        del tried
        ranked: list[tuple[float, Configuration]] = []
        for axis in self.axes:
            known = self.predictions.get(axis.setting, {})
            values = [value for value in self._values(axis)[1:] if repr(value) in known]
            values.sort(key=lambda value: known[repr(value)])
            ranked += [
                (known[repr(value)], {**self.start, axis.setting: value})
                for value in values[:_PREDICTED_FIRST]
            ]
        ranked.sort(key=lambda entry: entry[0])
        return [configuration for _, configuration in ranked]

    def _one_change(self, tried: Sequence[Tried]) -> list[Configuration]:
        """One change at a time from the best so far; predicted losers of an axis come last."""
        best = self.best(tried)
        changes: list[tuple[float, Configuration]] = []
        for axis in self.axes:
            known = self.predictions.get(axis.setting, {})
            changes += [
                (known.get(repr(value), 1.0), {**best, axis.setting: value})
                for value in self._values(axis)
                if value != best[axis.setting]
            ]
        changes.sort(key=lambda entry: entry[0])
        return [configuration for predicted, configuration in changes if predicted <= 1.1]

    def best(self, tried: Sequence[Tried]) -> Configuration:
        """The fastest configuration so far, the present one included (ratio 1)."""
        good = [(item.ratio, i) for i, item in enumerate(tried) if item.ratio is not None]
        if not good or min(good)[0] >= 1.0:
            return self.start
        return tried[min(good)[1]].configuration

    def _estimated(self, tried: Sequence[Tried]) -> list[Configuration]:
        """What Optuna's estimator proposes from everything tried, failures as bad results."""
        try:
            import optuna
        except ImportError:
            return []
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        choices = {axis.setting: [repr(v) for v in self._values(axis)] for axis in self.axes}
        values = {axis.setting: {repr(v): v for v in self._values(axis)} for axis in self.axes}
        space: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(options)
            for name, options in choices.items()
        }
        sampler = optuna.samplers.TPESampler(seed=self.seed + len(tried), n_startup_trials=1)
        study = optuna.create_study(sampler=sampler)
        worst = max((item.ratio for item in tried if item.ratio is not None), default=1.0)
        for item in [Tried(self.start, 1.0), *tried]:
            study.add_trial(
                optuna.trial.create_trial(
                    params={name: repr(v) for name, v in item.configuration.items()},
                    distributions=space,
                    value=item.ratio if item.ratio is not None else 2 * worst,
                )
            )
        proposals = []
        for _ in range(20):
            asked = study.ask(space)
            proposals.append({name: values[name][asked.params[name]] for name in space})
        return proposals


def default_limit(grid_size: int, axes: int) -> int:
    """Trials to spend on a grid: all of a small one, a fifth of a large one."""
    if grid_size <= 8:
        return grid_size
    return min(grid_size, max(math.ceil(GRID_SHARE * grid_size), axes + 1))
