"""The kinds of fault: for each, how a healthy job becomes a faulty one.

A maker takes a seeded generator and a strategy and returns the two configurations, the strength in
words and the place. Strengths, places and jobs vary with the generator only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.lab.case import Place
from benchmarks.lab.config import RunConfig
from benchmarks.lab.hosts import LinkShape
from benchmarks.lab.jobs import KIB, healthy

MIB = 1 << 20


@dataclass(frozen=True)
class Fault:
    """What a maker returns."""

    healthy: RunConfig
    faulty: RunConfig
    strength: str
    place: Place = field(default_factory=Place)


Maker = Callable[[random.Random, str], Fault]


def _busy(job: RunConfig, factor: int = 3) -> RunConfig:
    """The same job with more bytes, so that its links matter."""
    return job.but(
        layer_bytes=factor * job.layer_bytes,
        bucket_cap_mb=factor * job.bucket_cap_mb,
        activation_elements=factor * job.activation_elements,
    )


def _host_place(job: RunConfig, host: int, direction: str = "") -> Place:
    ranks = tuple(rank for rank in range(job.ranks) if job.host_of(rank) == host)
    return Place(ranks=ranks, hosts=(host,), direction=direction)


def _several_hosts(chance: random.Random, strategy: str, at_least: int = 2) -> RunConfig:
    while (job := healthy(strategy, chance)).hosts < at_least:
        pass
    return job


def _link_job(chance: random.Random, strategy: str) -> RunConfig:
    # With two hosts the two ends of the only connection cannot be told apart.
    job = _several_hosts(chance, strategy, at_least=3)
    return _busy(job, 10 if strategy in ("fsdp2", "fsdp2-zero2", "hsdp") else 3)


def slow_link(chance: random.Random, strategy: str) -> Fault:
    job = _link_job(chance, strategy)
    host = chance.randrange(job.hosts)
    mbit = job.link_mbit * chance.choice((0.1, 0.15, 0.25))
    faulty = job.but(links={host: LinkShape(mbit, mbit)})
    return Fault(job, faulty, f"{mbit:.0f} of {job.link_mbit:.0f} Mbit/s", _host_place(job, host))


def slow_link_one_way(chance: random.Random, strategy: str) -> Fault:
    job = _link_job(chance, strategy)
    host = chance.randrange(job.hosts)
    mbit = job.link_mbit * chance.choice((0.1, 0.15, 0.25))
    direction = chance.choice(("send", "receive"))
    link = (mbit, job.link_mbit) if direction == "send" else (job.link_mbit, mbit)
    faulty = job.but(links={host: LinkShape(*link)})
    strength = f"{direction} {mbit:.0f} of {job.link_mbit:.0f} Mbit/s"
    return Fault(job, faulty, strength, _host_place(job, host, direction))


def added_latency(chance: random.Random, strategy: str) -> Fault:
    job = _several_hosts(chance, strategy, at_least=3)
    host = chance.randrange(job.hosts)
    delay_ms = chance.choice((1.0, 2.0, 4.0))
    link = LinkShape(job.link_mbit, job.link_mbit, delay_ms=delay_ms)
    return Fault(
        job, job.but(links={host: link}), f"{delay_ms:g} ms each way", _host_place(job, host)
    )


def packet_loss(chance: random.Random, strategy: str) -> Fault:
    job = _link_job(chance, strategy)
    host = chance.randrange(job.hosts)
    loss = chance.choice((0.02, 0.04, 0.08))
    # The relay alone costs a little: the healthy run has one that loses nothing.
    relayed = LinkShape(job.link_mbit, job.link_mbit, delay_ms=0.05)
    lossy = LinkShape(job.link_mbit, job.link_mbit, delay_ms=0.05, loss=loss)
    return Fault(
        job.but(links={host: relayed}), job.but(links={host: lossy}),
        f"{loss:.0%} of what the host sends", _host_place(job, host, "send"),
    )  # fmt: skip


def slow_rank(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance)
    rank = chance.randrange(job.ranks)
    scale = chance.choice((1.2, 1.35, 1.6))
    return Fault(
        job, job.but(time_scale={rank: scale}), f"compute x{scale:g}", Place(ranks=(rank,))
    )


def cpu_quota(chance: random.Random, strategy: str) -> Fault:
    job = RunConfig(
        strategy=strategy, ranks=2, layers=6, layer_bytes=64 * KIB, forward_ms=4, backward_ms=8,
        link_mbit=2000.0, bucket_cap_mb=0.125, compute="real",
    )  # fmt: skip
    rank = chance.randrange(job.ranks)
    share = chance.choice((0.5, 0.7))
    return Fault(job, job.but(cpu_quota={rank: share}), f"{share:.0%} of a core", Place((rank,)))


def imbalanced_work(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance)
    rank = chance.randrange(job.ranks)
    scale = chance.choice((1.25, 1.5, 1.75))
    return Fault(
        job, job.but(work_scale={rank: scale}), f"{scale:g} times the samples", Place((rank,))
    )


def loader_stall(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance)
    rank = chance.randrange(job.ranks)
    stall_ms = chance.choice((20.0, 35.0, 60.0))
    return Fault(job, job.but(loader_ms={rank: stall_ms}), f"{stall_ms:g} ms", Place((rank,)))


def pauses(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance, ranks=4)
    pause_ms = chance.choice((25.0, 40.0, 60.0))
    return Fault(job, job.but(pause_ms=pause_ms), f"{pause_ms:g} ms on another rank each step")


def small_buckets(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance, ranks=chance.choice((4, 4, 8)))
    job = job.but(layers=2 * job.layers, forward_ms=job.forward_ms / 2,
                  backward_ms=job.backward_ms / 4, layer_bytes=job.layer_bytes // 2)  # fmt: skip
    cap_mb = chance.choice((0.01, 0.05))
    return Fault(job, job.but(bucket_cap_mb=cap_mb), f"{cap_mb:g} MB cap")


def tiny_all_reduces(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance)
    count = chance.choice((30, 60, 100))
    return Fault(job, job.but(extra_all_reduces=count), f"{count} scalars per step")


def sync_every_micro_batch(chance: random.Random, strategy: str) -> Fault:
    job = _busy(healthy(strategy, chance), 4)
    count = chance.choice((3, 4, 6))
    job = job.but(micro_batches=count, forward_ms=job.forward_ms / count,
                  backward_ms=job.backward_ms / count)  # fmt: skip
    return Fault(job, job.but(sync_every_micro_batch=True), f"{count} micro-batches")


def blocking(chance: random.Random, strategy: str) -> Fault:
    job = _busy(healthy(strategy, chance), 5)
    return Fault(job, job.but(blocking=True), "every gradient waited for")


def no_prefetch(chance: random.Random, strategy: str) -> Fault:
    job = _busy(healthy(strategy, chance), chance.choice((40, 56)))
    return Fault(job, job.but(prefetch=False), f"{job.layer_bytes // KIB} KiB layers")


def needless_reshard(chance: random.Random, strategy: str) -> Fault:
    # Prefetched in both runs, over links too slow to hide the second all-gather.
    job = _busy(healthy(strategy, chance), chance.choice((12, 16)))
    job = job.but(link_mbit=job.link_mbit / 16)
    return Fault(
        job.but(reshard=False), job.but(reshard=True), f"{job.layer_bytes // KIB} KiB layers"
    )


def barrier(chance: random.Random, strategy: str) -> Fault:
    # A barrier costs a few one-way delays, with nothing to hide behind.
    job, apart_ms = _far_apart(chance, strategy)
    return Fault(job, job.but(barrier=True), f"every step, hosts {apart_ms:g} ms apart")


def _far_apart(chance: random.Random, strategy: str) -> tuple[RunConfig, float]:
    """Four hosts far from one another, and gradients in two messages: delays count, but seldom."""
    job = healthy(strategy, chance, ranks=4)
    delay_ms = chance.choice((4.0, 6.0))
    link = LinkShape(job.link_mbit, job.link_mbit, delay_ms=delay_ms)
    half_mb = job.layer_bytes * job.layers / 2 / MIB
    job = job.but(ranks_per_host=1, bucket_cap_mb=half_mb, links=dict.fromkeys(range(4), link))
    return job, 2 * delay_ms


def unbalanced_stages(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance, ranks=chance.choice((2, 3, 4)))
    job = job.but(layers=3 * job.ranks)
    heavy = chance.randrange(job.ranks)
    extra = chance.choice((1, 2))
    light = [rank for rank in range(job.ranks) if rank != heavy][:extra]
    counts = [3] * job.ranks
    for rank in light:
        counts[rank] -= 1
        counts[heavy] += 1
    layers = "+".join(map(str, counts))
    return Fault(job, job.but(stage_layers=tuple(counts)), f"layers {layers}", Place((heavy,)))


def few_micro_batches(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance, ranks=chance.choice((2, 3, 4)))
    count = chance.choice((2, 4))
    if strategy == "pp" and count < job.ranks:
        count = 4  # 1F1B refuses fewer micro-batches than stages
    merged = job.micro_batches / count
    faulty = job.but(
        micro_batches=count, forward_ms=job.forward_ms * merged,
        backward_ms=job.backward_ms * merged,
        activation_elements=int(job.activation_elements * merged),
    )  # fmt: skip
    return Fault(job, faulty, f"{count} instead of {job.micro_batches}")


def tensor_across_hosts(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance, ranks=chance.choice((4, 4, 8)))
    job = job.but(activation_elements=chance.choice((64, 128)) * KIB, link_mbit=500.0)
    return Fault(
        job, job.but(tensor_across_hosts=True),
        f"{4 * job.activation_elements // KIB} KiB activations", Place(group="tp"),
    )  # fmt: skip


def unused_parameter_scan(chance: random.Random, strategy: str) -> Fault:
    # The scan agrees among all ranks on what was used, which costs a few one-way delays.
    job, apart_ms = _far_apart(chance, strategy)
    return Fault(job, job.but(find_unused_parameters=True), f"hosts {apart_ms:g} ms apart")


def wide_gradients(chance: random.Random, strategy: str) -> Fault:
    # A job that computes in bf16: only then is the width of its gradients surely more than needed.
    job = _busy(healthy(strategy, chance), chance.choice((8, 10))).but(precision="bf16")
    return Fault(job.but(gradient_dtype="bfloat16"), job, f"{job.layer_bytes // KIB} KiB layers")


def expert_skew(chance: random.Random, strategy: str) -> Fault:
    job = healthy(strategy, chance, ranks=4)
    skew = chance.choice((0.15, 0.3, 0.5))
    return Fault(job, job.but(expert_skew=skew), f"{skew:.0%} of the tokens", Place((0,)))


@dataclass(frozen=True)
class Kind:
    """How often a kind occurs and under which strategies (one after the other)."""

    maker: Maker
    strategies: tuple[str, ...]
    count: int


KINDS: dict[str, Kind] = {
    "slow-link": Kind(slow_link, ("ddp", "fsdp2", "zero1", "ddp", "hsdp", "ep"), 6),
    "slow-link-one-way": Kind(slow_link_one_way, ("ddp", "fsdp2-zero2", "ddp", "fsdp2"), 5),
    "added-latency": Kind(added_latency, ("ddp", "fsdp2", "zero1"), 3),
    "packet-loss": Kind(packet_loss, ("ddp", "fsdp2-zero2"), 3),
    "slow-rank": Kind(slow_rank, ("ddp", "fsdp2", "tp", "zero1", "hsdp", "ep"), 6),
    "cpu-quota": Kind(cpu_quota, ("ddp",), 2),
    "imbalanced-work": Kind(imbalanced_work, ("ddp", "fsdp2", "zero1"), 4),
    "loader-stall": Kind(loader_stall, ("ddp", "fsdp2", "hsdp", "zero1"), 4),
    "pauses": Kind(pauses, ("ddp", "fsdp2", "zero1"), 4),
    "small-buckets": Kind(small_buckets, ("ddp", "ddp", "zero1"), 3),
    "tiny-all-reduces": Kind(tiny_all_reduces, ("ddp", "fsdp2", "zero1"), 4),
    "sync-every-micro-batch": Kind(sync_every_micro_batch, ("ddp", "fsdp2", "ddp"), 4),
    "blocking": Kind(blocking, ("ddp",), 3),
    "no-prefetch": Kind(no_prefetch, ("fsdp2", "fsdp2-zero2", "hsdp"), 3),
    "needless-reshard": Kind(needless_reshard, ("fsdp2",), 2),
    "barrier": Kind(barrier, ("ddp",), 2),
    "unbalanced-stages": Kind(unbalanced_stages, ("pp", "pp-gpipe"), 3),
    "few-micro-batches": Kind(few_micro_batches, ("pp", "pp-gpipe"), 4),
    "tensor-across-hosts": Kind(tensor_across_hosts, ("tp",), 3),
    "unused-parameter-scan": Kind(unused_parameter_scan, ("ddp",), 2),
    "fp32-gradients": Kind(wide_gradients, ("ddp",), 2),
    "expert-skew": Kind(expert_skew, ("ep",), 3),
}
