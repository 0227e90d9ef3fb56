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
    factor = (1.0 + size) * step / _host_ns(job) * rng.uniform(1.0, 1.15)
    return Made(replace(job, host_factor=((rank, factor),)), Place(ranks=(rank,)))


@_fault("slow-hosts", "launch-bound", "compile; CUDA [Gg]raph; fused")
def _slow_hosts(job: Job, size: float, step: float, rng: random.Random) -> Made:
    factor = (1.0 + size) * step / _host_ns(job) * rng.uniform(1.0, 1.15)
    return Made(replace(job, host_factor=((-1, factor),)))


def _host_ns(job: Job) -> float:
    """What a healthy host takes for a step's operators and launches."""
    per_layer = 530_000.0 if job.strategy in ("ddp", "zero1") else 590_000.0
    return job.layers * job.micro_batches * per_layer + 150_000.0


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
    # Without its lead the host's own time is in the way; it costs most where layers are short.
    every = "operator" if size > 0.1 else "half"
    healthy = replace(job, host_factor=((-1, rng.uniform(1.5, 2.5)),))
    return Made(replace(healthy, blocking_every=every), Place(), healthy)


def _with_items(job: Job) -> Job:
    """The same job whose script reads the loss each step: no host runs ahead over steps."""
    return replace(job, blocking_every="step")


@_fault("slow-switch", "slow-ring-link bandwidth-below-expected", "NIC; cable; switch; probe",
        hosts=4)  # fmt: skip
def _slow_switch(job: Job, size: float, step: float, rng: random.Random) -> Made:
    half = tuple(range(job.hosts // 2)) if rng.random() < 0.5 else tuple(
        range(job.hosts // 2, job.hosts)
    )  # fmt: skip
    left = _slow(size, rng)
    links = tuple(((way, host, -1), left) for host in half for way in ("nic-tx", "nic-rx"))
    return Made(replace(job, link_factor=links), Place(hosts=half))


@_fault("slow-network", "bandwidth-below-expected slow-ring-link socket-transport single-nic",
        "NIC; cable; NCCL_DEBUG; nvidia; switch; probe", hosts=2)  # fmt: skip
def _slow_network(job: Job, size: float, step: float, rng: random.Random) -> Made:
    left = _slow(size, rng)
    links = ((("nic-tx", -1, -1), left), (("nic-rx", -1, -1), left))
    return Made(replace(job, link_factor=links))


@_fault("added-latency", "slow-ring-link latency-bound-collectives", "NIC; cable; probe; [Ff]use",
        hosts=2)  # fmt: skip
def _added_latency(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    # The more calls there are, the more of it shows: one per tensor in DDP.
    healthy = replace(job, bucket_mb=1.0) if job.strategy == "ddp" else job
    added = int(min(2e6, 100_000 + step * size / job.layers))
    return Made(replace(healthy, link_latency_ns=((host, added),)), Place(hosts=(host,)), healthy)


@_fault("per-tensor-gradients", "no-overlap-at-all latency-bound-collectives small-buckets",
        "DistributedDataParallel; async_op; [Ff]use; flatten", ("ddp",))  # fmt: skip
def _manual(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, manual_gradients=True, split=1 if size < 0.2 else 4))


@_fault("scalar-reductions", "redundant-collectives latency-bound-collectives",
        "[Ss]tack; [Ff]use; every N; less often", ("ddp", "fsdp2", "tp", "moe"))  # fmt: skip
def _scalars(job: Job, size: float, step: float, rng: random.Random) -> Made:
    each = 55_000 if job.hosts > 1 else 35_000
    return Made(replace(job, scalar_reductions=max(5, min(250, int(step * size / each)))))


@_fault("barriers", "redundant-collectives blocking-sync", "barrier", ("ddp", "fsdp2", "hsdp"))
def _barriers(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # The host's work between two barriers is what they expose.
    gap = int(step * size)
    healthy = replace(job, loader_ns=((-1, gap),))
    return Made(replace(healthy, barriers=rng.choice((1, 2, 4))), Place(), healthy)


@_fault("no-prefetch", "prefetch-missing device-queue-serialised", "prefetch; CUDA_DEVICE_MAX",
        ("fsdp2", "fsdp1", "hsdp"))  # fmt: skip
def _no_prefetch(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, prefetch=False))


@_fault("no-overlap", "no-overlap-at-all", "async; stream; overlap; DistributedDataParallel",
        ("ddp", "fsdp2"))  # fmt: skip
def _no_overlap(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, overlap=False))


@_fault("one-queue", "device-queue-serialised", "CUDA_DEVICE_MAX_CONNECTIONS",
        ("fsdp2", "hsdp", "ddp"))  # fmt: skip
def _one_queue(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, max_connections=1))


@_fault("sync-every-micro-batch", "sync-every-micro-batch", "no_sync; set_requires_gradient_sync",
        ("ddp", "fsdp2", "ddp", "tp"))  # fmt: skip
