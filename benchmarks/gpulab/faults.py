"""The faults: what is changed in a healthy job, where, which rule names it, which fix mends it.

Each is a function of (job, size, rng) that returns the faulty job; ``size`` is the wanted cost as
a share of the healthy step and ``step`` that step's length. What it really costs is simulated,
never taken from here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.gpulab.job import Job


@dataclass(frozen=True)
class Place:
    """Where a fault is; what is empty need not be named. ``direction``: 'send' or 'receive'."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    direction: str = ""
    edge: tuple[int, int] = ()  # type: ignore[assignment]
    stage: int = -1
    group: str = ""

    @property
    def given(self) -> bool:
        """Whether there is anything to find."""
        return bool(self.ranks or self.hosts or self.edge or self.stage >= 0 or self.group)


@dataclass(frozen=True)
class Made:
    """A fault as it was made. ``healthy`` replaces the base where the fault needs another one."""

    faulty: Job
    place: Place = Place()
    healthy: Job | None = None


@dataclass(frozen=True)
class Fault:
    """A kind. ``rules``: any of them, named first, is the cause; ``fixes``: patterns of which the
    first fix must match one."""

    kind: str
    rules: tuple[str, ...]
    fixes: tuple[str, ...]
    strategies: tuple[str, ...]
    make: Callable[[Job, float, float, random.Random], Made]
    hosts: int = 1
    """The least number of hosts."""


FAULTS: dict[str, Fault] = {}
ALL = ("ddp", "fsdp2", "hsdp")


def _fault(
    kind: str, rules: str, fixes: str, strategies: tuple[str, ...] = ALL, hosts: int = 1
) -> Callable[[Callable[[Job, float, float, random.Random], Made]], None]:
    def register(make: Callable[[Job, float, float, random.Random], Made]) -> None:
        FAULTS[kind] = Fault(
            kind, tuple(rules.split()), tuple(fixes.split("; ")), strategies, make, hosts
        )

    return register


def _slow(size: float, rng: random.Random) -> float:
    """What is left of a link's rate: communication is about half of a step and mostly hidden."""
    return max(0.08, 0.75 / (1.0 + 2.2 * size) * rng.uniform(0.7, 0.85))


@_fault("slow-nic", "slow-ring-link bandwidth-below-expected", "NIC; cable; probe", hosts=2)
def _slow_nic(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    left = _slow(size, rng)
    links = ((("nic-tx", host, -1), left), (("nic-rx", host, -1), left))
    return Made(replace(job, link_factor=links), Place(hosts=(host,)))


@_fault("slow-nic-one-way", "slow-ring-link bandwidth-below-expected", "NIC; cable; probe",
        hosts=2)  # fmt: skip
def _slow_nic_one_way(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    way = rng.choice(("send", "receive"))
    link = ("nic-tx" if way == "send" else "nic-rx", host, -1)
    return Made(
        replace(job, link_factor=((link, _slow(size, rng)),)), Place(hosts=(host,), direction=way)
    )


@_fault("slow-rail", "slow-ring-link bandwidth-below-expected", "NIC; cable; probe; rail",
        hosts=2)  # fmt: skip
def _slow_rail(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    rail = job.nic_of(rng.randrange(job.per_host))
    left = _slow(size, rng)
    links = ((("nic-tx", host, rail), left), (("nic-rx", host, rail), left))
    return Made(replace(job, link_factor=links), Place(hosts=(host,)))


@_fault("slow-nvlink-pair", "slow-ring-link bandwidth-below-expected", "nvlink; NVLink; probe; P2P")
def _slow_nvlink(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    first = host * job.per_host
    at = rng.randrange(job.per_host)
    a, b = first + at, first + (at + 1) % job.per_host
    left = max(0.04, _slow(size, rng) * 0.5)
    links = ((("nvlink", a, b), left), (("nvlink", b, a), left))
    return Made(replace(job, link_factor=links), Place(edge=(a, b)))


@_fault("throttled-gpu", "straggler-rank", "device; nvidia-smi; clock",
        (*ALL, "zero1", "fsdp1"))  # fmt: skip
def _throttled(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    return Made(
        replace(job, compute_factor=((rank, 1.0 + size * rng.uniform(1.1, 1.4)),)),
        Place(ranks=(rank,)),
    )


@_fault("late-host", "straggler-rank launch-bound", "[Hh]ost; py-spy; pin; compile")
def _late_host(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    launches = job.layers * 34 * job.micro_batches * 18_000.0
    factor = (1.0 + size) * step / launches * rng.uniform(1.0, 1.3)
    return Made(replace(job, host_factor=((rank, max(2.0, factor)),)), Place(ranks=(rank,)))


@_fault("slow-hosts", "launch-bound", "compile; CUDA [Gg]raph; fused")
def _slow_hosts(job: Job, size: float, step: float, rng: random.Random) -> Made:
    launches = job.layers * 34 * job.micro_batches * 18_000.0
    factor = (1.0 + size) * step / launches * rng.uniform(1.0, 1.3)
    return Made(replace(job, host_factor=((-1, max(2.0, factor)),)))


@_fault("loader-one", "data-loader-stall straggler-rank", "[Ll]oader", (*ALL, "fsdp1"))
def _loader_one(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    # The item at the end of the step keeps the host from hiding the wait in its lead.
    healthy = replace(job, blocking_every="step")
    stall = int(step * size * rng.uniform(1.0, 1.3))
    return Made(replace(healthy, loader_ns=((rank, stall),)), Place(ranks=(rank,)), healthy)


@_fault("loader-all", "data-loader-stall", "[Ll]oader", (*ALL, "zero1"))
def _loader_all(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(job, blocking_every="step")
    stall = int(step * size * rng.uniform(1.0, 1.3))
    return Made(replace(healthy, loader_ns=((-1, stall),)), Place(), healthy)


@_fault("small-buckets", "small-buckets latency-bound-collectives", "bucket_cap_mb; [Ff]use",
        ("ddp",), hosts=2)  # fmt: skip
def _small_buckets(job: Job, size: float, step: float, rng: random.Random) -> Made:
    from benchmarks.gpulab.bases import sized

    healthy = sized(replace(job, hidden=1024, layers=8, split=4 if size < 0.1 else 8), 1.5)
    return Made(replace(healthy, bucket_mb=rng.choice((0.25, 0.5))), Place(), healthy)


@_fault("blocking-sync", "blocking-sync launch-bound", "device; \\.item; sync")
def _blocking(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # Without its lead the host's launches are in the way: cheap where layers are long.
    healthy = replace(job, host_factor=((-1, 3.0 if size > 0.1 else 2.0),))
    return Made(replace(healthy, blocking_every="layer"), Place(), healthy)
