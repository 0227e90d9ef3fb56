"""The cases of a seed: faults of every kind and controls of every strategy."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.gpulab import bases, edits, faults_hardware, faults_host, faults_script
from benchmarks.gpulab.faults import FAULTS, Place
from benchmarks.gpulab.job import Job

SIZES = (0.05, 0.08, 0.15, 0.3, 0.5)
PER_KIND = 3
_AS_MUCH = 0.9
"""Of a fault's cost: of flaws that differ by less the one that is easier to mend may come first."""
_KINDS_FROM = (faults_hardware, faults_host, faults_script)  # importing them registers the kinds


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
    form: str = ""
    """How the recording differs from a plain one: the edit, or what the job was changed to."""
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
    gains: dict[str, int] = field(default_factory=dict)
    """Of several faults at once: rule to what its fault alone costs, ns per step. A job may have
    a second flaw by its nature (full sharding over hosts that gathers twice)."""
    groups: dict[str, str] = field(default_factory=dict)
    """Process group name to description."""
    faulty: str = ""
    """What was changed, in words of the job's fields."""

    @property
    def right(self) -> frozenset[str]:
        """The rules that may come first: the fault's, and those of what costs as much or more."""
        least_ns = _AS_MUCH * self.gain_ns
        return frozenset(self.rules) | {r for r, ns in self.gains.items() if ns >= least_ns}

    @property
    def share(self) -> float:
        """Of the faulty step that the fault costs."""
        return self.gain_ns / self.step_ns if self.step_ns else 0.0


def plans(seed: int) -> list[Plan]:
    """All cases of a seed."""
    made = []
    for i in range(PER_KIND):
        for kind in sorted(FAULTS):
            fault = FAULTS[kind]
            rng = random.Random(f"{seed}/{kind}/{i}")
            strategy = fault.strategies[(i + rng.randrange(2)) % len(fault.strategies)]
            job = _base(strategy, rng, _number(seed, f"{kind}/{i}"), fault.hosts)
            size = SIZES[(i + seed + len(kind)) % len(SIZES)]
            draw = f"{seed}/{kind}/{i}/fault"
            made.append(Plan(f"{kind}-{i}", kind, job, size, draw, quick=i == 0))
    return made + _edited(seed) + _large(seed) + _varied(seed) + _controls(seed)


FORMS: dict[str, dict[str, Any]] = {
    "old-names": {"torch": "2.0", "nccl": "2.14.3", "metadata": False},
    "no-metadata": {"metadata": False},
}
"""Forms of recordings that the job itself brings about."""
_EDITED_KINDS = (
    "throttled-gpu", "slow-nic", "loader-one", "no-prefetch", "sync-every-micro-batch",
    "small-buckets", "scalar-reductions",
)  # fmt: skip


def _edited(seed: int) -> list[Plan]:
    """Faults and controls in recordings that are not whole."""
    made = []
    for turn, form in enumerate((*edits.KINDS, *FORMS)):
        for i in range(4):
            number = _number(seed, f"{form}/{i}")
            rng = random.Random(f"{seed}/{form}/{i}")
            kind = _EDITED_KINDS[(3 * turn + i + seed) % len(_EDITED_KINDS)]
            control = i == 3
            fault = FAULTS[kind]
            strategy = "ddp" if control else fault.strategies[rng.randrange(len(fault.strategies))]
            job = _base(strategy, rng, number, 1 if control else fault.hosts)
            if form in FORMS:
                job = replace(job, **FORMS[form])
            if form == "one-step-files":
                # The profiler stops after each step, so none runs into the next.
                job = replace(job, steps=max(job.steps, 5), blocking_every="step")
            edit = form if form in edits.KINDS else ""
            name = f"{form}-healthy" if control else f"{form}-{kind}"
            made.append(
                Plan(
                    f"{name}-{i}",
                    "healthy" if control else kind,
                    job,
                    SIZES[2 + i % 3],
                    f"{seed}/{form}/{i}/fault",
                    edit,
                    form,
                    is_control=control,
                )
            )
    return made


_LARGE = ((4, "slow-nic"), (8, "throttled-gpu"), (8, "slow-nic-one-way"), (8, "loader-one"),
          (16, "throttled-gpu"), (32, "slow-nic"), (64, "throttled-gpu"), (8, "healthy"),
          (16, "healthy"), (32, "healthy"))  # fmt: skip
"""Hosts of eight GPUs, and the fault."""


