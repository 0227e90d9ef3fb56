"""Which strategy for which model on which machine, before anything is run.

Every layout is estimated (plan_estimate) and one recommended (plan_choice); those that do not fit
are kept with what they lack.
All figures are modelled: they rank layouts and name what limits them, and the first profile of
the real job replaces them.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.config.hardware import machine as find_machine
from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import Calibration
from advisor.model.nccl.version import NcclVersion, format_version
from advisor.model.plan_choice import in_order, tied
from advisor.model.plan_cluster import CALL_OVERHEAD_US, Cluster
from advisor.model.plan_communication import Case
from advisor.model.plan_estimate import RESERVED_BESIDE, SLOWED, Estimate, estimate
from advisor.model.plan_layout import DEFAULTS, Layout, Settings
from advisor.model.plan_options import Option, single_changes
from advisor.model.plan_reasons import explain, level_roofline
from advisor.model.plan_speed import Speed, speed_of
from advisor.model.plan_tried import Own, layouts, why_none
from advisor.model.transformer import TransformerShape, flops_per_token, parameters

_TOKENS_PER_STEP = ((3e9, 524_288), (200e9, 4_194_304), (float("inf"), 16_777_216))


@dataclass(frozen=True)
class Row:
    """The best settings of one strategy and its reasons."""

    estimate: Estimate
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The answer for one number of GPUs; `recommended` is None when nothing fits.

    `tied`: degrees of tensor and pipeline parallelism that it cannot tell from the recommended.
    """

    shape: TransformerShape
    cluster: Cluster
    global_batch: int
    sequence: int
    speed: Speed
    peak_flops: float
    peak_source: str
    rows: tuple[Row, ...]
    recommended: Row | None
    tied: tuple[tuple[int, int], ...]
    options: tuple[Option, ...]
    assumptions: tuple[str, ...]

    @property
    def nearest(self) -> Row:
        """The row whose ``options`` are given: the recommended one, else what needs least memory
        of those that do not fit."""
        return self.recommended or min(self.rows, key=lambda row: row.estimate.memory_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "basis": "modelled",
            "model": self.shape.name,
            "parameters": parameters(self.shape).total,
            "active_parameters": parameters(self.shape).active,
            "flops_per_token": flops_per_token(self.shape, self.sequence),
            "hardware": self.cluster.machine.name,
            "device": self.cluster.device.name,
            "gpus": self.cluster.gpus,
            "nodes": self.cluster.nodes,
            "nccl": format_version(self.cluster.nccl),
            "global_batch": self.global_batch,
            "sequence": self.sequence,
            "peak_flops": self.peak_flops,
            "peak_source": self.peak_source,
            "assumptions": list(self.assumptions),
            "roofline": level_roofline(self.cluster, self.peak_flops),
            "rows": [_row(row, self.shape.layers) for row in self.rows],
            "recommended": _row(self.recommended, self.shape.layers) if self.recommended else None,
            "tied": [{"tensor": tensor, "pipeline": pipeline} for tensor, pipeline in self.tied],
            "options_of": self.nearest.estimate.layout.strategy,
            "options": [asdict(option) for option in self.options],
        }


def _row(row: Row, layers: int) -> dict[str, Any]:
    layout = row.estimate.layout
    own = {"largest_stage_layers": layout.largest_stage(layers), "strategy": layout.strategy}
    derived = ("fits", "allocated_bytes", "reserved_bytes", "traffic_bytes")
    own |= {name: getattr(row.estimate, name) for name in derived}
    return {**asdict(row.estimate), **own, "reasons": list(row.reasons)}


def default_global_batch(shape: TransformerShape, sequence: int, gpus: int) -> int:
    """Sequences per step: 0.5 M tokens below 3 B parameters, 4 M below 200 B, else 16 M; at least
    one per GPU up to 1,024 GPUs, beyond one per eight.

    The batches of the GPT-2 and LLaMA papers, as a power of two; where that does not divide over
    the GPUs, their nearest multiple, with room for micro-batches of up to 8 within an eighth of it.
    """
    usual = _usual_batch(shape, sequence, gpus)
    if usual % gpus == 0 or usual < gpus:  # fewer than GPUs: several of them share a sequence
        return usual
    for room in (8, 4, 2, 1):
        unit = gpus * room
        nearest = max(1, round(usual / unit)) * unit
        if 8 * abs(nearest - usual) <= usual:
            break
    return nearest


