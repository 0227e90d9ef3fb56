"""Bytes that each rank moves per step under each strategy: closed formulas, before any run.

Volumes are those of ring algorithms, received (= sent) per rank: an all-reduce of S bytes over n
ranks moves 2(n-1)/n S, an all-gather or reduce-scatter (n-1)/n S with S the whole tensor.
Sources: Rajbhandari et al. 2020 (ZeRO, section 7); Zhao et al. 2023 (FSDP, arXiv:2304.11277);
Narayanan et al. 2021 (arXiv:2104.04473) for tensor and pipeline parallelism.
"""

from advisor.vocabulary.bandwidth import bus_factor


def all_reduce_bytes(size: float, ranks: int) -> float:
    """2(n-1)/n of the buffer: DDP's gradients, ZeRO-1 and -2 as reduce-scatter and all-gather."""
    return (bus_factor("all_reduce", ranks) or 0.0) * size


def gather_bytes(size: float, ranks: int) -> float:
    """(n-1)/n of the whole tensor: all-gather, reduce-scatter, all-to-all."""
    return (bus_factor("all_gather", ranks) or 0.0) * size


def tensor_parallel_layer_bytes(
    batch: int, sequence: int, hidden: int, ranks: int, element_bytes: int = 2
) -> float:
    """One layer, one micro-batch: four all-reduces of the activations, two of them in backward.

    With b=1, s=2048, h=12288, bf16 and 8 ranks: 4 x 1.75 x 50.3 MB = 352 MB. Sequence parallelism
    moves the same as four pairs of all-gather and reduce-scatter.
    """
    return 4 * all_reduce_bytes(batch * sequence * hidden * element_bytes, ranks)


def pipeline_boundary_bytes(
    batch: int, sequence: int, hidden: int, element_bytes: int = 2
) -> float:
    """One micro-batch over one boundary: activations forward, their gradient back."""
    return 2 * batch * sequence * hidden * element_bytes


def expert_parallel_layer_bytes(
    batch: int,
    sequence: int,
    hidden: int,
    experts_per_token: int,
    ranks: int,
    element_bytes: int = 2,
) -> float:
    """One MoE layer, one micro-batch: four all-to-alls (dispatch and combine, twice)."""
    routed = batch * sequence * hidden * experts_per_token * element_bytes
    return 4 * gather_bytes(routed, ranks)


def bubble_fraction(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Idle share of a pipeline: (p-1)/(m v + p-1), v > 1 for the interleaved schedule."""
    return (stages - 1) / (micro_batches * chunks + stages - 1)
