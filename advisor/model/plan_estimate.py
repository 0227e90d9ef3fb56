"""Memory, traffic and time of one layout on one cluster, all modelled.

Assumptions, stated in every plan: compute runs as on published runs (plan_speed); data-parallel
communication hides under the compute it can run beside (DDP and ZeRO-1 under the backward of the
last micro-batch, FSDP under the micro-batch it belongs to) except the first or last piece, and
slows it; tensor-parallel communication does where it is asked to (``overlap_tensor``),
expert-parallel hides under nothing. Of uneven pipeline stages the largest counts.
"""

from dataclasses import dataclass

from advisor.model.memory import (
    ADAM_BYTES,
    WITH_MASTER,
    Loss,
    Recompute,
    StateBytes,
    layer_activation_bytes,
    mlp_gradient_bytes,
    output_activation_bytes,
    state_bytes,
)
from advisor.model.plan_cluster import Cluster
from advisor.model.plan_communication import Case, data_parallel, model_parallel
from advisor.model.plan_layout import Layout, Settings, wire_bytes
from advisor.model.plan_traffic import bubble_fraction
from advisor.model.transformer import (
    TransformerShape,
    flops_per_token,
    layer_parameters,
    parameters,
)

# CUDA context, cuBLAS and NCCL buffers, allocator slack: usual on an 80 GB card.
OVERHEAD_BYTES = 4e9
# Of an 80 GB card torch finds 79.10 to 79.18 GiB ("has a total capacity of" in its own errors).
USABLE_MEMORY = 0.989
# What torch reserves beside what is allocated, where there is room: the median of the 25 rows
# of plan_setups.yaml that say so (0.15 of either half). Without room it gives it back.
RESERVED_BESIDE = 0.15
# Of attention's time the forward pass: a fused kernel computes 2 products forward and 5 backward
# (Dao 2023, arXiv:2307.08691, section 3.1.2), others 2 and 4.
_FUSED_FORWARD, _UNFUSED_FORWARD = 2 / 7, 1 / 3
# Of the time of communication beside compute what compute loses: kernels took 1.8 to 2.5 times as
# long under NCCL on A100 (github.com/NVIDIA/nccl/issues/1428), so at least 1 - 1/1.8.
SLOWED = 0.45
# Memory bandwidth of a usual two-socket server in practice; the table does not hold it.
HOST_MEMORY_GBPS = 200.0
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
    def allocated_bytes(self) -> float:
        """What torch's peak of allocated memory is, of the stage that needs most."""
        return self.memory_bytes - OVERHEAD_BYTES

    @property
    def reserved_bytes(self) -> float:
        """What torch's peak of reserved memory is where there is room for what is freed."""
        return self.allocated_bytes * (1 + RESERVED_BESIDE)

    @property
    def traffic_bytes(self) -> float:
        """Bytes each rank receives per step, inside and between nodes."""
        return self.intra_traffic_bytes + self.inter_traffic_bytes


# How often unfused attention reads or writes its 16-bit scores: forward 6 (product, softmax with
# mask, dropout, product with the values), the same again in recomputation, backward 9.
_SCORES_FORWARD, _SCORES_BACKWARD = 6, 9


def estimate(case: Case) -> Estimate:
    """Memory, traffic and time of one case."""
    shape, cluster, layout, settings = case.shape, case.cluster, case.layout, case.settings
    own = _own_parameters(shape, layout)
    state = state_bytes(
        own,
        _STAGES[layout.data_strategy],
        case.shards,
        precision=settings.precision,
        # Megatron-LM keeps gradients as it sends them (grad_reduce_in_fp32).
        fp32_gradients=wire_bytes(layout, settings) == 4,
    )
    activations = max(stage_activations(case))
    host = working = 0.0
    if settings.offload_optimizer:
        host, state = state.optimizer, StateBytes(state.parameters, state.gradients, 0.0)
    if layout.data_strategy in ("fsdp2", "hsdp"):
        # Two layers gathered at a time: the one in use and the prefetched one, and gradients.
        weights, gradients, _ = ADAM_BYTES[settings.precision]
        working = (2 * weights + gradients) * layer_parameters(shape) / layout.tensor
    compute = _compute(case)
    data = data_parallel(case, own, compute)
    model = model_parallel(case, compute)
    bubble = bubble_fraction(layout.pipeline, layout.accumulation, layout.interleave)
    replicated = layout.data_strategy in ("single", "ddp")
    optimizer = _optimizer(cluster, settings, own if replicated else own / case.shards)
    busy = compute + model.exposed + SLOWED * (model.total - model.exposed)
    beside = max(data.total - data.exposed, 0.0)
    step = busy / (1 - bubble) + data.exposed + SLOWED * beside + optimizer
    tokens = layout.data * layout.micro_batch * layout.accumulation * case.sequence
    flops_total = flops_per_token(shape, case.sequence) * tokens
    ranks = layout.replicas * layout.tensor * layout.pipeline
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
        mfu=flops_total / ranks / step / case.peak_flops,
    )


def _own_parameters(shape: TransformerShape, layout: Layout) -> float:
    """Parameters of one rank before data-parallel sharding, of the pipeline stage with most."""
    count = parameters(shape)
    embeddings = count.token_embedding + count.position_embedding + count.output_head
    inside = (count.total - embeddings - count.expert) + count.expert / layout.expert
    # First and last stage hold the embeddings.
    edge = max(count.token_embedding + count.position_embedding, count.output_head)
    ends = embeddings if layout.pipeline == 1 else edge
    layer, layers = inside / shape.layers, shape.layers
    most = max(layer * layout.end_stage(layers) + ends, layer * layout.largest_stage(layers))
    return most / layout.tensor


