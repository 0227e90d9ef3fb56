"""A layout: a strategy, its degrees, and the settings that go with it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from advisor.model.memory import WITH_MASTER, Precision, Recompute

DataStrategy = Literal["single", "ddp", "zero1", "fsdp2-zero2", "fsdp2", "hsdp"]
# From simple to involved: with nearly equal times the simpler one is recommended.
DATA_STRATEGIES: tuple[DataStrategy, ...] = ("ddp", "zero1", "fsdp2-zero2", "fsdp2", "hsdp")


@dataclass(frozen=True)
class Settings:
    """What a user can change without changing the layout.

    `unfused_attention`: kernels from before FlashAttention, which write every score to memory;
    `recompute` "selective" drops those scores and computes attention alone again. `fused_loss`: a
    cross-entropy that writes its gradient over the logits, `fused_mlp`: a gated MLP that computes
    its product again. `overlap_tensor`: matrices are cut, and
    tensor-parallel communication of a piece runs beside the next (Transformer Engine's userbuffers
    under Megatron's ``--tp-comm-overlap``, torch's async tensor parallelism). `overlap_chunks`:
    parameters are gathered beside the next forward, and an interleaved pipeline reduces, gathers
    and hands on one chunk beside the others (Megatron's ``--overlap-grad-reduce``,
    ``--overlap-param-gather``, and overlap_p2p_comm).
    `transformer_engine`: its kernels, with cuDNN's attention for Hopper. `communication_bytes` of a
    gradient on the wire, and of Megatron-LM's in memory; 0: as `wire_bytes` says, `bucket_bytes`
    likewise.
    """

    recompute: Recompute = "none"
    offload_optimizer: bool = False
    communication_bytes: int = 0
    precision: Precision = "mixed"
    unfused_attention: bool = False
    fused_loss: bool = False
    fused_mlp: bool = False
    overlap_tensor: bool = False
    overlap_chunks: bool = False
    transformer_engine: bool = False
    bucket_bytes: int = 0

    @property
    def checkpointing(self) -> bool:
        """Whether whole layers are computed again."""
        return self.recompute == "full"

    def spared(self, only: Recompute | None = None) -> "Iterator[Settings]":
        """The same with less and less kept for backward, this first; or as `only` says."""
        if only is not None:
            yield replace(self, recompute=only)
            return
        yield self
        if not self.fused_mlp:  # a compiler or a fused kernel does it, at little cost
            yield replace(self, fused_mlp=True)
        if self.unfused_attention:
            yield replace(self, recompute="selective")
        yield replace(self, recompute="full")


DEFAULTS = Settings()


@dataclass(frozen=True)
class Layout:
    """A strategy over the GPUs: data x context x tensor x pipeline, experts inside the data ranks.

    `context` ranks share each sequence (ring attention). `interleave` is how many chunks of layers
    each pipeline stage holds (1F1B interleaved above 1).
    """

    data_strategy: DataStrategy
    data: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    micro_batch: int = 1
    accumulation: int = 1
    interleave: int = 1
    context: int = 1

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters, or shards of them, and sum their gradients."""
        return self.data * self.context

    @property
    def sums_in_fp32(self) -> bool:
        """Whether gradients are kept and summed in fp32 beside 16-bit weights.

        Megatron-LM does (docs/api-guide/dist_optimizer.md: 18 bytes per parameter, 6 + 12/d
        sharded), and DeepSpeed's pipelines of bf16.
        """
        split = self.tensor > 1 or self.pipeline > 1
        return split and self.data_strategy in ("single", "ddp", "zero1")

    @property
    def strategy(self) -> str:
        """Its name as `advisor profile --strategy` takes it, parts joined by '+'."""
        names = ("pp", self.pipeline), ("tp-sp", self.tensor), ("ep", self.expert)
        parts = [name for name, ranks in (*names, ("cp", self.context)) if ranks > 1]
        if self.replicas > 1 or not parts:
            parts.append(self.data_strategy)
        return "+".join(parts)

    def largest_stage(self, layers: int) -> int:
        """Layers of the pipeline's largest stage, of so many in all: the others wait for it."""
        return ceil(layers / self.pipeline)

    def end_stage(self, layers: int) -> int:
        """Layers of the first and the last stage: of uneven ones those with fewer stand there."""
        fewer = self.pipeline - layers % self.pipeline
        return layers // self.pipeline if fewer >= 2 else self.largest_stage(layers)

    @property
    def kind(self) -> tuple[bool, ...]:
        """Which of tensor, pipeline, expert and context parallelism it needs beside data's."""
        return self.tensor > 1, self.pipeline > 1, self.expert > 1, self.context > 1

    @property
    def complexity(self) -> int:
        """How much there is to set up and to go wrong; for ties only.

        A pipeline shards its optimizer by a switch of Megatron's.
        """
        names = ("single", *DATA_STRATEGIES)
        order = 0 if self.pipeline > 1 else names.index(self.data_strategy)
        tens = (self.tensor > 1) + (self.expert > 1) + (self.context > 1) + 2 * (self.pipeline > 1)
        return order + 10 * tens


def wire_bytes(layout: Layout, settings: Settings) -> int:
    """Bytes of one gradient on the wire: as the settings say, else as it is summed."""
    wide = layout.sums_in_fp32 and settings.precision in WITH_MASTER
    whole = settings.precision == "fp32" or wide
    return settings.communication_bytes or (4 if whole else 2)


def bucket_bytes(layout: Layout, settings: Settings) -> int:
    """Bytes of gradients that are summed at a time: as the settings say, else by the software.

    torch's DDP: 25 MiB (bucket_cap_mb); Megatron-LM: max(40 M, 1 M x data ranks) parameters
    (megatron/core/distributed/distributed_data_parallel.py).
    """
    if settings.bucket_bytes:
        return settings.bucket_bytes
    if not layout.sums_in_fp32:
        return 25 * 1024 * 1024
    return max(40_000_000, 1_000_000 * layout.replicas) * wire_bytes(layout, settings)