def _sync_each(job: Job, size: float, step: float, rng: random.Random) -> Made:
    count = 2 if size < 0.1 else 4
    healthy = _accumulating(job, count)
    return Made(replace(healthy, sync_every_micro_batch=True), Place(), healthy)


def _accumulating(job: Job, count: int) -> Job:
    tokens = max(1024, job.tokens // count // 256 * 256)
    parts = {"micro_batches": count, "tokens": tokens, "steps": min(job.steps, 5)}
    if job.strategy in ("fsdp2", "fsdp1", "hsdp"):
        parts["reshard_after_forward"] = False
    return replace(job, **parts)  # type: ignore[arg-type]


@_fault("regather-per-micro-batch", "regather-per-micro-batch",
        "reshard_after_backward; SHARD_GRAD_OP", ("fsdp2", "fsdp1"))  # fmt: skip
def _regather(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = _accumulating(job, 2 if size < 0.1 else 4)
    faulty = replace(healthy, regather_per_micro_batch=True, reshard_after_forward=True)
    return Made(faulty, Place(), healthy)


@_fault("pauses", "jitter", "gc; [Gg]arbage", ("ddp", "fsdp2", "hsdp"))
def _pauses(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(_with_items(job), steps=8)
    return Made(replace(healthy, pause_ns=int(step * size * rng.uniform(1.0, 1.3))), Place(),
                healthy)  # fmt: skip


@_fault("more-work", "straggler-rank", "[Bb]alance; tokens; work", ("ddp", "fsdp2", "hsdp"))
def _more_work(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    factor = 1.0 + size * rng.uniform(1.1, 1.4)
    return Made(replace(job, work_factor=((rank, factor),)), Place(ranks=(rank,)))


@_fault("hot-expert", "expert-imbalance", "load-balancing; [Ee]xpert; capacity", ("moe",))
def _hot_expert(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    skew = 1.0 + size * 3.0 * rng.uniform(0.9, 1.2)
    return Made(replace(job, expert_skew=((rank, skew),)), Place(ranks=(rank,)))


@_fault("heavy-stage", "imbalanced-pipeline-stages", "[Mm]ove layers; split; stage", ("pp",))
def _heavy_stage(job: Job, size: float, step: float, rng: random.Random) -> Made:
    stage = rng.randrange(job.pp)
    replicas = job.ranks // job.pp
    ranks = tuple(range(stage * replicas, (stage + 1) * replicas))
    factor = 1.0 + size * 1.25
    return Made(replace(job, layer_share=((stage, factor),)), Place(ranks=ranks, stage=stage))


@_fault("few-micro-batches", "pipeline-bubble", "micro-batch; n_microbatches", ("pp",))
def _few(job: Job, size: float, step: float, rng: random.Random) -> Made:
    count = job.pp if size > 0.2 else 2 * job.pp
    healthy = replace(job, micro_batches=6 * job.pp, tokens=max(1024, job.tokens // 256 * 256))
    tokens = healthy.tokens * healthy.micro_batches // count // 256 * 256
    return Made(replace(healthy, micro_batches=count, tokens=tokens), Place(), healthy)


@_fault("tp-across-hosts", "tensor-parallel-across-nodes", "mesh; innermost; [Tt]ensor", ("tp",),
        hosts=2)  # fmt: skip
def _tp_across(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(job, tp=job.hosts if job.hosts <= job.per_host else 2)
    faulty = replace(healthy, tp_stride=healthy.per_host)
    return Made(faulty, Place(group="tp"), healthy)


@_fault("full-shard-across-hosts", "full-shard-across-nodes strategy-choice",
        "replicate; HYBRID; HSDP", ("fsdp2",), hosts=2)  # fmt: skip
def _full_shard(job: Job, size: float, step: float, rng: random.Random) -> Made:
    from benchmarks.gpulab.bases import sized

    slow = replace(job, machine="aws-p4d", hosts=max(2, job.hosts), per_host=4)
    slow = sized(replace(slow, strategy="hsdp"), 1.1 - min(size, 0.4))
    return Made(replace(slow, strategy="fsdp2"), Place(), slow)


@_fault("fp32-gradients", "fp32-gradients", "reduce_dtype; bf16; param_dtype", ("ddp", "fsdp2"))
def _fp32(job: Job, size: float, step: float, rng: random.Random) -> Made:
    from benchmarks.gpulab.bases import sized

    healthy = sized(job, 1.2 if size > 0.1 else 1.4)
    return Made(replace(healthy, grad_dtype="fp32"), Place(), healthy)


@_fault("one-bucket", "tail-bucket-exposed", "bucket_cap_mb", ("ddp",))
def _one_bucket(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, bucket_mb=10_000.0))


@_fault("needless-reshard", "resharding-not-needed", "reshard_after_forward; SHARD_GRAD_OP",
        ("fsdp2", "fsdp1"))  # fmt: skip
def _reshard(job: Job, size: float, step: float, rng: random.Random) -> Made:
    from benchmarks.gpulab.bases import sized

    healthy = replace(sized(job, 0.9 if size > 0.1 else 1.2), reshard_after_forward=False)
    return Made(replace(healthy, reshard_after_forward=True), Place(), healthy)


@_fault("optimizer-waits", "optimizer-waits-for-communication", "ZeroRedundancyOptimizer; overlap",
        ("zero1",))  # fmt: skip
def _optimizer_waits(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, optimizer_wait=True))


@_fault("checkpoint", "unsteady-steps straggler-rank", "checkpoint; longest step; host; Host",
        ("ddp", "fsdp2", "hsdp"))  # fmt: skip
def _checkpoint(job: Job, size: float, step: float, rng: random.Random) -> Made:
    every = rng.choice((2, 3))
    healthy = replace(_with_items(job), steps=3 * every + 1)
    rank = rng.choice((0, rng.randrange(job.ranks)))
    faulty = replace(healthy, checkpoint_ns=int(step * size * every), checkpoint_every=every,
                     checkpoint_rank=rank)  # fmt: skip
    return Made(faulty, Place(ranks=(rank,)), healthy)


@_fault("exposed-copies", "exposed-copies blocking-sync", "pin_memory; non_blocking", ALL)
def _copies(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rate = job.hw.host_link_rate * 0.8 / 2.5
    return Made(replace(job, copies_bytes=int(step * size * 1.1 * rate)))


@_fault("broadcast-buffers", "redundant-collectives traffic-above-theory", "broadcast_buffers",
        ("ddp",))  # fmt: skip
def _buffers(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rate = job.hw.nic_rate * 0.8 if job.hosts > 1 else 150.0
    return Made(replace(job, broadcast_buffers=int(step * size * 1.1 * rate)))


@_fault("unsteady-network", "unsteady-steps slow-ring-link", "[Nn]etwork; longest step; NIC; more",
        ("ddp", "fsdp2"), hosts=2)  # fmt: skip
def _unsteady(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, network_noise=1.0 + size * 6, steps=8))


@_fault("unused-scan", "unused-parameter-scan", "find_unused_parameters; static_graph", ("ddp",))
def _scan(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = _with_items(job)
    return Made(replace(healthy, unused_scan_ns=int(step * size * 1.1)), Place(), healthy)


@_fault("blocking-logging", "blocking-sync data-loader-stall", "device; \\.item; sync; [Ll]oader")
def _logging(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # Host work between steps that the host's lead hides, until the loss is read.
    healthy = replace(job, loader_ns=((-1, int(step * size)),), steps=6)
    return Made(replace(healthy, blocking_every="step"), Place(), healthy)


@_fault("sm-contention", "compute-slowed-by-overlap", "NCCL_MAX_CTAS; ctas", ("ddp", "fsdp2"))
def _contention(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(job, contention=0.05)
    # 5-50 % is what is seen of compute beside NCCL; 1.54 times beside DeepEP on H800.
    return Made(replace(healthy, contention=min(0.6, 0.15 + size * 1.2)), Place(), healthy)


@_fault("slow-nvlink-tp", "slow-ring-link bandwidth-below-expected", "nvlink; NVLink; probe; P2P",
        ("tp",))  # fmt: skip
def _slow_nvlink_tp(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    left = max(0.1, 0.7 / (1.0 + 4.0 * size))
    links = ((("nvlink-out", rank, 0), left), (("nvlink-in", rank, 0), left))
    return Made(replace(job, link_factor=links), Place(ranks=(rank,)))


@_fault("throttled-in-layout", "straggler-rank imbalanced-pipeline-stages",
        "device; nvidia-smi; clock", ("tp", "pp", "moe"))  # fmt: skip
def _throttled_layout(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    factor = 1.0 + size * rng.uniform(1.1, 1.4)
    return Made(replace(job, compute_factor=((rank, factor),)), Place(ranks=(rank,)))


@_fault("slow-nic-in-layout", "slow-ring-link bandwidth-below-expected", "NIC; cable; probe",
        ("tp", "pp", "moe"), hosts=2)  # fmt: skip
def _slow_nic_layout(job: Job, size: float, step: float, rng: random.Random) -> Made:
    host = rng.randrange(job.hosts)
    left = max(0.01, 0.3 / (1.0 + 8.0 * size))
    links = ((("nic-tx", host, -1), left), (("nic-rx", host, -1), left))
    return Made(replace(job, link_factor=links), Place(hosts=(host,)))


@_fault("two-at-once", "straggler-rank slow-ring-link data-loader-stall",
        "NIC; cable; device; nvidia; [Ll]oader; clock", ("ddp", "fsdp2", "hsdp"),
        hosts=2)  # fmt: skip
def _two(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    host = rng.randrange(job.hosts)
    left = _slow(size, rng)
    links = ((("nic-tx", host, -1), left), (("nic-rx", host, -1), left))
    slow = ((rank, 1.0 + size * 0.8),)
    return Made(replace(job, link_factor=links, compute_factor=slow))