def stage_activations(case: Case) -> tuple[float, float, float]:
    """Bytes of activations that the first, the second and the last stage hold at their peak.

    The first keeps most micro-batches, the second may have more layers, the last has the head.
    """
    shape, layout, settings = case.shape, case.layout, case.settings
    own_part = case.sequence // layout.context

    def of_layer(recompute: Recompute) -> float:
        return layer_activation_bytes(
            shape,
            layout.micro_batch,
            own_part,
            recompute=recompute,
            flash_attention=not settings.unfused_attention,
            tensor_parallel=layout.tensor,
            sequence_parallel=layout.tensor > 1,
            fused_mlp=settings.fused_mlp,
        )

    layer = of_layer(settings.recompute)
    ends = layout.end_stage(shape.layers) * layer
    working = of_layer("none") if settings.checkpointing else 0.0
    working += mlp_gradient_bytes(shape, layout.micro_batch * own_part) / layout.tensor
    if layout.tensor > 1:
        # A layer's input, gathered over the tensor ranks, and its gradient from each matrix.
        whole = 3 if shape.gated_mlp else 2
        working += 2.0 * whole * layout.micro_batch * own_part * shape.hidden
    loss = _loss(layout, settings)
    logits = output_activation_bytes(
        shape, layout.micro_batch, own_part, tensor_parallel=layout.tensor, loss=loss
    )
    last = working + ends * micro_batches_in_flight(layout, layout.pipeline - 1) + logits
    if layout.pipeline == 1:
        return last, last, last
    first = working + ends * micro_batches_in_flight(layout, 0)
    most = layout.largest_stage(shape.layers) * layer
    return first, working + most * micro_batches_in_flight(layout, 1), last


def _loss(layout: Layout, settings: Settings) -> Loss:
    """What computes the cross-entropy: Megatron-LM's own where its parallelism is."""
    if not settings.fused_loss:
        return "torch"
    summed_wide = settings.precision in WITH_MASTER and wire_bytes(layout, settings) == 4
    return "megatron" if layout.sums_in_fp32 or summed_wide else "fused"


def micro_batches_in_flight(layout: Layout, stage: int) -> float:
    """Micro-batches whose activations a stage keeps, at most those of a step.

    Interleaved (Megatron-LM, get_pp_rank_microbatches): stage r of p runs 2(p - r - 1) + (v - 1) p
    chunks ahead and one more; on the first p + (p - 1) / v (Korthikanti et al. 2022, 4.2.3).
    """
    behind, chunks = layout.pipeline - stage - 1, layout.interleave
    ahead = behind if chunks == 1 else 2 * behind + (chunks - 1) * layout.pipeline
    return min((ahead + 1) / chunks, layout.accumulation)


def _compute(case: Case) -> float:
    """Seconds of matrices, attention, and what is bound by memory between them."""
    shape, layout, settings, sequence = case.shape, case.layout, case.settings, case.sequence
    speed, peak_flops = case.speed, case.peak_flops
    tokens = layout.micro_batch * layout.accumulation * sequence
    # The largest stage sets the pace; the head's share of the work is spread evenly.
    of_head = 6 * shape.vocab * shape.hidden
    attention = 12 * shape.layers * shape.heads * shape.head_dim * sequence
    matrices = flops_per_token(shape, sequence) - of_head - attention
    stage = layout.largest_stage(shape.layers) / shape.layers
    share = tokens / layout.tensor / layout.context
    bandwidth = case.cluster.device.memory_gbps * 1e9
    of_matrices = matrices * stage / (speed.matrices * peak_flops)
    of_attention = attention * stage / (speed.attention * peak_flops)
    of_moved = speed.moved_bytes * shape.layers * stage * shape.hidden / bandwidth
    seconds = of_matrices + of_attention + of_moved
    if settings.checkpointing:
        again = _FUSED_FORWARD if not settings.unfused_attention else _UNFUSED_FORWARD
        seconds += of_matrices * recomputed_share(shape, layout) / 3
        seconds += of_attention * again + of_moved / 3
    seconds += of_head / layout.pipeline / (speed.matrices * peak_flops)
    if settings.unfused_attention:
        passes = _SCORES_FORWARD * (2 if settings.recompute != "none" else 1) + _SCORES_BACKWARD
        scores = 2 * passes * shape.layers * stage * shape.heads * sequence
        seconds += scores / bandwidth
    return share * seconds


def recomputed_share(shape: TransformerShape, layout: Layout) -> float:
    """Of a layer's forward matrices the share that checkpointing computes again.

    torch's stops at the last tensor that backward needs (``set_checkpoint_early_stop``), which
    leaves out the MLP's last matrix; Megatron's, for tensor and pipeline parallelism, does not.
    """
    if layout.tensor > 1 or layout.pipeline > 1:
        return 1.0
    count = parameters(shape)
    last = count.active_mlp / (3 if shape.gated_mlp else 2)
    return 1 - last / (count.attention + count.active_mlp + count.router)


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
    # What data sheets call 80 GB is 80 GiB.
    return cluster.device.memory_gb * 2**30 * USABLE_MEMORY
