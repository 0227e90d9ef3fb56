"""The combinations that a sweep may try: those that this workload can run, each once.

Combinations of workload settings are listed, since some are refused (static_graph with
accumulated gradients) and some are one job under two names (``tp: 2`` and ``tp`` left out on two
ranks, prefetching with a single unit). Environment variables multiply them and are never listed.
"""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from advisor.config.combinations import grid, values_of
from advisor.config.sweep import ENVIRONMENT_PREFIX, STRATEGY, Axis, Configuration, Value
from advisor.config.workload import Workload
from advisor.errors import AdvisorError

Key = tuple[tuple[str, str], ...]
Identity = Callable[[Configuration], Hashable | None]

# Settings that divide the ranks; the degrees that follow from them say the same.
_LAYOUT = ("tp", "pp", "ep", "shard", "strategy")


def key_of(configuration: Configuration) -> Key:
    """A hashable identity: 1 and 1.0 are the same, True and '1' are others."""
    return tuple(sorted((name, _written(value)) for name, value in configuration.items()))


def _written(value: Value) -> str:
    return repr(float(value) if type(value) is int else value)


@dataclass(frozen=True)
class Points:
    """``jobs`` are combinations of workload settings (the present one first), ``variables`` the
    values of each environment variable; ``refused`` and ``same`` count what was left out of jobs.
    """

    start: Configuration
    jobs: tuple[Configuration, ...]
    variables: dict[str, list[Value]]
    refused: int = 0
    same: int = 0

    @classmethod
    def of(
        cls, axes: Sequence[Axis], start: Configuration, identity: Identity = key_of
    ) -> "Points":
        """All combinations of ``axes`` whose ``identity`` is new; None refuses one."""
        of_job = [axis for axis in axes if not axis.setting.startswith(ENVIRONMENT_PREFIX)]
        present = {axis.setting: start[axis.setting] for axis in of_job}
        seen = {identity(present)}
        jobs, refused, same = [present], 0, 0
        for point in grid(of_job, start):
            if key_of(point) == key_of(present):
                continue
            known = identity(point)
            if known is None:
                refused += 1
            elif known in seen:
                same += 1
            else:
                seen.add(known)
                jobs.append(point)
        variables = {
            axis.setting: values_of(axis, start)
            for axis in axes
            if axis.setting.startswith(ENVIRONMENT_PREFIX)
        }
        return cls(start, tuple(jobs), variables, refused, same)

    def __len__(self) -> int:
        return len(self.jobs) * math.prod(len(values) for values in self.variables.values())

    def __iter__(self) -> Iterator[Configuration]:
        """Every combination, the present one first."""
        for job in self.jobs:
            for values in itertools.product(*self.variables.values()):
                yield self.whole(job, dict(zip(self.variables, values, strict=True)))

    def whole(self, job: Configuration, variables: Configuration | None = None) -> Configuration:
        """A combination in the order of the axes; variables not named stay as they are."""
        return {name: {**self.start, **job, **(variables or {})}[name] for name in self.start}

    def without(self, settings: Collection[str]) -> "Points":
        """The same points told by fewer settings, none of which varies."""
        return replace(
            self,
            start={k: v for k, v in self.start.items() if k not in settings},
            jobs=tuple({k: v for k, v in job.items() if k not in settings} for job in self.jobs),
            variables={k: v for k, v in self.variables.items() if k not in settings},
        )

    def varies(self, setting: str) -> bool:
        """Whether two of the points differ in the setting."""
        if setting in self.variables:
            return len(self.variables[setting]) > 1
        return len({_written(job[setting]) for job in self.jobs}) > 1

    def holds(self, point: Configuration) -> bool:
        """Whether the point is one of these (its variables always are)."""
        job = {name: value for name, value in point.items() if name not in self.variables}
        return key_of(job) in self._keys

    @cached_property
    def _keys(self) -> frozenset[Key]:
        return frozenset(key_of(job) for job in self.jobs)


def refusals(workload: Workload, axes: Sequence[Axis], start: Configuration) -> dict[str, str]:
    """Why ``workload`` refuses each value that it refuses alone: ``{"micro_batch=3": reason}``.

    {} where the strategy is swept: what one refuses another may take.
    """
    from advisor.profile import strategies

    found: dict[str, str] = {}
    if any(axis.setting == STRATEGY for axis in axes):
        return found
    for axis in axes:
        if axis.setting.startswith(ENVIRONMENT_PREFIX):
            continue
        for value in values_of(axis, start)[1:]:
            try:
                strategies.prepare(workload.with_settings({axis.setting: value}))
            except AdvisorError as error:
                found[f"{axis.setting}={value}"] = error.message.splitlines()[0]
    return found


def job_identity(workload: Workload) -> Identity:
    """What a combination makes of ``workload``: equal for equal jobs, None where it is refused."""
    from advisor.profile import models, strategies

    model = models.outlined(workload)
    gradient_mb = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20

    def identity(point: Configuration) -> Hashable | None:
        try:
            job, degrees = strategies.prepare(workload.with_settings(point))
        except AdvisorError:
            return None
        parts = strategies.resolve(job.strategy)
        if len(parts) > 1 and any(getattr(degrees, part.kind) == 1 for part in parts):
            return None  # one of its kinds spans a single rank: the others alone are the strategy
        document = job.model_dump(exclude=set(_LAYOUT))
        document["bucket_cap_mb"] = min(job.bucket_cap_mb, gradient_mb)
        document["reduce_precision"] = job.reduce_precision or "fp32"
        if job.wrap_layers:
            layers = len(model.layers)
            wrap = min(job.wrap_layers, layers)
            ahead = math.ceil(layers / wrap) - 1
            document["wrap_layers"] = wrap
            for setting in ("prefetch_forward", "prefetch_backward"):
                document[setting] = min(document[setting], ahead)
        names = tuple(part.name for part in parts)
        return repr((names, degrees, sorted(document.items(), key=lambda item: item[0])))

    return identity


def comparable(workload: Workload, axes: Sequence[Axis]) -> Workload:
    """``workload`` with its global batch held, where an axis would change it otherwise.

    Another micro-batch or layout then accumulates as many sequences per step as now, so that the
    steps of all trials train on the same tokens.
    """
    settings = {axis.setting for axis in axes}
    if workload.global_batch is not None or not settings & {"micro_batch", *_LAYOUT}:
        return workload
    from advisor.profile import strategies

    job, degrees = strategies.prepare(workload)
    batch = job.micro_batch * job.gradient_accumulation * degrees.data
    document = workload.model_dump(exclude_unset=True, exclude={"gradient_accumulation"})
    return Workload.model_validate(document | {"global_batch": batch})
