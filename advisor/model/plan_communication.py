"""Communication of one layout per step, and what of it no compute hides; all modelled."""

from dataclasses import dataclass
from math import ceil

from advisor.model.plan_cluster import Cluster, Group
from advisor.model.plan_layout import Layout, Settings, bucket_bytes, wire_bytes
from advisor.model.plan_speed import Speed
from advisor.model.plan_traffic import (
    all_reduce_bytes,
    expert_parallel_layer_bytes,
    gather_bytes,
    pipeline_boundary_bytes,
    tensor_parallel_layer_bytes,
)
from advisor.model.transformer import TransformerShape


@dataclass(frozen=True)
class ShardedStep:
    """One step of ``micro_batches`` over ``units`` that are gathered and scattered each alone.

    ``gather_s`` and ``scatter_s`` are one unit's, ``forward_s`` and ``backward_s`` one
    micro-batch's compute in each pass.
    """

    units: int
    micro_batches: int
    gather_s: float
    scatter_s: float
    forward_s: float
    backward_s: float

    def exposed_s(self, gathers: int = 2) -> float:
        """Gathers and scatters that no compute hides, s; ``gathers`` per unit and micro-batch.

        The first gather of a pass and the last scatter have nothing beside them.
        """
        again = (gathers - 1) * self.gather_s + self.scatter_s
        ahead = max(self.units * self.gather_s - self.forward_s, self.gather_s)
        behind = max(self.units * again - self.backward_s, again)
        return self.micro_batches * (ahead + behind)

    def exposed_with_replicas_s(self, reduce_s: float) -> float:
        """The same under HSDP, where ``reduce_s`` (all units) runs between replicas at the end, s.

        It runs on other links than the gathers, beside the last backward pass, unit by unit behind
        the scatters. The compute of that pass hides both at once, and where its gathers and
        scatters outlast the compute, the reduction hides behind them too.
        """
        again = self.gather_s + self.scatter_s
        last = max(self.units * again - self.backward_s, again)
        both = max(last + reduce_s / self.units, reduce_s - self.backward_s)
        return self.exposed_s() - last + both