def _usual_batch(shape: TransformerShape, sequence: int, gpus: int) -> int:
    size = parameters(shape).total
    tokens = next(tokens for limit, tokens in _TOKENS_PER_STEP if size < limit)
    wanted = max(tokens // sequence, gpus if gpus <= 1024 else gpus // 8, 1)
    return 1 << (wanted - 1).bit_length()


def make_plan(
    shape: TransformerShape,
    hardware: str,
    gpus: int,
    *,
    nccl: NcclVersion = (2, 29, 7),
    global_batch: int | None = None,
    sequence: int | None = None,
    efficiency: float | None = None,
    calibration: Calibration | None = None,
    own: Own | None = None,
    settings: Settings = DEFAULTS,
) -> Plan:
    """Estimate every layout of `shape` on `gpus` GPUs of `hardware` and recommend one.

    `efficiency` is the share of the dense peak that everything reaches, by default what published
    runs on such devices did. `own` fixes degrees of the layout, `settings` what the user's software
    does whatever the layout.
    Raises AdvisorError for unknown hardware, GPUs that do not fill nodes, or a batch that no
    layout divides.
    """
    cluster = Cluster(find_machine(hardware), gpus, nccl, calibration)
    if calibration is not None:
        calibration.check(cluster.machine.name, calibration.nodes)
    length = sequence or min(shape.sequence, 8192)
    batch = global_batch or default_global_batch(shape, length, gpus)
    usual = _usual_batch(shape, length, gpus)
    moved: tuple[str, ...] = ()
    if global_batch is None and batch != usual:
        moved = (
            f"a global batch of {batch:,} sequences: the usual {usual:,} do not divide over {gpus} "
            "GPUs (--global-batch)",
        )
    if efficiency is not None and not 0 < efficiency <= 1:
        raise AdvisorError(f"efficiency is {efficiency}: it is a share of the peak, over 0 to 1")
    dtype = "fp32" if settings.precision == "fp32" else "bf16"
    if dtype not in cluster.device.peak_tflops:
        dtype = "fp16"  # Volta and Turing have no bf16
    peak = cluster.device.peak_flops(dtype)
    if peak is None:
        raise AdvisorError(f"{cluster.device.name} has no {dtype} peak in the table")
    speed = speed_of(cluster.device, efficiency, transformer_engine=settings.transformer_engine)

    def estimated(layout: Layout, settings: Settings) -> Estimate:
        return estimate(Case(shape, cluster, layout, settings, length, speed, peak))

    tried: list[Estimate] = []
    without: dict[Layout, Estimate] = {}
    own = own or Own()
    per_node = cluster.machine.gpus_per_node
    for layout in layouts(shape, gpus, per_node, batch, own, sequence=length):
        # Recomputing is for what does not fit without it.
        for less in settings.spared(own.recompute):
            one = estimated(layout, less)
            if one.fits:
                break
            without.setdefault(layout, one)
        tried.append(one)
    if not tried:
        what, hint = why_none(shape, gpus, batch, own)
        raise AdvisorError(what, hint=hint)
    ranked, chosen, fastest = in_order(tried)
    as_fast = tied(chosen, tried) if chosen is not None else []
    asked = own.recompute is not None
    rows = tuple(
        Row(
            item,
            explain(
                item,
                chosen,
                fastest,
                cluster,
                shape,
                without=without.get(item.layout),
                asked=asked,
                tied=as_fast,
            ),
        )
        for item in ranked
    )
    recommended = next((row for row in rows if row.estimate is chosen), None)
    plan = Plan(
        shape=shape,
        cluster=cluster,
        global_batch=batch,
        sequence=length,
        speed=speed,
        peak_flops=peak,
        peak_source=cluster.device.peak_source,
        rows=rows,
        recommended=recommended,
        tied=tuple(as_fast),
        options=(),
        assumptions=moved + _assumptions(cluster, speed, dtype, peak, settings),
    )
    return replace(plan, options=single_changes(plan.nearest.estimate, estimated))


def _speed_text(speed: Speed) -> str:
    text = f"matrices run at {speed.matrices:.0%} of it"
    if speed.attention != speed.matrices:
        text += f", attention at {speed.attention:.0%}"
    if speed.rows:
        return (
            f"{text}, as in {speed.rows} published runs of tuned software on such devices; three "
            "teams' own programs reached 0.8 of it (--efficiency)"
        )
    return f"{text}; no published run on such a device was fitted (--efficiency)"


def _assumptions(
    cluster: Cluster, speed: Speed, dtype: str, peak: float, settings: Settings
) -> tuple[str, ...]:
    attention = (
        "attention writes its scores to memory, as before FlashAttention (--unfused-attention)"
        if settings.unfused_attention
        else "attention is fused (FlashAttention): for a program whose is not, --unfused-attention"
    )
    source = (
        f"collective times: NCCL {format_version(cluster.nccl)}'s own cost model on "
        f"{cluster.machine.name}'s graphs, plus {CALL_OVERHEAD_US:g} us per call; sizes of 1 to 64 "
        "MiB take up to 1.7 times as long in practice"
        if cluster.modelled_by_nccl
        else "collective times: 80 % of the link's bandwidth and a flat latency (no NCCL model)"
    )
    if (measured := cluster.calibration) is not None:
        here = "between nodes" if measured.nodes > 1 else "inside a node"
        source += f"; {here} as measured on {measured.nodes} of them ({measured.rows} calls)"
    return (
        "everything is modelled: profile the job before believing a number",
        f"dense {dtype} peak {peak / 1e12:,.0f} TFLOP/s: {cluster.device.peak_source}",
        _speed_text(speed),
        f"{attention}; MFU leaves out what is computed again, a published HFU counts it (a third "
        "more with full checkpointing)",
        source,
        "small micro-batches (below some 4,000 tokens) run slower than that share: not modelled",
        "data-parallel communication hides under compute except its first or last piece, and "
        f"slows it by {SLOWED:.0%} of its own time; expert-parallel does not hide, tensor-parallel "
        "with --overlap-tp only, interleaved chunks' beside each other with --overlap-dp",
        "FSDP scatters every micro-batch's gradients and keeps them sharded; `advisor profile` "
        "scatters once per step and holds whole ones until then (sync_every_micro_batch=true: as "
        "planned)",
        "activations of a layer by Korthikanti et al. 2022, for its shape; torch's cross-entropy "
        "(a fused one: --fused-loss); 4 GB for context and buffers; 99 % of device memory usable; "
        f"where there is room torch reserves {RESERVED_BESIDE:.0%} more than it allocates",
    )
