"""Memory and FLOPs that theory gives for a recorded run."""

from advisor.metrics.models.workload import Rank, Recorded
from advisor.model.memory import ADAM_BYTES, activation_bytes, output_activation_bytes
from advisor.model.transformer import flops_per_token


def memory_bytes(run: Recorded, rank: Rank) -> float:
    """State and activations together."""
    return state_bytes(run, rank) + held_activation_bytes(run, rank)


def state_bytes(run: Recorded, rank: Rank) -> float:
    """Parameters, gradients and the optimizer's kind of state, sharded as the strategy does."""
    weights, gradients, moments = ADAM_BYTES["fp32"]  # what autocast and FSDP keep as well
    parts = (weights, gradients, 0 if run.workload["optimizer"] == "sgd" else moments)
    first_sharded: tuple[int, int, int] = (3, 2, 1)
    sharded: float = sum(
        size * rank.shared / (rank.data_group if run.zero_stage >= from_stage else 1)
        for size, from_stage in zip(parts, first_sharded, strict=True)
    )
    return sharded + rank.experts * sum(parts)


def held_activation_bytes(run: Recorded, rank: Rank) -> float:
    """Activations kept for the backward pass, of all micro-batches in flight; 0 if emulated.

    The models of `advisor profile` attend by torch's fused scaled_dot_product_attention, which
    keeps no scores: 34·s·b·h per layer, without the 5·a·s²·b.
    """
    if run.shape is None:
        return 0.0
    in_flight = 1
    if rank.pipeline > 1:
        count = run.micro_batches
        in_flight = count if "pp-gpipe" in run.names else min(count, rank.pipeline)
    layers = activation_bytes(
        run.shape,
        run.micro_batch,
        run.sequence,
        recompute="full" if run.is_checkpointed else "none",
        flash_attention=True,
        tensor_parallel=rank.tensor,
        sequence_parallel="tp-sp" in run.names,
        layers=rank.layers,
    )
    # The formula counts 2-byte activations.
    layers *= run.compute_width / 2
    output = (
        output_activation_bytes(run.shape, run.micro_batch, run.sequence) if rank.has_head else 0.0
    )
    return layers * in_flight + output


def flops_per_step(run: Recorded) -> float | None:
    """Forward and backward of all data-parallel ranks; None for emulated layers."""
    if run.shape is None:
        return None
    return float(flops_per_token(run.shape, run.sequence)) * run.tokens_per_step
