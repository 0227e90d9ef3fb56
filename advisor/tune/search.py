"""Which configuration to try next, given everything tried so far. A pure function of the results.

Small grids are tried whole. Larger ones are searched in stages: what the diagnosis of the job
advises, what the models of the traced baseline rank best, then one change at a time from the best
so far, then a tree-structured Parzen estimator (Optuna) over the rest. Nothing is tried twice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.config.combinations import heeded, values_of
from advisor.config.sweep import Axis, Configuration
from advisor.tune.points import Key, Points, key_of

# Share of a grid that is tried when it is too large to exhaust.
GRID_SHARE = 0.2
# Combinations that the predictions rank best and that are tried first, at least.
_PREDICTED_FIRST = 2
# A finding that expects less of the step is no reason to try its advice before the rest.
_WORTH_A_TRIAL = 0.02
# A change that is predicted to be slower than the best by more than this factor is not tried.
_HOPELESS = 1.1


@dataclass(frozen=True)
class Tried:
    """A configuration and its cost relative to the baseline around it; None when it failed."""

    configuration: Configuration
    ratio: float | None


@dataclass(frozen=True)
class Predicted:
    """What models say of the ``settings`` that they cover: step relative to the present one.

    ``ratios`` is keyed by :func:`key_of` the covered settings alone.
    """

    settings: frozenset[str] = frozenset()
    ratios: Mapping[Key, float] = field(default_factory=dict)

    def of(self, configuration: Configuration) -> float | None:
        """The prediction for a configuration, its other settings left aside; None without one."""
        covered = {name: configuration[name] for name in configuration if name in self.settings}
        return self.ratios.get(key_of(covered)) if covered else None


@dataclass
class Search:
    """What to try next over ``axes`` from the present settings ``start``, ``limit`` at most."""

    axes: Sequence[Axis]
    start: Configuration
    limit: int
    predictions: Predicted = field(default_factory=Predicted)
    seed: int = 0
    points: Points = field(default_factory=lambda: Points({}, (), {}))

    def __post_init__(self) -> None:
        if not self.points.jobs:
            self.points = Points.of(self.axes, self.start)

    def next(self, tried: Sequence[Tried]) -> Configuration | None:
        """The next configuration, or None when the search is over."""
        if len(tried) >= min(self.limit, len(self.points) - 1):
            return None
        done = {key_of(item.configuration) for item in tried} | {key_of(self.start)}
        for stage in (self._advised, self._predicted, self._one_change, self._estimated):
            for candidate in stage(tried):
                if key_of(candidate) not in done and self.points.holds(candidate):
                    return candidate
        return next((point for point in self.points if key_of(point) not in done), None)

    def _advised(self, tried: Sequence[Tried]) -> list[Configuration]:
        """Changes that a finding advises, what it expects most of first, from the best so far."""
        best = self.best(tried)
        axes = [
            axis
            for axis in self.axes
            if axis.expected_share >= _WORTH_A_TRIAL
            and axis.setting not in self.predictions.settings
        ]
        return [
            heeded(self.axes, self.start, {**best, axis.setting: value})
            for axis in sorted(axes, key=lambda axis: -axis.expected_share)
            for value in values_of(axis, self.start)
            if value != best[axis.setting]
        ]

    def _predicted(self, tried: Sequence[Tried]) -> list[Configuration]:
        """The combinations of covered settings that are predicted best, the others as they are.

        Two of them, or as many as leave a trial for every single change that is not covered.
        """
        del tried
        ranked = [
            (ratio, index, point)
            for index, point in enumerate(map(self.points.whole, self.points.jobs))
            if all(
                value == self.start[name]
                for name, value in point.items()
                if name not in self.predictions.settings
            )
            and (ratio := self.predictions.of(point)) is not None
        ]
        not_covered = sum(
            len(values_of(axis, self.start)) - 1
            for axis in self.axes
            if axis.setting not in self.predictions.settings
        )
        ranked.sort(key=lambda entry: entry[:2])
        count = max(_PREDICTED_FIRST, self.limit - not_covered)
        return [point for _, _, point in ranked[:count]]

    def _one_change(self, tried: Sequence[Tried]) -> list[Configuration]:
        """One change at a time from the best so far; predicted losers come last or not at all."""
        best = self.best(tried)
        present = self.predictions.of(best) or 1.0
        changes: list[tuple[float, int, Configuration]] = []
        for axis in self.axes:
            for value in values_of(axis, self.start):
                point = heeded(self.axes, self.start, {**best, axis.setting: value})
                ratio = (self.predictions.of(point) or present) / present
                if value != best[axis.setting] and ratio <= _HOPELESS:
                    changes.append((ratio, len(changes), point))
        changes.sort(key=lambda entry: entry[:2])
        return [point for _, _, point in changes]

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
        values = {
            axis.setting: {repr(v): v for v in values_of(axis, self.start)} for axis in self.axes
        }
        space: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution([*options])
            for name, options in values.items()
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
            point = {name: values[name][asked.params[name]] for name in space}
            proposals.append(heeded(self.axes, self.start, point))
        return proposals


def default_limit(grid_size: int, axes: int) -> int:
    """Trials to spend on a grid: all of a small one, a fifth of a large one."""
    if grid_size <= 8:
        return grid_size
    return min(grid_size, max(math.ceil(GRID_SHARE * grid_size), axes + 1))
