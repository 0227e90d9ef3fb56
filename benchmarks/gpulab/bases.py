"""Healthy jobs: every strategy on machines of the table, sized so that communication mostly hides.

The batch is chosen so that a step's compute is a given multiple of what its communication would
take alone; that is all the tuning a healthy job gets.
"""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.gpulab.fabric import NVLINK_RATE
from benchmarks.gpulab.job import Job
from benchmarks.gpulab.model import Model

SHAPES: dict[str, tuple[tuple[str, int, int], ...]] = {
    # machine, hosts, GPUs used per host
    "ddp": (
        ("dgx-a100", 1, 4), ("dgx-a100", 1, 8), ("dgx-h100", 2, 4), ("a100-roce", 4, 2),
        ("dgx-a100", 2, 8), ("a100-roce", 4, 1), ("aws-p4d", 2, 4), ("dgx-h100", 1, 2),
    ),
    "zero1": (("dgx-a100", 1, 8), ("dgx-h100", 2, 4), ("aws-p4d", 2, 2)),
    "fsdp1": (("dgx-a100", 1, 8), ("dgx-h100", 2, 4), ("aws-p4d", 2, 4)),
    "fsdp2": (
        ("dgx-h100", 1, 8), ("dgx-h100", 2, 4), ("dgx-a100", 2, 8), ("aws-p4d", 4, 2),
        ("dgx-a100", 4, 4),
    ),
    "hsdp": (("dgx-h100", 2, 4), ("dgx-a100", 2, 8), ("dgx-h100", 4, 4), ("aws-p4d", 4, 2)),
    "tp": (
        ("dgx-h100", 1, 4), ("dgx-h100", 2, 4), ("dgx-a100", 1, 8), ("dgx-a100", 2, 8),
        ("dgx-h100", 4, 4),
    ),
    "pp": (("dgx-h100", 1, 4), ("dgx-h100", 2, 4), ("dgx-a100", 2, 2), ("dgx-a100", 4, 2)),
    "moe": (("dgx-h100", 1, 8), ("dgx-h100", 2, 4), ("dgx-a100", 2, 8), ("dgx-a100", 1, 4)),
}  # fmt: skip

VERSIONS = (
    ("2.3", "2.20.5"), ("2.4", "2.20.5"), ("2.5", "2.21.5"), ("2.6", "2.21.5"), ("2.7", "2.26.2"),
    ("2.8", "2.27.3"), ("2.9", "2.27.5"), ("2.12", "2.29.7"), ("2.13", "2.29.7"),
)  # fmt: skip
"""torch and the NCCL of its wheel (pytorch/pytorch .ci/docker/ci_commit_pins, release notes)."""
LEAST_STEP_NS = 22e6
LEAST_LAYER_NS = 2.2e6
"""34 launches of a layer take the host about 0.7 ms."""
CLOCKS_NS = (0, 0, 50_000, 1_000_000, 20_000_000)


def base(strategy: str, rng: random.Random, seed: int, shape: int | None = None) -> Job:
    """A healthy job of a strategy."""
    shapes = SHAPES[strategy]
    machine, hosts, per_host = shapes[rng.randrange(len(shapes)) if shape is None else shape]
    torch, nccl = VERSIONS[rng.randrange(len(VERSIONS))]
    offset = CLOCKS_NS[rng.randrange(len(CLOCKS_NS))]
    job = Job(
        strategy=strategy,
        machine=machine,
        hosts=hosts,
        per_host=per_host,
        seed=seed,
        layers=rng.choice((4, 6, 8, 10)),
        hidden=rng.choice((1024, 2048, 3072)),
        steps=rng.choice((4, 5, 6, 8)),
        clock_ns=tuple(rng.choice((-1, 1)) * rng.randrange(offset + 1) for _ in range(hosts)),
        drift_ppm=tuple(rng.uniform(-15, 15) for _ in range(hosts)),
        torch=torch,
        nccl=nccl,
        jitter=rng.uniform(0.008, 0.025),
        contention=rng.uniform(0.05, 0.25),
        names_in_files=rng.random() < 0.7,
    )
    job = _laid_out(job, rng)
    multiple = rng.uniform(1.6, 2.8)
    job = sized(job, multiple)
    # Short layers are bound by their launches: such a job is not healthy.
    while compute_ns(job) < LEAST_STEP_NS or compute_ns(job) < job.layers * LEAST_LAYER_NS:
        if job.hidden < 6144:
            job = sized(replace(job, hidden=job.hidden + 1024), multiple)
        else:
            job = replace(job, tokens=job.tokens * 3 // 2 // 256 * 256)
    return job


def _laid_out(job: Job, rng: random.Random) -> Job:
    """The parallel layout, and models large enough for it."""
    if job.strategy == "tp":
        tp = rng.choice((2, 4)) if job.ranks > 4 else job.per_host
        return replace(job, tp=tp, hidden=rng.choice((4096, 6144)), layers=rng.choice((4, 6)),
                       sequence_parallel=rng.random() < 0.4)  # fmt: skip
    if job.strategy == "pp":
        pp = 2 if job.ranks == 2 else 4
        # Fewer than 8 to a stage leave a bubble above 10 %: half as large ones gain 10 to 15 %.
        return replace(job, pp=pp, micro_batches=rng.choice((8, 9, 10)) * pp, layers=2 * pp,
                       steps=3, hidden=rng.choice((3072, 4096)))  # fmt: skip
    if job.strategy == "moe":
        return replace(job, ep=min(8, job.ranks), hidden=rng.choice((2048, 4096)),
                       layers=rng.choice((4, 6)))  # fmt: skip
    return job


def compute_ns(job: Job) -> float:
    """Of a step, alone."""
    return Model(job, 0).layer_ns() * job.layers * job.micro_batches / job.pp


def sized(job: Job, multiple: float) -> Job:
    """The job with tokens so that compute is ``multiple`` of its communication alone."""
    tokens = 4096
    for _ in range(4):
        layer = Model(replace(job, tokens=tokens), 0).layer_ns() * job.micro_batches
        wanted = communication_ns(job) * multiple / job.layers
        tokens = min(max(int(tokens * wanted / layer), 2048), 65_536) // 256 * 256
        tokens = max(tokens, 2048)
    return replace(job, tokens=tokens)


def communication_ns(job: Job) -> float:
    """Bytes over the slowest link, for a step: only to choose a batch."""
    rails = len({job.nic_of(rank) for rank in range(job.per_host)})
    inside = NVLINK_RATE[job.hw.capability // 10 * 10]
    across = job.hw.nic_rate * rails * 0.9
    rate = inside if job.hosts == 1 else min(inside, across)
    if job.strategy in ("tp", "pp", "moe"):
        return _activations_ns(job, inside, across)
    size = job.layer_params * job.layers
    grads = size * job.grad_bytes
    weights = size * job.element_bytes
    if job.strategy == "ddp":
        return 2 * grads / rate
    if job.strategy == "zero1":
        return 2 * grads / rate + 12 * weights / rate
    if job.strategy == "hsdp":
        shard = job.shard or job.per_host
        own = across / rails if shard >= job.per_host else across
        return (2 * weights + grads) / inside + 2 * grads / shard / own
    return (2 * weights + grads) / rate


def _activations_ns(job: Job, inside: float, across: float) -> float:
    """Where activations travel the batch cancels out; only gradients set its size."""
    rate = inside if job.hosts == 1 else across
    dense = job.layer_params * job.layers / job.pp * (1 / 3 if job.strategy == "moe" else 1.0)
    return max(2 * dense * job.grad_bytes / rate, 1e6)
