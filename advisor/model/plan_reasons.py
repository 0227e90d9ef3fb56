"""Why a layout is or is not the one to take, in sentences with the numbers behind them."""

from collections.abc import Sequence
from typing import Any

from advisor.model.plan_choice import ALIKE
from advisor.model.plan_cluster import CALL_OVERHEAD_US, Cluster, Group
from advisor.model.plan_estimate import Estimate
from advisor.model.plan_layout import bucket_bytes
from advisor.model.plan_roofline import (
    communication_ratio,
    critical_tokens,
    crossover_bytes,
    regime,
    ridge,
)
from advisor.model.transformer import TransformerShape

_GB = 1e9
_LATENCY_BOUND = 0.5
# Share of the usable memory from which on an estimate of activations may be short.
_NEARLY_FULL = 0.9
_NAMED = 8


def level_roofline(cluster: Cluster, peak_flops: float) -> list[dict[str, Any]]:
    """Ridge and critical batch of each level of links, for one GPU."""
    levels = [("node", Group(1, cluster.machine.gpus_per_node))]
    if cluster.nodes > 1:
        levels.append(("network", Group(cluster.nodes, cluster.machine.gpus_per_node)))
    result = []
    for name, group in levels:
        bandwidth = cluster.link_gbps(group)
        point = ridge(peak_flops, bandwidth)
        small = cluster.collective_s("allgather", 1024, group)
        alpha_us = (small * 1e6 - CALL_OVERHEAD_US) / max(1, group.ranks - 1)
        result.append(
            {
                "level": name,
                "link_gbps": bandwidth,
                "ridge_flops_per_byte": point,
                "critical_tokens_per_rank": critical_tokens(point),
                "alpha_us": alpha_us,
                "crossover_bytes": crossover_bytes(alpha_us, bandwidth),
            }
        )
    return result


def explain(
    item: Estimate,
    chosen: Estimate | None,
    fastest: Estimate,
    cluster: Cluster,
    shape: TransformerShape,
    *,
    without: Estimate | None = None,
    asked: bool = False,
    tied: Sequence[tuple[int, int]] = (),
) -> tuple[str, ...]:
    """Reasons, the decisive one first; `asked`: the user says what is computed again.

    `without` is the same layout where less is, if that does not fit; `tied` the degrees that are as
    fast as the chosen ones.
    """
    reasons = []
    layout = item.layout
    if not item.fits:
        reasons.append(_does_not_fit(item))
    elif chosen is not None:
        reasons.append(_against(item, chosen, fastest))
    if item.fits and item.memory_bytes > _NEARLY_FULL * item.capacity_bytes:
        reasons.append(f"little memory is free ({_memory(item)}): activations are an estimate")
    if shape.layers % layout.pipeline:
        reasons.append(_uneven(shape.layers, layout.pipeline))
    share = item.exposed_s / item.step_s if item.step_s else 0.0
    if item.fits and share > 0.1:
        reasons.append(f"{share:.0%} of the step is exposed communication")
        reasons += _latency(item, cluster)
    if item.bubble > 0.1:
        reasons.append(f"pipeline bubble {item.bubble:.0%}; over 10 % calls for more micro-batches")
    if item.fits and item.settings.checkpointing and not asked:
        reasons.append(
            f"a micro-batch of {layout.micro_batch} fits only with activation checkpointing"
            f"{_without(without, shape)}: a quarter more compute"
        )
    if item.fits and without is not None and item.settings.recompute == "none":
        reasons.append(
            f"a micro-batch of {layout.micro_batch} fits only where the MLP's product is computed "
            f"again, by torch.compile or a fused kernel{_without(without, shape)}"
        )
    if layout.replicas > 1:
        reasons.append(_data_regime(item, cluster))
    if item is chosen and tied:
        reasons.append(_tied(tied))
    return tuple(reasons)


def _tied(degrees: Sequence[tuple[int, int]]) -> str:
    """Which degrees the plan cannot tell from the chosen ones."""
    named = ", ".join(f"tp {tensor} pp {pipeline}" for tensor, pipeline in degrees[:_NAMED])
    more = f" and {len(degrees) - _NAMED} more" if len(degrees) > _NAMED else ""
    return (
        f"as fast for all that a plan can say ({100 * ALIKE - 100:.0f} %): {named}{more}; try them"
    )


