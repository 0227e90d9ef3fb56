"""Memory, traffic and time of one layout on one cluster, all modelled.

Assumptions, stated in every plan: matrices run at a fixed share of the dense peak; data-parallel
communication hides under the compute it can run beside (DDP and ZeRO-1 under the backward of the
last micro-batch, FSDP under the micro-batch it belongs to) except the first or last piece; tensor-
and expert-parallel communication hides under nothing; no contention between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from advisor.model.plan_cluster import Cluster, Group
from advisor.model.plan_layout import Layout, Settings
from advisor.model.plan_traffic import (
    all_reduce_bytes,
    bubble_fraction,
    expert_parallel_layer_bytes,
    gather_bytes,
    pipeline_boundary_bytes,
    tensor_parallel_layer_bytes,
)
from advisor.model.transformer import (
    ADAM_BYTES,
    StateBytes,
    TransformerShape,
    activation_bytes,
    flops_per_token,
    layer_parameters,
    output_activation_bytes,
    parameters,
    state_bytes,
)

# CUDA context, cuBLAS and NCCL buffers, allocator slack: usual on an 80 GB card.
OVERHEAD_BYTES = 4e9
USABLE_MEMORY = 0.95
# Memory bandwidth of a usual two-socket server in practice; the table does not hold it.
HOST_MEMORY_GBPS = 200.0
BACKWARD_SHARE = 2 / 3
_STAGES = {"single": 0, "ddp": 0, "zero1": 1, "fsdp2-zero2": 2, "fsdp2": 3, "hsdp": 3}


@dataclass(frozen=True)
class Estimate:
    """One layout: bytes per rank, seconds per step. Everything is modelled.

    Traffic is the mean over ranks: a ring crosses between nodes once per node and channel.
    `exposed_s` is the part of `communication_s` that nothing hides; `host_bytes` is what offload
    puts on one node's host.
    """

    layout: Layout
    settings: Settings
    state: StateBytes
    activation_bytes: float
    host_bytes: float
    memory_bytes: float
    capacity_bytes: float
    intra_traffic_bytes: float
    inter_traffic_bytes: float
    flops: float
    compute_s: float
    communication_s: float
    exposed_s: float
    bubble: float
    optimizer_s: float
    step_s: float
    tokens_per_s: float
    mfu: float

    @property
    def fits(self) -> bool:
        """Whether device (and host) memory suffices."""
        return self.memory_bytes <= self.capacity_bytes

    @property
    def is_roomy(self) -> bool:
        """Whether it fits with the quarter to spare that an estimate of activations deserves."""
        return self.memory_bytes <= 0.75 * self.capacity_bytes

    @property
    def traffic_bytes(self) -> float:
        """Bytes each rank receives per step, inside and between nodes."""
        return self.intra_traffic_bytes + self.inter_traffic_bytes


def estimate(
    shape: TransformerShape,
    cluster: Cluster,
    layout: Layout,
    settings: Settings,
    *,
    sequence: int,
    efficiency: float,
    peak_flops: float,
) -> Estimate:
    """Memory, traffic and time of `layout` with `settings`."""
    own = _own_parameters(shape, layout)
    shards = _shards(layout, cluster)
    state = state_bytes(own, _STAGES[layout.data_strategy], shards, precision=settings.precision)
    activations = _activations(shape, layout, settings, sequence)
    host = 0.0
    if settings.offload_optimizer:
        host, state = state.optimizer, StateBytes(state.parameters, state.gradients, 0.0)
    working = 0.0
    if layout.data_strategy in ("fsdp2", "hsdp"):
        # Two layers gathered at a time: the one in use and the prefetched one, and gradients.
        weights, gradients, _ = ADAM_BYTES[settings.precision]
        working = (2 * weights + gradients) * layer_parameters(shape) / layout.tensor
    compute = _compute(shape, layout, settings, sequence, efficiency * peak_flops)
    data = _data_parallel(shape, cluster, layout, settings, own, compute)
    model = _model_parallel(shape, cluster, layout, settings, sequence)
    bubble = bubble_fraction(layout.pipeline, layout.accumulation)
    replicated = layout.data_strategy in ("single", "ddp")
    optimizer = _optimizer(cluster, settings, own if replicated else own / shards)
    busy = compute + model.exposed
    step = busy / (1 - bubble) + data.exposed + optimizer
    tokens = layout.data * layout.micro_batch * layout.accumulation * sequence
    flops_total = flops_per_token(shape, sequence) * tokens
    ranks = layout.data * layout.tensor * layout.pipeline
    return Estimate(
        layout=layout,
        settings=settings,
        state=state,
        activation_bytes=activations,
        host_bytes=host * min(cluster.gpus, cluster.machine.gpus_per_node),
        memory_bytes=state.total + activations + working + OVERHEAD_BYTES,
        capacity_bytes=_capacity(cluster, host),
        intra_traffic_bytes=data.intra_bytes + model.intra_bytes,
        inter_traffic_bytes=data.inter_bytes + model.inter_bytes,
        flops=flops_total / ranks,
        compute_s=compute,
        communication_s=data.total + model.total,
        exposed_s=data.exposed + model.exposed,
        bubble=bubble,
        optimizer_s=optimizer,
        step_s=step,
        tokens_per_s=tokens / step,
        mfu=flops_total / ranks / step / peak_flops,
    )


def _own_parameters(shape: TransformerShape, layout: Layout) -> float:
    """Parameters of one rank before data-parallel sharding (largest pipeline stage)."""
    count = parameters(shape)
    embeddings = count.token_embedding + count.position_embedding + count.output_head
    inside = count.total - embeddings - count.expert
    experts = count.expert / layout.expert
    # First and last stage hold the embeddings; the largest stage decides.
    edge = max(count.token_embedding + count.position_embedding, count.output_head)
    ends = embeddings if layout.pipeline == 1 else edge
    return ((inside + experts) / layout.pipeline + ends) / layout.tensor


def _shards(layout: Layout, cluster: Cluster) -> int:
    if layout.data_strategy == "hsdp":
        return max(1, cluster.machine.gpus_per_node // layout.tensor)
    return layout.data


def _activations(
    shape: TransformerShape, layout: Layout, settings: Settings, sequence: int
) -> float:
    in_flight = min(layout.pipeline, layout.accumulation)  # 1F1B, first stage
    body = activation_bytes(
        shape,
        layout.micro_batch,
        sequence,
        recompute="full" if settings.checkpointing else "none",
        flash_attention=settings.flash_attention,
        tensor_parallel=layout.tensor,
        sequence_parallel=layout.tensor > 1,
        layers=ceil(shape.layers / layout.pipeline),
    )
    logits = output_activation_bytes(
        shape, layout.micro_batch, sequence, tensor_parallel=layout.tensor
    )
    return max(body * in_flight, body + logits) if layout.pipeline > 1 else body + logits


def _compute(
    shape: TransformerShape, layout: Layout, settings: Settings, sequence: int, speed: float
) -> float:
    tokens = layout.micro_batch * layout.accumulation * sequence
    work = flops_per_token(shape, sequence) * tokens / (layout.tensor * layout.pipeline)
    return work * (4 / 3 if settings.checkpointing else 1) / speed


@dataclass
class _Communication:
    total: float = 0.0
    exposed: float = 0.0
    intra_bytes: float = 0.0
    inter_bytes: float = 0.0

    def move(self, size: float, group: Group) -> None:
        """Of a ring's hops one in `per_node` leaves the node; the mean over its ranks."""
        outside = size / group.per_node if group.nodes > 1 else 0.0
        self.inter_bytes += outside
        self.intra_bytes += size - outside


