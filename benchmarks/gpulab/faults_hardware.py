"""Faults of hardware: NICs, rails, switches, NVLink, devices, and what traffic does to compute."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.gpulab.faults import ALL, Made, Place, fault
from benchmarks.gpulab.job import Job

_NIC = "slow-ring-link bandwidth-below-expected network-bound"


def _slow(size: float, rng: random.Random) -> float:
    """What is left of a link's rate: communication is about half of a step and mostly hidden."""
    return max(0.08, 0.75 / (1.0 + 2.2 * size) * rng.uniform(0.7, 0.85))


@fault(
    "slow-nic",
    _NIC,
    "NIC; cable; probe",
    hosts=2,
)
def _slow_nic(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    left = _slow(size, rng)
    links = ((("nic-tx", host, -1), left), (("nic-rx", host, -1), left))
    return Made(replace(job, link_factor=links), Place(hosts=(host,)))


@fault("slow-nic-one-way", _NIC, "NIC; cable; probe",
        hosts=2)  # fmt: skip
def _slow_nic_one_way(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    way = rng.choice(("send", "receive"))
    link = ("nic-tx" if way == "send" else "nic-rx", host, -1)
    return Made(
        replace(job, link_factor=((link, _slow(size, rng)),)), Place(hosts=(host,), direction=way)
    )


@fault("slow-rail", _NIC, "NIC; cable; probe; rail",
        hosts=2)  # fmt: skip
def _slow_rail(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    rail = job.nic_of(rng.randrange(job.per_host))
    left = _slow(size, rng)
    links = ((("nic-tx", host, rail), left), (("nic-rx", host, rail), left))
    return Made(replace(job, link_factor=links), Place(hosts=(host,)))


@fault("slow-nvlink-pair", "slow-ring-link bandwidth-below-expected", "nvlink; NVLink; probe; P2P")
def _slow_nvlink(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    first = host * job.per_host
    at = rng.randrange(job.per_host)
    a, b = first + at, first + (at + 1) % job.per_host
    left = max(0.04, _slow(size, rng) * 0.5)
    links = ((("nvlink", a, b), left), (("nvlink", b, a), left))
    return Made(replace(job, link_factor=links), Place(edge=(a, b)))


_SLOW_RANK = "straggler-rank slow-rank-in-stage imbalanced-pipeline-stages"


@fault("throttled-gpu", _SLOW_RANK, "device; nvidia-smi; clock",
        (*ALL, "zero1", "fsdp1"))  # fmt: skip
def _throttled(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    return Made(
        replace(job, compute_factor=((rank, 1.0 + size * rng.uniform(1.1, 1.4)),)),
        Place(ranks=(rank,)),
    )


@fault("throttled-at-times", _SLOW_RANK, "device; nvidia-smi; clock", ("ddp", "fsdp2", "hsdp"))
def _throttled_at_times(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    healthy = replace(job, steps=12, throttle_period_ns=int(3 * step))
    return Made(replace(healthy, compute_factor=((rank, 1.0 + 3 * size),)), Place(ranks=(rank,)),
                healthy)  # fmt: skip


@fault("throttled-host", "straggler-rank", "devices; nvidia-smi; cooling",
        ("ddp", "fsdp2", "hsdp"), hosts=2)  # fmt: skip
def _throttled_host(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    factor = 1.0 + size * rng.uniform(1.1, 1.4)
    own = range(host * job.per_host, (host + 1) * job.per_host)
    return Made(
        replace(job, compute_factor=tuple((rank, factor) for rank in own)), Place(hosts=(host,))
    )


@fault("slow-switch", _NIC, "NIC; cable; switch; probe",
        hosts=4)  # fmt: skip
def _slow_switch(job: Job, size: float, step: float, rng: random.Random) -> Made:
    half = tuple(range(job.hosts // 2)) if rng.random() < 0.5 else tuple(
        range(job.hosts // 2, job.hosts)
    )  # fmt: skip
    left = _slow(size, rng)
    links = tuple(((way, host, -1), left) for host in half for way in ("nic-tx", "nic-rx"))
    return Made(replace(job, link_factor=links), Place(hosts=half))


@fault("slow-network", f"{_NIC} socket-transport single-nic",
        "NIC; cable; NCCL_DEBUG; nvidia; switch; probe", hosts=2)  # fmt: skip
def _slow_network(job: Job, size: float, step: float, rng: random.Random) -> Made:
    left = _slow(size, rng)
    links = ((("nic-tx", -1, -1), left), (("nic-rx", -1, -1), left))
    return Made(replace(job, link_factor=links))


@fault("added-latency", f"{_NIC} latency-bound-collectives", "NIC; cable; probe; [Ff]use",
        hosts=2)  # fmt: skip
def _added_latency(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    # The more calls there are, the more of it shows: one per tensor in DDP.
    healthy = replace(job, bucket_mb=1.0) if job.strategy == "ddp" else job
    added = int(min(2e6, 100_000 + step * size / job.layers))
    return Made(replace(healthy, link_latency_ns=((host, added),)), Place(hosts=(host,)), healthy)


@fault("unsteady-network", "unsteady-network unsteady-steps slow-ring-link",
        "[Nn]etwork; longest step; NIC; more", ("ddp", "fsdp2"), hosts=2)  # fmt: skip
def _unsteady(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, network_noise=1.0 + size * 6, steps=8))


@fault("sm-contention", "compute-slowed-by-overlap", "NCCL_MAX_CTAS; ctas", ("ddp", "fsdp2"))
def _contention(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # 5-50 % is what is seen of compute beside NCCL, 1.54 times beside DeepEP on H800. What healthy
    # jobs of the lab have (up to 25 %) nobody could call a fault, nor gain.
    return Made(replace(job, contention=min(0.6, 0.4 + size * 0.4)))


@fault("slow-nvlink-tp", "slow-ring-link bandwidth-below-expected", "nvlink; NVLink; probe; P2P",
        ("tp",))  # fmt: skip
def _slow_nvlink_tp(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    left = max(0.1, 0.7 / (1.0 + 4.0 * size))
    links = ((("nvlink-out", rank, 0), left), (("nvlink-in", rank, 0), left))
    return Made(replace(job, link_factor=links), Place(ranks=(rank,)))


@fault("throttled-in-layout", _SLOW_RANK, "device; nvidia-smi; clock",
        ("tp", "pp", "moe"))  # fmt: skip
def _throttled_layout(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    factor = 1.0 + size * rng.uniform(1.1, 1.4)
    return Made(replace(job, compute_factor=((rank, factor),)), Place(ranks=(rank,)))


@fault("slow-nic-in-layout", _NIC, "NIC; cable; probe",
        ("tp", "pp", "moe"), hosts=2)  # fmt: skip
def _slow_nic_layout(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    left = max(0.01, 0.3 / (1.0 + 8.0 * size))
    links = ((("nic-tx", host, -1), left), (("nic-rx", host, -1), left))
    return Made(replace(job, link_factor=links), Place(hosts=(host,)))


@fault("two-at-once", f"straggler-rank {_NIC}", "NIC; cable; device; nvidia; clock; probe",
       hosts=2)  # fmt: skip
def _two(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    host = rng.randrange(job.hosts)
    left = _slow(size, rng)
    links = ((("nic-tx", host, -1), left), (("nic-rx", host, -1), left))
    slow = ((rank, 1.0 + size * 0.8),)
    alone = (
        ("straggler-rank", replace(job, link_factor=links)),
        (_NIC, replace(job, compute_factor=slow)),
    )
    return Made(replace(job, link_factor=links, compute_factor=slow), without=alone)
