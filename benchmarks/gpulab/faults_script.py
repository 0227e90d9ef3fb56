"""Faults of the script: how gradients and parameters travel, and how the layout is chosen."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.gpulab.bases import sized
from benchmarks.gpulab.faults import Made, Place, fault
from benchmarks.gpulab.job import Job


@fault("small-buckets", "small-buckets latency-bound-collectives", "bucket_cap_mb; [Ff]use",
        ("ddp",), hosts=2)  # fmt: skip
def _small_buckets(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = sized(replace(job, hidden=1024, layers=8, split=4 if size < 0.1 else 8), 1.5)
    return Made(replace(healthy, bucket_mb=rng.choice((0.25, 0.5))), Place(), healthy)


@fault("per-tensor-gradients", "no-overlap-at-all latency-bound-collectives small-buckets",
        "DistributedDataParallel; async_op; [Ff]use; flatten", ("ddp",))  # fmt: skip
def _manual(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, manual_gradients=True, split=1 if size < 0.2 else 4))


@fault("scalar-reductions", "redundant-collectives latency-bound-collectives",
        "[Ss]tack; [Ff]use; every N; less often", ("ddp", "fsdp2", "tp", "moe"))  # fmt: skip
def _scalars(job: Job, size: float, step: float, rng: random.Random) -> Made:
    each = 55_000 if job.hosts > 1 else 35_000
    return Made(replace(job, scalar_reductions=max(5, min(250, int(step * size / each)))))


@fault("no-prefetch", "prefetch-missing", "prefetch",
        ("fsdp2", "fsdp1", "hsdp"))  # fmt: skip
def _no_prefetch(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, prefetch=False))


@fault("no-overlap", "no-overlap-at-all", "async; stream; overlap; DistributedDataParallel",
        ("ddp", "fsdp2"))  # fmt: skip
def _no_overlap(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, overlap=False))


@fault("one-queue", "device-queue-serialised", "CUDA_DEVICE_MAX_CONNECTIONS",
        ("fsdp2", "hsdp", "ddp"))  # fmt: skip
def _one_queue(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, max_connections=1))


@fault("sync-every-micro-batch", "sync-every-micro-batch", "no_sync; set_requires_gradient_sync",
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


@fault("regather-per-micro-batch", "regather-per-micro-batch",
        "reshard_after_backward; SHARD_GRAD_OP", ("fsdp2", "fsdp1"))  # fmt: skip
def _regather(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = _accumulating(job, 2 if size < 0.1 else 4)
    faulty = replace(healthy, regather_per_micro_batch=True, reshard_after_forward=True)
    return Made(faulty, Place(), healthy)


@fault("hot-expert", "expert-imbalance", "load-balancing; [Ee]xpert; capacity", ("moe",))
def _hot_expert(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    skew = 1.0 + size * 3.0 * rng.uniform(0.9, 1.2)
    return Made(replace(job, expert_skew=((rank, skew),)), Place(ranks=(rank,)))


@fault("heavy-stage", "imbalanced-pipeline-stages", "[Mm]ove layers; split; stage", ("pp",))
def _heavy_stage(job: Job, size: float, step: float, rng: random.Random) -> Made:
    stage = rng.randrange(job.pp)
    replicas = job.ranks // job.pp
    ranks = tuple(range(stage * replicas, (stage + 1) * replicas))
    factor = 1.0 + size * 1.25
    # The same layers in all: what is too much in one stage lies in the others when it is mended.
    even = 1.0 + (factor - 1.0) / job.pp
    healthy = replace(job, layer_share=tuple((other, even) for other in range(job.pp)))
    faulty = replace(job, layer_share=((stage, factor),))
    return Made(faulty, Place(ranks=ranks, stage=stage), healthy)


@fault("few-micro-batches", "pipeline-bubble", "micro-batch; n_microbatches", ("pp",))
def _few(job: Job, size: float, step: float, rng: random.Random) -> Made:
    count = job.pp if size > 0.2 else 2 * job.pp
    healthy = replace(job, micro_batches=6 * job.pp, tokens=max(1024, job.tokens // 256 * 256))
    tokens = healthy.tokens * healthy.micro_batches // count // 256 * 256
    return Made(replace(healthy, micro_batches=count, tokens=tokens), Place(), healthy)


@fault("tp-across-hosts", "tensor-parallel-across-nodes", "mesh; innermost; [Tt]ensor", ("tp",),
        hosts=2)  # fmt: skip
def _tp_across(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(job, tp=job.hosts if job.hosts <= job.per_host else 2)
    faulty = replace(healthy, tp_stride=healthy.per_host)
    return Made(faulty, Place(group="tp"), healthy)


@fault("full-shard-across-hosts", "full-shard-across-nodes strategy-choice",
        "replicate; HYBRID; HSDP", ("fsdp2",), hosts=2)  # fmt: skip
def _full_shard(job: Job, size: float, step: float, rng: random.Random) -> Made:
    slow = replace(job, machine="aws-p4d", hosts=max(2, job.hosts), per_host=4)
    slow = sized(replace(slow, strategy="hsdp"), 1.1 - min(size, 0.4))
    faulty = replace(slow, strategy="fsdp2")
    once = replace(faulty, reshard_after_forward=False)
    return Made(faulty, Place(), slow, without=(("resharding-not-needed", once),))


@fault("fp32-gradients", "fp32-gradients", "reduce_dtype; bf16; param_dtype", ("ddp", "fsdp2"))
def _fp32(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = sized(job, 1.2 if size > 0.1 else 1.4)
    return Made(replace(healthy, grad_dtype="fp32"), Place(), healthy)


@fault("one-bucket", "tail-bucket-exposed", "bucket_cap_mb", ("ddp",))
def _one_bucket(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, bucket_mb=10_000.0))


@fault("needless-reshard", "resharding-not-needed", "reshard_after_forward; SHARD_GRAD_OP",
        ("fsdp2", "fsdp1"))  # fmt: skip
def _reshard(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # With gathers that hide it costs what they slow, as in every healthy job that reshards.
    healthy = replace(sized(job, 0.45), reshard_after_forward=False)
    faulty = replace(healthy, reshard_after_forward=True)
    inside = (("full-shard-across-nodes", replace(faulty, strategy="hsdp")),)
    over_hosts = job.hosts > 1 and job.per_host > 1
    return Made(faulty, Place(), healthy, without=inside if over_hosts else ())


@fault("optimizer-waits", "optimizer-waits-for-communication", "ZeroRedundancyOptimizer; overlap",
        ("zero1",), hosts=2)  # fmt: skip
def _optimizer_waits(job: Job, size: float, step: float, rng: random.Random) -> Made:
    return Made(replace(job, optimizer_wait=True))


@fault("broadcast-buffers", "redundant-collectives traffic-above-theory", "_buffers=False",
        ("ddp",))  # fmt: skip
def _buffers(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rate = job.hw.nic_rate * 0.8 if job.hosts > 1 else 150.0
    return Made(replace(job, broadcast_buffers=int(step * size * 1.1 * rate)))
