"""Which layouts are tried: every degree and schedule worth an estimate, or the user's own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from advisor.model.memory import Recompute
from advisor.model.plan_layout import DATA_STRATEGIES, DataStrategy, Layout
from advisor.model.transformer import TransformerShape


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
    are shared in pieces of at least 4,096 tokens, inside a node or by nodes that tensor parallelism
    fills.
    """
    contexts = _one(own.context) or _powers(max(1, sequence // 4096))
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
                inside = context * tensor <= gpus_per_node or tensor == gpus_per_node
                if stage % context or not (inside or own.context):
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