@dataclass(frozen=True)
class Case:
    """What is estimated: one layout of a model on a cluster, with its settings.

    ``sequence`` is in tokens, ``peak_flops`` of one device in FLOP/s.
    """

    shape: TransformerShape
    cluster: Cluster
    layout: Layout
    settings: Settings
    sequence: int
    speed: Speed
    peak_flops: float

    @property
    def shards(self) -> int:
        """Ranks that a sharded strategy spreads the parameters over."""
        if self.layout.data_strategy == "hsdp":
            return max(1, self.cluster.machine.gpus_per_node // self.layout.tensor)
        return self.layout.replicas


def backward_share(settings: Settings) -> float:
    """Share of a step's compute that is its backward pass, with what it computes again."""
    return 3 / 4 if settings.checkpointing else 2 / 3


@dataclass
class Communication:
    total: float = 0.0
    exposed: float = 0.0
    intra_bytes: float = 0.0
    inter_bytes: float = 0.0

    def move(self, size: float, group: Group) -> None:
        """Of a ring's hops one in `per_node` leaves the node; the mean over its ranks."""
        outside = size / group.per_node if group.nodes > 1 else 0.0
        self.inter_bytes += outside
        self.intra_bytes += size - outside


def data_parallel(case: Case, own: float, compute: float) -> Communication:
    """``own``: the rank's parameters before sharding; ``compute``: its seconds of it per step.

    With ``overlap_chunks`` parameters are gathered beside the next forward. Interleaved, a chunk's
    gradients are complete while the stage's other chunks still compute their last micro-batches,
    one of each stage, and its parameters are gathered beside the others' first (Megatron-LM's
    --overlap-grad-reduce and --overlap-param-gather).
    """
    cluster, layout, settings = case.cluster, case.layout, case.settings
    result = Communication()
    if layout.replicas == 1:
        return result
    whole = cluster.group(layout.replicas, layout.tensor)
    wire = wire_bytes(layout, settings)
    gradients = own * wire
    steps = layout.accumulation
    backward_s = backward_share(settings) * compute / steps
    forward_s = (1 - backward_share(settings)) * compute / steps
    if layout.data_strategy in ("ddp", "zero1"):
        count = max(1, ceil(gradients / bucket_bytes(layout, settings)))
        bucket = gradients / count
        is_ddp = layout.data_strategy == "ddp"
        one = cluster.collective_s("allreduce" if is_ddp else "reducescatter", bucket, whole)
        # The updated parameters.
        after = 0.0 if is_ddp else cluster.collective_s("allgather", own * 2, whole)
        result.move(all_reduce_bytes(gradients, layout.replicas), whole)
        result.total = total = count * one + after
        beside, gathered, chunks = 1.0, 0.0, layout.interleave
        if settings.overlap_chunks:
            if chunks > 1:
                beside = min(layout.pipeline, steps) * (1 - 1 / chunks)
            gathered = min(beside * forward_s, after - after / (chunks if chunks > 1 else count))
        result.exposed = max(total - after - beside * backward_s, one) + after - gathered
        return result
    units = case.shape.layers + 1
    inner = whole
    if layout.data_strategy == "hsdp":
        inner = cluster.group(case.shards, layout.tensor)
    unit = own / units
    gather = cluster.collective_s("allgather", unit * min(2, wire), inner)
    scatter = cluster.collective_s("reducescatter", unit * wire, inner)
    gathers = 1 if layout.data_strategy == "fsdp2-zero2" else 2
    per_micro = units * (gathers * gather + scatter)
    weights = gather_bytes(gathers * own * min(2, wire), inner.ranks)
    result.move(steps * (weights + gather_bytes(gradients, inner.ranks)), inner)
    result.total = steps * per_micro
    sharded = ShardedStep(units, steps, gather, scatter, forward_s, backward_s)
    result.exposed = sharded.exposed_s(gathers)
    if layout.data_strategy == "hsdp":
        replicas = layout.replicas // inner.ranks
        across = cluster.group(replicas, layout.tensor * inner.ranks)
        shard = own / inner.ranks * wire
        reduce = cluster.collective_s("allreduce", shard, across)
        result.move(all_reduce_bytes(shard, replicas), across)
        result.total += reduce
        result.exposed = sharded.exposed_with_replicas_s(reduce)
    return result


def model_parallel(case: Case, compute: float) -> Communication:
    """``compute``: the rank's seconds of it per step, beside which tensor parallelism may send."""
    shape, cluster, layout, settings = case.shape, case.cluster, case.layout, case.settings
    result = Communication()
    hidden = 0.0
    layers = layout.largest_stage(shape.layers)
    steps = layout.accumulation
    own_part = case.sequence // layout.context
    activations = layout.micro_batch * own_part * shape.hidden * 2
    calls = 6 if settings.checkpointing else 4
    if layout.tensor > 1:
        group = cluster.group(layout.tensor)
        one = cluster.collective_s("allreduce", activations, group)
        result.total += steps * layers * calls * one
        if settings.overlap_tensor:
            # Each matrix is cut into as many pieces as ranks: the first has nothing beside it.
            hidden = min(result.total * (1 - 1 / layout.tensor), compute)
        moved = tensor_parallel_layer_bytes(
            layout.micro_batch, own_part, shape.hidden, layout.tensor
        )
        result.move(steps * layers * moved * calls / 4, group)
    if layout.expert > 1:
        group = cluster.group(layout.expert, layout.tensor)
        routed = activations * shape.experts_per_token / layout.tensor
        result.total += steps * layers * calls * cluster.all_to_all_s(routed, group)
        moved = expert_parallel_layer_bytes(
            layout.micro_batch, own_part, shape.hidden, shape.experts_per_token, layout.expert
        )
        result.move(steps * layers * moved * calls / 4 / layout.tensor, group)
    if layout.context > 1:
        group = cluster.group(layout.context, layout.tensor)
        keys = 4 * shape.kv_heads * shape.head_dim / layout.tensor  # and values, of a token
        gathered = keys * layout.micro_batch * case.sequence
        one = cluster.collective_s("allgather", gathered, group)
        # Forward, again in backward (and in recomputation), and the gradients scattered.
        passes = 4 if settings.checkpointing else 3
        result.total += steps * layers * passes * one
        result.move(steps * layers * passes * gather_bytes(gathered, layout.context), group)
    if layout.pipeline > 1:
        stage = cluster.gpus // layout.pipeline
        between = stage >= cluster.machine.gpus_per_node
        size = activations / layout.tensor
        # Every chunk of a stage hands on: forward, and its gradient back. Asked to, beside the next
        # chunk (Megatron-LM's overlap_p2p_comm), but for what fills and drains the pipeline.
        crossings = steps * layout.interleave
        one = cluster.point_to_point_s(size, between_nodes=between)
        result.total += crossings * 2 * one
        if layout.interleave > 1 and settings.overlap_chunks:
            beside = max(crossings - (layout.pipeline - 1), 0) * 2 * one
            hidden += min(beside, compute - hidden)
        moved = pipeline_boundary_bytes(layout.micro_batch, own_part, shape.hidden)
        result.move(crossings * moved / layout.tensor, Group(2, 1) if between else Group(1, 2))
    result.exposed = result.total - hidden
    return result
