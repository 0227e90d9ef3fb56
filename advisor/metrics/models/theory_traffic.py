"""Bytes that each rank of a recorded run sends per step: the textbook's, and torch's deviations.

``terms`` are METRICS section 7 in closed form, ``corrections`` name what torch is known to do
otherwise, with its own bytes, so that a measured figure is equal, explained, or shown to differ.
"""

from advisor.metrics.models.workload import FP32, Rank, Recorded
from advisor.model import plan_traffic as traffic

Terms = list[tuple[str, str, float]]

_WIRE_WIDTH = {"ddp-fp16": 2, "ddp-bf16": 2}


def terms(run: Recorded, rank: Rank) -> Terms:
    """(operation, formula, bytes this rank sends per step), as METRICS section 7 has them."""
    return [*_data(run, rank), *_tensor(run, rank), *_pipeline(run, rank), *_expert(run, rank)]


def corrections(run: Recorded, rank: Rank) -> Terms:
    """(operation, reason, bytes) by which torch moves more or less than the formulas say."""
    return [
        *_zero1_broadcast(run, rank),
        *_gathered_parameters(run, rank),
        *_tied_embedding(run, rank),
        *_sequence_parallel(run, rank),
        *_sent_slices(run, rank),
        *_autocast(run, rank),
        *_recomputed(run, rank),
    ]


def unpredictable(run: Recorded, op: str) -> str:
    """Why the bytes of an operation follow from no formula; empty where they do."""
    if op == "all_reduce" and run.data_strategy == "ddp-powersgd":
        return "PowerSGD sends low-rank factors of the matrices: theory is what it saves against"
    if run.data_strategy.startswith("deepspeed-"):
        return "DeepSpeed has its own choice of operations: theory is that of the same ZeRO stage"
    if op == "all_to_all":
        return (
            "the router decides how many tokens travel: theory is an even spread, without the "
            "counts that are exchanged first"
        )
    return ""