def _latency(item: Estimate, cluster: Cluster) -> list[str]:
    """Whether buckets are too small for so many ranks: their time less the bandwidth's part."""
    layout, bucket = item.layout, bucket_bytes(item.layout, item.settings)
    if layout.data_strategy not in ("ddp", "zero1"):
        return []
    group = cluster.group(layout.replicas, layout.tensor)
    op = "allreduce" if layout.data_strategy == "ddp" else "reducescatter"
    one, large, larger = (cluster.collective_s(op, n * bucket, group) for n in (1, 32, 64))
    latency = max(1 - (larger - large) / 32 / one, 0.0)
    if latency < _LATENCY_BOUND:
        return []
    return [
        f"{latency:.0%} of the time of a {bucket / 1e6:.0f} MB bucket is latency over "
        f"{group.ranks:,} ranks: larger buckets, or sharding inside the node (hsdp)"
    ]


def _against(item: Estimate, chosen: Estimate, fastest: Estimate) -> str:
    if item is chosen:
        if item is fastest:
            return "fastest of those that fit"
        if item.is_roomy and not fastest.is_roomy:
            return "within 3 % of the fastest, and leaves a quarter of the memory free"
        return "within 3 % of the fastest, and simpler"
    slower = item.step_s / chosen.step_s - 1
    if slower >= 0.005:
        return f"{slower:.1%} slower" if slower < 0.1 else f"{slower:.0%} slower"
    if chosen.is_roomy and not item.is_roomy:
        return f"as fast, but leaves less than a quarter of the memory free ({_memory(item)})"
    return "as fast, but more to set up"


def _without(item: Estimate | None, shape: TransformerShape) -> str:
    """What the layout needs where nothing is computed again, in brackets."""
    if item is None:
        return ""
    layout = item.layout
    text = f" (without {item.memory_bytes / _GB:.0f} GB of {item.capacity_bytes / _GB:.0f} GB"
    if (in_flight := min(layout.pipeline, layout.accumulation)) > 1:
        layers = layout.largest_stage(shape.layers)
        text += f", the first stage keeps {in_flight} micro-batches of {layers} layers"
    return f"{text})"


def _does_not_fit(item: Estimate) -> str:
    if item.capacity_bytes == 0:
        return "the host's memory cannot hold the offloaded state"
    state, room = item.state.total / _GB, item.capacity_bytes / _GB
    text = f"needs {item.memory_bytes / _GB:.0f} GB of {room:.0f} GB"
    if item.state.total > item.capacity_bytes:
        return f"{text}: parameters, gradients and optimizer alone take {state:.0f} GB"
    if not item.settings.checkpointing:
        return f"{text} without checkpointing"
    return f"{text} even at the smallest micro-batch with checkpointing"


def _uneven(layers: int, stages: int) -> str:
    most, rest = layers // stages + 1, layers % stages
    return (
        f"{layers} layers over {stages} stages: {rest} of {most}, {stages - rest} of {most - 1} "
        "(stage_layers); the largest sets the time"
    )


def _memory(item: Estimate) -> str:
    return f"{item.memory_bytes / _GB:.1f} of {item.capacity_bytes / _GB:.0f} GB"


def _data_regime(item: Estimate, cluster: Cluster) -> str:
    """Which of the two limits at the speed that the plan reckons with, recomputation included:
    the same compute as in the row, and what the row's bytes take at the link's full rate.
    """
    layout = item.layout
    group = cluster.group(layout.replicas, layout.tensor)
    link = cluster.link_gbps(group)
    moved = item.inter_traffic_bytes if group.nodes > 1 else item.intra_traffic_bytes
    where = "network" if group.nodes > 1 else "node links"
    ratio = communication_ratio(item.flops, moved)
    if ratio is None:
        return f"nothing moves over the {where}"
    reached = ridge(item.flops / item.compute_s, link)
    return (
        f"{regime(ratio, reached)} on the {where}: {item.compute_s * 1e3:,.0f} ms of compute "
        f"against {moved / link / 1e6:,.0f} ms of transfer"
    )
