"""The cases of a seed: faults of every kind and controls of every strategy."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from benchmarks.gpulab import bases
from benchmarks.gpulab.faults import FAULTS, Place
from benchmarks.gpulab.job import Job

SIZES = (0.05, 0.08, 0.15, 0.3, 0.5)
PER_KIND = 4


@dataclass(frozen=True)
class Plan:
    """A case before it is made: the base job and what is to be done to it."""

    id: str
    kind: str
    job: Job
    size: float
    draw: str
    """Seed of the fault's own choices."""
    edit: str = ""
    is_control: bool = False
    quick: bool = False


@dataclass
class Case:
    """A case as it was made, with its truth. Times are ns per step."""

    id: str
    kind: str
    strategy: str
    ranks: int
    hosts: int
    per_host: int
    is_control: bool
    edit: str
    rules: list[str]
    fixes: list[str]
    place: Place
    gain_ns: int
    step_ns: int
    healthy_step_ns: int
    groups: dict[str, str] = field(default_factory=dict)
    """Process group name to description."""
    faulty: str = ""
    """What was changed, in words of the job's fields."""

    @property
    def share(self) -> float:
        """Of the faulty step that the fault costs."""
        return self.gain_ns / self.step_ns if self.step_ns else 0.0


def plans(seed: int) -> list[Plan]:
    """All cases of a seed."""
    made = []
    number = seed * 100_000
    for kind, fault in FAULTS.items():
        for i in range(PER_KIND):
            number += 1
            rng = random.Random(f"{seed}/{kind}/{i}")
            strategy = fault.strategies[(i + rng.randrange(2)) % len(fault.strategies)]
            job = _base(strategy, rng, number, fault.hosts)
            size = SIZES[(i + seed + len(kind)) % len(SIZES)]
            made.append(
                Plan(f"{kind}-{i}", kind, job, size, f"{seed}/{kind}/{i}/fault", quick=i == 0)
            )
    return made + _controls(seed, number)


def _base(strategy: str, rng: random.Random, number: int, hosts: int) -> Job:
    for _ in range(50):
        job = bases.base(strategy, rng, number)
        if job.hosts >= hosts:
            return job
    raise RuntimeError(f"no shape of {strategy} has {hosts} hosts")


def _controls(seed: int, number: int) -> list[Plan]:
    made = []
    for strategy, shapes in bases.SHAPES.items():
        for shape in range(len(shapes)):
            number += 1
            rng = random.Random(f"{seed}/control/{strategy}/{shape}")
            job = bases.base(strategy, rng, number, shape)
            made.append(
                Plan(
                    f"healthy-{strategy}-{shape}",
                    "healthy",
                    job,
                    0.0,
                    "",
                    is_control=True,
                    quick=shape == 0,
                )
            )
        number += 1
        rng = random.Random(f"{seed}/control/{strategy}/uneven")
        job = replace(
            bases.base(strategy, rng, number),
            jitter=0.04,
            compute_factor=((0, 1.01),),
            clock_ns=tuple(rng.randrange(-20_000_000, 20_000_000) for _ in range(8)),
        )
        made.append(Plan(f"uneven-{strategy}", "uneven", job, 0.0, "", is_control=True))
    return made