def _large(seed: int) -> list[Plan]:
    """Jobs of 32 to 512 ranks, with few layers and steps, so that their files stay small."""
    made = []
    for i, (hosts, kind) in enumerate(_LARGE):
        rng = random.Random(f"{seed}/large/{i}")
        number = _number(seed, f"large/{i}")
        strategy = rng.choice(("ddp", "hsdp")) if hosts < 32 else "ddp"
        job = bases.base(strategy, rng, number, 1)
        few: dict[str, Any] = {
            "hosts": hosts,
            "per_host": 8,
            "layers": 2,
            "hidden": 4096,
            "steps": 3,
        }
        if hosts >= 16:
            few |= {"bucket_mb": 300.0}
        job = bases.sized(replace(job, machine="dgx-h100", **few), 2.0)
        offsets = tuple(rng.randrange(-50_000, 50_000) for _ in range(hosts))
        job = replace(job, clock_ns=offsets, drift_ppm=())
        control = kind == "healthy"
        made.append(
            Plan(
                f"large-{hosts * 8}-{kind}-{i}",
                kind,
                job,
                0.2,
                f"{seed}/large/{i}/fault",
                is_control=control,
            )
        )
    return made


_VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("inductor", "ddp", {"compile": "inductor"}),
    ("cuda-graph", "ddp", {"compile": "graph"}),
    ("inductor", "fsdp2", {"compile": "inductor"}),
    ("copy-engine", "fsdp2", {"transport": "copies", "nccl": "2.29.7", "torch": "2.13"}),
    ("deepep", "moe", {"transport": "deepep"}),
    ("symmetric", "tp", {"transport": "symmetric", "sequence_parallel": False}),
    ("custom", "tp", {"transport": "custom", "sequence_parallel": False}),
    ("varying-lengths", "ddp", {"length_spread": 0.02}),
    ("varying-lengths", "fsdp2", {"length_spread": 0.02}),
    ("interleaved", "pp", {"interleave": 2}),
    ("accumulation", "ddp", {"micro_batches": 4, "steps": 4}),
    ("accumulation", "fsdp2", {"micro_batches": 4, "steps": 4, "reshard_after_forward": False}),
)
"""Healthy jobs of other forms; each is also recorded with a fault."""


def _varied(seed: int) -> list[Plan]:
    """Compiled jobs, CUDA graphs, other transports: healthy, and with a throttled or late rank."""
    made = []
    for i, (form, strategy, fields) in enumerate(_VARIANTS):
        number = _number(seed, f"{form}/{strategy}")
        rng = random.Random(f"{seed}/{form}/{strategy}")
        job = bases.base(strategy, rng, number)
        if form in ("symmetric", "custom"):  # peer memory reaches inside a host only
            job = replace(bases.base(strategy, rng, number, i % 3), tp=2 if i % 2 else 4)
        job = replace(job, **fields)
        made.append(Plan(f"{form}-{strategy}", form, job, 0.0, "", "", form, is_control=True))
        kind = "throttled-gpu" if i % 2 else "scalar-reductions"
        if strategy == "moe":
            kind = "hot-expert"
        made.append(
            Plan(
                f"{form}-{strategy}-{kind}",
                kind,
                replace(job, seed=number + 1),
                0.2,
                f"{seed}/{form}/{strategy}/fault",
                "",
                form,
            )
        )
    return made


def _number(seed: int, name: str) -> int:
    """A job's own seed: it depends on nothing but the seed and the case's name."""
    return seed * 100_000 + zlib.crc32(name.encode()) % 100_000


def _base(strategy: str, rng: random.Random, number: int, hosts: int) -> Job:
    for _ in range(50):
        job = bases.base(strategy, rng, number)
        if job.hosts >= hosts:
            return job
    raise RuntimeError(f"no shape of {strategy} has {hosts} hosts")


def _controls(seed: int) -> list[Plan]:
    made = []
    for strategy, shapes in bases.SHAPES.items():
        for shape in range(len(shapes)):
            rng = random.Random(f"{seed}/control/{strategy}/{shape}")
            job = bases.base(strategy, rng, _number(seed, f"{strategy}/{shape}"), shape)
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
        rng = random.Random(f"{seed}/control/{strategy}/uneven")
        job = replace(
            bases.base(strategy, rng, _number(seed, f"{strategy}/uneven")),
            jitter=0.04,
            compute_factor=((0, 1.01),),
            clock_ns=tuple(rng.randrange(-20_000_000, 20_000_000) for _ in range(8)),
        )
        made.append(Plan(f"uneven-{strategy}", "uneven", job, 0.0, "", is_control=True))
    return made
