"""The layouts that are tried: a strategy, its degrees, and the settings that go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from advisor.model.memory import WITH_MASTER, Precision, Recompute
from advisor.model.transformer import TransformerShape

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

    def spared(self, only: Recompute | None = None) -> Iterator[Settings]:
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


@dataclass(frozen=True)
class Own:
    """Degrees the user has chosen, and what is computed again; None for those to be tried."""

    tensor: int | None = None
    pipeline: int | None = None
    micro_batch: int | None = None
    interleave: int | None = None
    context: int | None = None
    recompute: Recompute | None = None


ANY = Own()


def layouts(
    shape: TransformerShape,
    gpus: int,
    gpus_per_node: int,
    global_batch: int,
    own: Own = ANY,
    *,
    sequence: int = 0,
) -> Iterator[Layout]:
    """Every layout worth an estimate, with every micro-batch that divides the global batch.

    Tensor parallelism stays inside a node and divides the heads; a pipeline has any number of
    stages that divides the GPUs, each of at least a layer, of uneven numbers where they do not
    divide them, on different nodes or parts of one; experts are spread inside a node. Sequences
    are shared inside a node, in pieces of at least 4,096 tokens.
    """
    contexts = _one(own.context) or _powers(max(1, min(gpus_per_node, sequence // 4096)))
    for tensor in _one(own.tensor) or _powers(min(gpus, gpus_per_node)):
        if gpus % tensor or not _divides_heads(shape, tensor, copies=own.tensor is not None):
            continue
        for pipeline in _one(own.pipeline) or _divisors(gpus // tensor, min(shape.layers, 64)):
            if gpus % (tensor * pipeline) or pipeline > shape.layers:
                continue
            # A pipeline pays once tensor parallelism has filled half of the node.
            least = min(gpus_per_node // 2, shape.kv_heads, gpus)
            if pipeline > 1 and own.pipeline is None and tensor < least:
                continue
            stage = gpus // (tensor * pipeline)
            for context in contexts:
                if stage % context or (own.context is None and context * tensor > gpus_per_node):
                    continue
                shared = Layout("single", stage // context, tensor, pipeline, context=context)
                yield from _of_degrees(shape, shared, gpus, gpus_per_node, global_batch, own)


def _divides_heads(shape: TransformerShape, tensor: int, *, copies: bool) -> bool:
    """Whether ranks share the heads evenly; ``copies``: with a copy of a key-value head on several
    ranks, as StarCoder's one was kept on four (bigcode-project/Megatron-LM).
    """
    copied = copies and tensor % shape.kv_heads == 0
    return shape.heads % tensor == 0 and (shape.kv_heads % tensor == 0 or copied)


def why_none(
    shape: TransformerShape, gpus: int, global_batch: int, own: Own = ANY
) -> tuple[str, str]:
    """What keeps every layout of the user's own degrees out, and what to give instead."""
    tensor, pipeline, context = own.tensor or 1, own.pipeline or 1, own.context or 1
    degrees = tensor * pipeline * context
    if not _divides_heads(shape, tensor, copies=True):
        heads = f"{shape.heads} heads and {shape.kv_heads} key-value heads"
        return f"--tp {tensor} does not divide {heads}", "give --tp a divisor of both"
    if pipeline > shape.layers:
        return f"--pp {pipeline} is more than {shape.layers} layers", "give fewer stages"
    if gpus % degrees:
        what = (
            f"tensor, pipeline and context degrees, {degrees} together, do not divide {gpus} GPUs"
        )
        return what, "give degrees or --gpus of which they do"
    each = gpus // degrees * (own.micro_batch or 1)
    if global_batch % each:
        what = f"no layout divides a global batch of {global_batch} sequences over {gpus} GPUs"
        return what, f"give --global-batch a multiple of {each}"
    return (
        f"no schedule fits {global_batch // each} micro-batches of a rank over {gpus} GPUs",
        "give a larger --global-batch, a smaller --micro-batch or other degrees",
    )


def _of_degrees(
    shape: TransformerShape,
    degrees: Layout,
    gpus: int,
    gpus_per_node: int,
    global_batch: int,
    own: Own,
) -> Iterator[Layout]:
    """Every strategy, micro-batch and schedule of these degrees."""
    data, room = degrees.data, gpus_per_node // (degrees.tensor * degrees.context)
    for expert in _experts(shape, data, room):
        for strategy in _data_strategies(degrees, gpus, gpus_per_node):
            for micro_batch in _one(own.micro_batch) or _powers(64):
                if global_batch % (data * micro_batch):
                    break
                accumulation = global_batch // (data * micro_batch)
                for interleave in _chunks(shape.layers, degrees.pipeline, accumulation, own):
                    yield replace(
                        degrees,
                        data_strategy=strategy,
                        expert=expert,
                        micro_batch=micro_batch,
                        accumulation=accumulation,
                        interleave=interleave,
                    )


def _one(value: int | None) -> tuple[int, ...]:
    return () if value is None else (value,)


def _divisors(number: int, limit: int) -> list[int]:
    return [value for value in range(1, min(number, limit) + 1) if number % value == 0]


def _chunks(layers: int, pipeline: int, accumulation: int, own: Own) -> tuple[int, ...]:
    """Chunks per stage: one, and the most up to 8 that leave each at least a layer.

    The interleaved schedule needs micro-batches in multiples of the stages.
    """
    if own.interleave is not None:
        return (own.interleave,)
    most = min(8, ceil(layers / pipeline))
    if pipeline == 1 or most < 2 or accumulation % pipeline:
        return (1,)
    return (1, most)


def _powers(limit: int) -> list[int]:
    """Powers of two from 1 to the limit."""
    return [1 << power for power in range(limit.bit_length())]


def _experts(shape: TransformerShape, data: int, room: int) -> tuple[int, ...]:
    spread = min(shape.experts, data, max(1, room))
    return (1, spread) if spread > 1 else (1,)


def _data_strategies(degrees: Layout, gpus: int, gpus_per_node: int) -> tuple[DataStrategy, ...]:
    replicas = degrees.replicas
    if replicas == 1:
        return ("single",)
    if degrees.pipeline > 1:
        # ZeRO-2 and 3 would communicate for every micro-batch of every stage; ZeRO-1 moves less
        # than an all-reduce of fp32 gradients and is one switch of Megatron's.
        return ("zero1",)
    several = gpus > gpus_per_node and replicas > gpus_per_node // degrees.tensor > 1
    return DATA_STRATEGIES if several else DATA_STRATEGIES[:-1]
