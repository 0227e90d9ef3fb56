"""Faults of hosts: launches, loaders, synchronising calls, pauses, checkpoints, uneven work."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.gpulab.faults import ALL, Made, Place, fault
from benchmarks.gpulab.job import Job


@fault("late-host", "straggler-rank launch-bound", "[Hh]ost; CPU of rank; py-spy; pin; compile")
def _late_host(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    factor = (1.0 + size) * step / _host_ns(job) * rng.uniform(1.0, 1.15)
    return Made(replace(job, host_factor=((rank, factor),)), Place(ranks=(rank,)))


@fault("slow-hosts", "launch-bound", "compile; CUDA [Gg]raph; fused; cores of its own")
def _slow_hosts(job: Job, size: float, step: float, rng: random.Random) -> Made:
    factor = (1.0 + size) * step / _host_ns(job) * rng.uniform(1.0, 1.15)
    return Made(replace(job, host_factor=((-1, factor),)))


def _host_ns(job: Job) -> float:
    """What a healthy host takes for a step's operators and launches."""
    per_layer = 530_000.0 if job.strategy in ("ddp", "zero1") else 590_000.0
    return job.layers * job.micro_batches * per_layer + 150_000.0


@fault("loader-one", "data-loader-stall straggler-rank", "[Ll]oader", (*ALL, "fsdp1"))
def _loader_one(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    # The item at the end of the step keeps the host from hiding the wait in its lead.
    healthy = replace(job, blocking_every="step")
    stall = int(step * size * rng.uniform(1.0, 1.3))
    return Made(replace(healthy, loader_ns=((rank, stall),)), Place(ranks=(rank,)), healthy)


@fault("loader-all", "data-loader-stall", "[Ll]oader", (*ALL, "zero1"))
def _loader_all(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(job, blocking_every="step")
    stall = int(step * size * rng.uniform(1.0, 1.3))
    return Made(replace(healthy, loader_ns=((-1, stall),)), Place(), healthy)


@fault("blocking-sync", "blocking-sync launch-bound", "device; \\.item; sync")
def _blocking(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # Without its lead the host's own time is in the way; it costs most where layers are short.
    every = "operator" if size > 0.1 else "half"
    healthy = replace(job, host_factor=((-1, rng.uniform(1.5, 2.5)),))
    return Made(replace(healthy, blocking_every=every), Place(), healthy)


def _with_items(job: Job) -> Job:
    """The same job whose script reads the loss each step: no host runs ahead over steps."""
    return replace(job, blocking_every="step")


@fault("barriers", "redundant-collectives blocking-sync", "barrier", ("ddp", "fsdp2", "hsdp"))
def _barriers(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # The host's work between two barriers is what they expose.
    healthy = replace(job, host_ns=int(step * size))
    return Made(replace(healthy, barriers=rng.choice((1, 2, 4))), Place(), healthy)


@fault("pauses", "jitter", "gc; [Gg]arbage", ("ddp", "fsdp2", "hsdp"))
def _pauses(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = replace(_with_items(job), steps=8)
    return Made(replace(healthy, pause_ns=int(step * size * rng.uniform(1.0, 1.3))), Place(),
                healthy)  # fmt: skip


@fault("pauses-of-all", "all-ranks-pause", "less often; py-spy", ("ddp", "fsdp2", "hsdp"))
def _pauses_of_all(job: Job, size: float, step: float, rng: random.Random) -> Made:
    every = rng.choice((3, 4))
    healthy = replace(_with_items(job), steps=12, pause_every=every, pause_all=True)
    return Made(replace(healthy, pause_ns=int(step * size * every)), Place(), healthy)


@fault("loader-epochs", "data-loader-stall all-ranks-pause", "[Ll]oader; workers",
        ("ddp", "fsdp2", "zero1"))  # fmt: skip
def _loader_epochs(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # Workers that start anew with each epoch.
    every = rng.choice((3, 4))
    healthy = replace(_with_items(job), steps=12, loader_every=every)
    return Made(replace(healthy, loader_ns=((-1, int(step * size * every)),)), Place(), healthy)


@fault("more-work", "straggler-rank", "[Bb]alance; tokens; work", ("ddp", "fsdp2", "hsdp"))
def _more_work(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rank = rng.randrange(job.ranks)
    factor = 1.0 + size * rng.uniform(1.1, 1.4)
    return Made(replace(job, work_factor=((rank, factor),)), Place(ranks=(rank,)))


@fault("checkpoint", "one-rank-pauses unsteady-steps straggler-rank",
        "checkpoint; longest step; host; Host", ("ddp", "fsdp2", "hsdp"))  # fmt: skip
def _checkpoint(job: Job, size: float, step: float, rng: random.Random) -> Made:
    every = rng.choice((2, 3))
    healthy = replace(_with_items(job), steps=3 * every + 1)
    rank = rng.choice((0, rng.randrange(job.ranks)))
    faulty = replace(healthy, checkpoint_ns=int(step * size * every), checkpoint_every=every,
                     checkpoint_rank=rank)  # fmt: skip
    return Made(faulty, Place(ranks=(rank,)), healthy)


@fault("exposed-copies", "exposed-copies blocking-sync", "pin_memory; non_blocking", ALL)
def _copies(job: Job, size: float, step: float, rng: random.Random) -> Made:
    rate = job.hw.host_link_rate * 0.8 / 2.5
    return Made(replace(job, copies_bytes=int(step * size * 1.1 * rate)))


@fault("unused-scan", "unused-parameter-scan", "find_unused_parameters; static_graph", ("ddp",))
def _scan(job: Job, size: float, step: float, rng: random.Random) -> Made:
    healthy = _with_items(job)
    return Made(replace(healthy, unused_scan_ns=int(step * size * 1.1)), Place(), healthy)


@fault("blocking-logging", "blocking-sync", "device; \\.item; sync")
def _logging(job: Job, size: float, step: float, rng: random.Random) -> Made:
    # Host work between steps that the host's lead hides, until the loss is read.
    healthy = replace(job, host_ns=int(step * size), steps=6)
    return Made(replace(healthy, blocking_every="step"), Place(), healthy)