def _data_parallel(
    shape: TransformerShape,
    cluster: Cluster,
    layout: Layout,
    settings: Settings,
    own: float,
    compute: float,
) -> _Communication:
    result = _Communication()
    if layout.data == 1:
        return result
    whole = cluster.group(layout.data, layout.tensor)
    wire = settings.communication_bytes
    gradients = own * wire
    steps = layout.accumulation
    if layout.data_strategy in ("ddp", "zero1"):
        count = max(1, ceil(gradients / settings.bucket_bytes))
        bucket = gradients / count
        if layout.data_strategy == "ddp":
            one = cluster.collective_s("allreduce", bucket, whole)
            total = count * one
            after = 0.0
        else:
            one = cluster.collective_s("reducescatter", bucket, whole)
            after = cluster.collective_s("allgather", own * 2, whole)  # the updated parameters
            total = count * one + after
        result.move(all_reduce_bytes(gradients, layout.data), whole)
        hidden = BACKWARD_SHARE * compute / steps
        result.total = total
        result.exposed = max(total - after - hidden, one) + after
        return result
    units = shape.layers + 1
    inner = whole
    if layout.data_strategy == "hsdp":
        inner = cluster.group(_shards(layout, cluster), layout.tensor)
    unit = own / units
    gather = cluster.collective_s("allgather", unit * min(2, wire), inner)
    scatter = cluster.collective_s("reducescatter", unit * wire, inner)
    gathers = 1 if layout.data_strategy == "fsdp2-zero2" else 2
    per_micro = units * (gathers * gather + scatter)
    weights = gather_bytes(gathers * own * min(2, wire), inner.ranks)
    result.move(steps * (weights + gather_bytes(gradients, inner.ranks)), inner)
    result.total = steps * per_micro
    result.exposed = max(steps * per_micro - compute, steps * (gather + scatter))
    if layout.data_strategy == "hsdp":
        replicas = layout.data // inner.ranks
        across = cluster.group(replicas, layout.tensor * inner.ranks)
        shard = own / inner.ranks * wire
        reduce = cluster.collective_s("allreduce", shard, across)
        result.move(all_reduce_bytes(shard, replicas), across)
        result.total += reduce
        result.exposed += max(reduce - BACKWARD_SHARE * compute / steps, reduce / units)
    return result