def _data(run: Recorded, rank: Rank) -> Terms:
    found: Terms = []
    n, inner = rank.data, rank.data_group
    if n > 1 and run.zero_stage >= 2:
        passes, rounds = (2 if run.zero_stage == 3 else 1), _gather_rounds(run)
        times = f" x {rounds} micro-batches" if rounds > 1 else ""
        gathered = passes * _gathered_once(run, rank, rank.shared) * rounds
        found.append(("all_gather", f"(n-1)/n {passes}P{times}", gathered))
        gradients = rank.shared * run.reduce_width * run.syncs
        found.append(("reduce_scatter", "(n-1)/n G", traffic.gather_bytes(gradients, inner)))
        if inner < n:
            size = traffic.all_reduce_bytes(gradients / inner, n // inner)
            found.append(("all_reduce", "2(r-1)/r of the shard", size))
    elif n > 1:
        gradients = rank.shared * _WIRE_WIDTH.get(run.data_strategy, FP32) * run.syncs
        found.append(("all_reduce", "2(n-1)/n G", traffic.all_reduce_bytes(gradients, n)))
    if rank.expert > 1 and n > rank.expert:
        size = traffic.all_reduce_bytes(rank.experts * FP32, n // rank.expert)
        found.append(("all_reduce", "experts' replicas 2(r-1)/r", size))
    return found


def _tensor(run: Recorded, rank: Rank) -> Terms:
    if rank.tensor == 1 or run.shape is None:
        return []
    layers = rank.layers * run.micro_batches
    if "tp-sp" not in run.names:
        return [("all_reduce", "4 per layer, 2(t-1)/t bsh", 8 * layers * _slice(run, rank))]
    return [
        (op, "4 per layer, (t-1)/t bsh", 4 * layers * _slice(run, rank))
        for op in ("all_gather", "reduce_scatter")
    ]


def _pipeline(run: Recorded, rank: Rank) -> Terms:
    if rank.pipeline == 1 or run.shape is None:
        return []
    chunks = int(run.workload["virtual_stages"]) if "pp-interleaved" in run.names else 1
    boundaries = rank.pipeline * chunks - 1
    size = traffic.pipeline_boundary_bytes(
        run.micro_batch, run.sequence, run.shape.hidden, run.compute_width
    )
    sent = size * run.micro_batches * boundaries / rank.pipeline
    return [("send", "2bsh per boundary and micro-batch", sent)]


def _expert(run: Recorded, rank: Rank) -> Terms:
    if rank.expert == 1 or run.shape is None:
        return []
    size = traffic.expert_parallel_layer_bytes(
        run.micro_batch,
        run.sequence,
        run.shape.hidden,
        run.shape.experts_per_token,
        rank.expert,
        run.compute_width,
    )
    sent = size * rank.layers * run.micro_batches
    return [("all_to_all", "4 per layer, (e-1)/e k bsh", sent)]


def _zero1_broadcast(run: Recorded, rank: Rank) -> Terms:
    if rank.data == 1 or run.data_strategy != "zero1":
        return []
    why = "torch keeps DDP's all-reduce, and owners broadcast the updated parameters"
    return [("broadcast", why, rank.shared * FP32)]


def _gathered_parameters(run: Recorded, rank: Rank) -> Terms:
    """Where FSDP still has parameters that the textbook gathers again."""
    if rank.data == 1 or run.zero_stage < 2:
        return []
    rounds = _gather_rounds(run)
    root = rank.shared if run.workload["wrap_layers"] == 0 else rank.outside
    of_root = _gathered_once(run, rank, root)
    if rank.pipeline > 1:
        # From the first backward pass on, forward passes after a backward find them gathered.
        of_layers = _gathered_once(run, rank, rank.shared) - of_root
        passes, actual = (2, rounds + 1) if run.zero_stage == 3 else (1, 1)
        less = of_root * (passes * rounds - 1) + of_layers * (passes * rounds - actual)
        why = "under a pipeline torch keeps parameters gathered from backward to the next forward"
        return [("all_gather", why, -less)]
    if run.zero_stage == 3:
        why = "embedding and head stay gathered from forward to backward"
        return [("all_gather", why, -of_root * rounds)]
    return []


def _tied_embedding(run: Recorded, rank: Rank) -> Terms:
    if rank.pipeline == 1 or run.shape is None or not run.shape.tied_embeddings:
        return []
    # Two ranks of each pipeline take part, with a factor of 2(2-1)/2.
    holds = rank.has_embedding or rank.has_head
    size: float = run.shape.vocab * run.shape.hidden * FP32 * holds
    if run.zero_stage >= 2:
        size /= rank.data_group
    return [("all_reduce", "tied embedding: first and last stage add gradients", size)]


def _sequence_parallel(run: Recorded, rank: Rank) -> Terms:
    """What tp-sp exchanges outside the layers' cuts."""
    if rank.tensor == 1 or run.shape is None or "tp-sp" not in run.names:
        return []
    found: Terms = []
    micro_batch = _slice(run, rank) * run.micro_batches * run.stream_width / run.compute_width
    if rank.has_embedding:
        why = "the embedding's gradient is collected from the slices of the sequence"
        found.append(("all_gather", why, micro_batch))
    if rank.has_head:
        found.append(("all_gather", "the head gets the whole sequence again", micro_batch))
    norms = (2 * rank.layers + rank.has_head) * run.shape.norm_tensors * run.shape.hidden
    # DDP takes whole gradients, FSDP reduces them with its own; alone, once before the optimizer.
    times = run.syncs if run.zero_stage >= 2 or rank.data == 1 else run.micro_batches
    size = traffic.all_reduce_bytes(norms * FP32, rank.tensor) * times
    found.append(("all_reduce", "norms' gradients are added up over the slices", size))
    return found


def _sent_slices(run: Recorded, rank: Rank) -> Terms:
    """Between stages, tp-sp's activations are cut already."""
    if "tp-sp" not in run.names:
        return []
    why = "a stage sends its slices of the sequence, 1/t of the activations"
    return [(op, why, size * (1 / rank.tensor - 1)) for op, _, size in _pipeline(run, rank)]


def _autocast(run: Recorded, rank: Rank) -> Terms:
    """Half of what layers exchange is the residual stream or its gradient, as is what stages do."""
    more = run.stream_width / run.compute_width - 1
    if not more:
        return []
    why = "autocast keeps the residual stream in float32"
    cut = rank.tensor if "tp-sp" in run.names else 1
    return [
        *((op, why, size * more / 2) for op, _, size in _tensor(run, rank)),
        *((op, why, size * more / 2) for op, _, size in _expert(run, rank)),
        *((op, why, size * more / cut) for op, _, size in _pipeline(run, rank)),
    ]


def _recomputed(run: Recorded, rank: Rank) -> Terms:
    """Activation checkpointing communicates again, up to the last tensor that backward needs."""
    if not run.is_checkpointed:
        return []
    why = "activation checkpointing runs the layers' forward pass again"
    in_stream = run.stream_width / run.compute_width
    again = [(op, why, size * (1 + in_stream) / 4) for op, _, size in _expert(run, rank)]
    if rank.tensor == 1 or run.shape is None:
        return again
    once = rank.layers * run.micro_batches * _slice(run, rank)
    if "tp-sp" not in run.names:
        return [("all_reduce", why, 2 * once)]
    return [("all_gather", why, 2 * once * in_stream), ("reduce_scatter", why, once)]


def _gather_rounds(run: Recorded) -> int:
    """How often per step parameters are gathered, by the textbook: once per micro-batch."""
    once = run.data_strategy == "fsdp1-grad" and not run.workload["sync_every_micro_batch"]
    return 1 if once else run.micro_batches


def _gathered_once(run: Recorded, rank: Rank, parameters: float) -> float:
    return traffic.gather_bytes(parameters * run.compute_width, rank.data_group)


def _slice(run: Recorded, rank: Rank) -> float:
    """(t-1)/t of one micro-batch's activations: an all-gather or reduce-scatter of them."""
    assert run.shape is not None
    elements = run.micro_batch * run.sequence * run.shape.hidden
    return traffic.gather_bytes(elements * run.compute_width, rank.tensor)
