"""What one lab run is: the job, its hosts and links, and the switches of the faults.

The healthy and the faulty run of a case are two of these that differ in the fault only. Nothing
of it enters the recorded trace except strategy, ``compute``, ``precision``, host names and process
groups.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.lab.hosts import LinkShape

STRATEGIES = (
    "ddp", "zero1", "fsdp2", "fsdp2-zero2", "hsdp", "tp", "pp", "pp-gpipe", "ep",
)  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """One run. Per-rank switches map rank to a value; ranks that are absent are healthy."""

    strategy: str = "ddp"
    ranks: int = 4
    ranks_per_host: int = 1
    layers: int = 12
    layer_bytes: int = 1 << 20
    """Parameter bytes of one whole layer (fp32), before any sharding."""
    forward_ms: float = 3.0
    """Emulated time of one layer and micro-batch."""
    backward_ms: float = 6.0
    micro_batches: int = 1
    """Gradient accumulation steps, or the pipeline's micro-batches."""
    activation_elements: int = 16_384
    """fp32 elements of one micro-batch between layers: what TP, PP and EP send."""
    link_mbit: float = 2000.0
    """Rate of every host's link, both directions; 0 = unshaped."""
    steady_links: bool = False
    """Links that are no faster than their rate after a pause either, as real ones."""
    links: dict[int, LinkShape] = field(default_factory=dict)
    """Hosts whose link differs."""
    compute: str = "emulated"
    """'emulated', or 'real': matrix products of about the same length."""

    time_scale: dict[int, float] = field(default_factory=dict)
    """Slow ranks: the same work takes this many times as long."""
    work_scale: dict[int, float] = field(default_factory=dict)
    """Ranks with more samples: activations and time grow by this factor."""
    cpu_quota: dict[int, float] = field(default_factory=dict)
    """Ranks held to this share of one core by the kernel (with compute: real)."""
    loader_ms: dict[int, float] = field(default_factory=dict)
    """Data-loader time before every step."""
    pause_ms: float = 0.0
    """Pause of one rank, another one each step, like a collection of garbage."""
    burners: int = 0
    """Noisy neighbours: processes that spin, on one core after another."""

    bucket_cap_mb: float = 25.0
    gradient_as_bucket_view: bool = True
    static_graph: bool = False
    extra_all_reduces: int = 0
    """Scalar all-reduces per step, as careless metric logging does."""
    sync_every_micro_batch: bool = False
    blocking: bool = False
    """Gradients all-reduced by hand, each waited for at once."""
    prefetch: bool = True
    """FSDP: all-gathers started one layer ahead, asynchronously."""
    prefetch_forward: int = 1
    """FSDP: units gathered ahead in the forward pass, where ``prefetch`` is on."""
    reshard: bool | None = None
    """FSDP: reshard after forward; None = what the strategy's name says."""
    wrap_layers: int = 1
    """FSDP: neighbouring layers that form one unit."""
    barrier: bool = False
    stage_layers: tuple[int, ...] = ()
    """Pipeline: layers of each stage; empty = equal."""
    tensor_across_hosts: bool = False
    find_unused_parameters: bool = False
    gradient_dtype: str = "float32"
    precision: str = "float32"
    """What the job says it computes in (``bf16``), as its emulated arithmetic cannot show it."""
    expert_skew: float = 0.0
    """EP: share of all tokens that goes to expert 0 beyond its fair part."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy {self.strategy!r} is none of {', '.join(STRATEGIES)}")
        if self.ranks % self.ranks_per_host:
            raise ValueError(
                f"ranks ({self.ranks}) must be a multiple of ranks_per_host ({self.ranks_per_host})"
            )
        if self.stage_layers and sum(self.stage_layers) != self.layers:
            raise ValueError(f"stage_layers {self.stage_layers} do not add up to {self.layers}")

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.ranks // self.ranks_per_host

    def host_of(self, rank: int) -> int:
        """Host that a rank runs on: ranks fill hosts in order."""
        return rank // self.ranks_per_host

    def link_of(self, host: int) -> LinkShape:
        """Shape of one host's link."""
        return self.links.get(
            host, LinkShape(self.link_mbit, self.link_mbit, steady=self.steady_links)
        )

    def but(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> str:
        """For the case's record; read back by :func:`from_json`."""
        return json.dumps(asdict(self))


def from_json(text: str) -> RunConfig:
    """The inverse of :meth:`RunConfig.to_json`."""
    fields = json.loads(text)
    for name in ("time_scale", "work_scale", "cpu_quota", "loader_ms"):
        fields[name] = {int(rank): value for rank, value in fields[name].items()}
    fields["links"] = {int(host): LinkShape(**link) for host, link in fields["links"].items()}
    fields["stage_layers"] = tuple(fields["stage_layers"])
    return RunConfig(**fields)