def _model_parallel(
    shape: TransformerShape,
    cluster: Cluster,
    layout: Layout,
    settings: Settings,
    sequence: int,
) -> _Communication:
    result = _Communication()
    layers = ceil(shape.layers / layout.pipeline)
    steps = layout.accumulation
    activations = layout.micro_batch * sequence * shape.hidden * 2
    if layout.tensor > 1:
        group = cluster.group(layout.tensor)
        calls = 6 if settings.checkpointing else 4
        one = cluster.collective_s("allreduce", activations, group)
        result.total += steps * layers * calls * one
        moved = tensor_parallel_layer_bytes(
            layout.micro_batch, sequence, shape.hidden, layout.tensor
        )
        result.move(steps * layers * moved * calls / 4, group)
    if layout.expert > 1:
        group = cluster.group(layout.expert, layout.tensor)
        routed = activations * shape.experts_per_token / layout.tensor
        calls = 6 if settings.checkpointing else 4
        result.total += steps * layers * calls * cluster.all_to_all_s(routed, group)
        moved = expert_parallel_layer_bytes(
            layout.micro_batch, sequence, shape.hidden, shape.experts_per_token, layout.expert
        )
        result.move(steps * layers * moved * calls / 4 / layout.tensor, group)
    if layout.pipeline > 1:
        stage = cluster.gpus // layout.pipeline
        between = stage >= cluster.machine.gpus_per_node
        size = activations / layout.tensor
        result.total += steps * 2 * cluster.point_to_point_s(size, between_nodes=between)
        moved = pipeline_boundary_bytes(layout.micro_batch, sequence, shape.hidden)
        result.move(steps * moved / layout.tensor, Group(2, 1) if between else Group(1, 2))
    result.exposed = result.total
    return result


def _optimizer(cluster: Cluster, settings: Settings, held: float) -> float:
    """Reading and writing the state of `held` parameters once.

    With offload gradients go down to the host, its Adam is bound by host memory, which all GPUs
    of the node share, and weights come back up.
    """
    weights, gradients, moments = ADAM_BYTES[settings.precision]
    traffic = held * (2 * moments + 2 * weights + gradients)
    if not settings.offload_optimizer:
        return traffic / (cluster.device.memory_gbps * 1e9)
    moved = held * (weights + gradients) / (cluster.machine.host_link_gbps * 1e9)
    sharing = min(cluster.gpus, cluster.machine.gpus_per_node)
    return moved + traffic * sharing / (HOST_MEMORY_GBPS * 1e9)


def _capacity(cluster: Cluster, host: float) -> float:
    per_node = min(cluster.gpus, cluster.machine.gpus_per_node)
    if host * per_node > cluster.machine.host_memory_gb * 1e9 * 0.8:
        return 0.0  # the host cannot hold what is offloaded
    return cluster.device.memory_gb * 1e9 * USABLE_MEMORY
