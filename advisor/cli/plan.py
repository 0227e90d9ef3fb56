"""advisor plan: strategy, memory, traffic and time of a model on a machine, before any run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import POSITIVE, FiniteRange, argument, option
from advisor.cli._table import table

if TYPE_CHECKING:
    from advisor.model.plan import Plan

_SCALES = (8, 16, 32, 64, 128, 256, 512, 1024)


@options.command("plan", epilog="Example:  advisor plan llama-7b dgx-h100 --gpus 64")
def command(
    model: str = argument(metavar="MODEL"),
    hardware: str = argument(metavar="HARDWARE"),
    gpus: int | None = option(type=POSITIVE, help="Number of GPUs; default: 8 to 1,024."),
    global_batch: int | None = option(type=POSITIVE, help="Sequences per step."),
    sequence: int | None = option(type=POSITIVE, help="Tokens per sequence."),
    nccl: str = option(default="2.29.7", show_default=True, metavar="VERSION"),
    precision: Literal["mixed", "remainders", "fp32", "bf16"] = option(
        default="mixed",
        show_default=True,
        help="What is kept per parameter (mixed: 16 bytes, 18 with tensor or pipeline "
        "parallelism; remainders: 2 less, store_param_remainders).",
    ),
    efficiency: float | None = option(
        type=FiniteRange(min=0, max=1, min_open=True),
        help="Share of the dense peak that all compute reaches.  [default: as published runs did]",
    ),
    tensor: int | None = option("--tp", type=POSITIVE, help="Your tensor-parallel degree."),
    pipeline: int | None = option("--pp", type=POSITIVE, help="Your pipeline stages."),
    micro_batch: int | None = option(type=POSITIVE, help="Your sequences per micro-batch."),
    interleave: int | None = option(type=POSITIVE, help="Your chunks of layers per stage."),
    context: int | None = option("--cp", type=POSITIVE, help="Your context-parallel degree."),
    recompute: Literal["none", "selective", "full"] = option(
        help="What your job computes again; shown with its times even where it does not fit."
    ),
    fused_loss: bool = option(help="A cross-entropy that writes its gradient over the logits."),
    fused_mlp: bool = option(help="A gated MLP's product is computed again (torch.compile)."),
    unfused_attention: bool = option(help="Kernels from before FlashAttention: slower, larger."),
    overlap_tensor: bool = option(
        "--overlap-tp",
        help="Tensor parallelism sends beside compute (--tp-comm-overlap, async TP).",
    ),
    overlap_chunks: bool = option(
        "--overlap-dp",
        help="Parameters are gathered beside the forward, chunks' gradients summed beside each "
        "other (--overlap-param-gather, --overlap-grad-reduce).",
    ),
    gradient_bytes: int | None = option(
        type=click.IntRange(1, 4),
        help="A gradient in memory and on the wire.  [default: 4 with tensor or pipeline "
        "parallelism, else 2]",
    ),
    transformer_engine: bool = option(help="Its kernels, with cuDNN's attention for Hopper."),
    fitted: Path | None = option(
        "--calibration",
        help="A file of advisor calibrate: collectives as measured, not as NCCL estimates them.",
    ),
    form: Literal["text", "json"] = option("--format", default="text"),
) -> None:
    """Rank strategies for MODEL on HARDWARE by memory, traffic, roofline and NCCL's cost model.

    MODEL is a preset (gpt2-large, llama2-70b, mixtral-8x7b ...), a workload file, or a YAML file
    with a shape; HARDWARE a machine (dgx-h100, aws-p4d ...) or a YAML file. All is modelled.

    Example:  advisor plan llama2-70b dgx-h100 --gpus 64
    """
    from advisor.errors import AdvisorError
    from advisor.model.nccl.calibration import load_calibration
    from advisor.model.nccl.version import parse_covered
    from advisor.model.plan import make_plan
    from advisor.model.plan_layout import Settings
    from advisor.model.plan_tried import Own
    from advisor.model.presets import read_model

    release = parse_covered(nccl)
    calibration = load_calibration(fitted) if fitted is not None else None
    given = read_model(model)
    settings = Settings(
        precision=precision,
        unfused_attention=unfused_attention,
        fused_loss=fused_loss,
        fused_mlp=fused_mlp,
        overlap_tensor=overlap_tensor,
        overlap_chunks=overlap_chunks,
        transformer_engine=transformer_engine,
        communication_bytes=gradient_bytes or 0,
    )
    plans, skipped = [], []
    for count in (gpus,) if gpus else _SCALES:
        try:
            plans.append(
                make_plan(
                    given.shape,
                    hardware,
                    count,
                    nccl=release,
                    global_batch=global_batch or given.global_batch,
                    sequence=sequence or given.sequence,
                    efficiency=efficiency,
                    calibration=calibration,
                    own=Own(tensor, pipeline, micro_batch, interleave, context, recompute),
                    settings=settings,
                )
            )
        except AdvisorError as error:
            if gpus or not error.message.startswith("no layout divides"):
                raise
            skipped.append(f"{count} GPUs: {error.message}")
    if form == "json":
        data = [plan.to_dict() for plan in plans]
        click.echo(json.dumps(data[0] if gpus else data, indent=2))
        return
    always = recompute is not None
    click.echo(_detail(plans[0], always) if gpus else _scaling(plans))
    for line in skipped:
        click.echo(line)


def _head(plan: Plan) -> list[str]:
    from advisor.model.transformer import parameters

    return [
        f"{plan.shape.name}: {parameters(plan.shape).total:,} parameters, sequence "
        f"{plan.sequence:,}; {plan.cluster.machine.description} ({plan.cluster.device.name})",
        "MODELLED, not measured",
        "",
    ]


_HEADER = [
    "strategy", "dp[xcp]xtpxpp", "batch x acc", "ckpt", "memory GB", "traffic GB", "step ms",
    "exposed", "tokens/s", "MFU",
]  # fmt: skip


def _cells(estimate: Any, always: bool = False) -> list[str]:
    layout = estimate.layout
    shown, settings = estimate.fits or always, estimate.settings
    again = "mlp" if settings.fused_mlp and settings.recompute == "none" else settings.recompute
    context = [layout.context] if layout.context > 1 else []
    degrees = "x".join(map(str, [layout.data, *context, layout.tensor, layout.pipeline]))
    return [
        layout.strategy,
        degrees + (f" v{layout.interleave}" if layout.interleave > 1 else ""),
        f"{layout.micro_batch}x{layout.accumulation}",
        {"full": "yes", "none": "no"}.get(again, again),
        f"{estimate.memory_bytes / 1e9:,.1f}",
        f"{estimate.traffic_bytes / 1e9:,.1f}",
        f"{estimate.step_s * 1e3:,.0f}" if shown else "-",
        f"{estimate.exposed_s / estimate.step_s:.0%}" if shown else "-",
        f"{estimate.tokens_per_s:,.0f}" if shown else "-",
        f"{estimate.mfu:.0%}" if shown else "-",
    ]


def _detail(plan: Plan, always: bool) -> str:
    lines = _head(plan)
    lines.append(
        f"{_gpus(plan)} on {plan.cluster.nodes} node"
        f"{'s' if plan.cluster.nodes > 1 else ''}, {plan.global_batch:,} sequences per step"
    )
    lines += _roofline(plan)
    texts = table([_HEADER, *(_cells(row.estimate, always) for row in plan.rows)])
    lines.append("  " + texts[0])
    for row, text in zip(plan.rows, texts[1:], strict=True):
        lines.append(("> " if row is plan.recommended else "  ") + text)
        lines += [f"      {reason}" for reason in row.reasons]
    if any(row.estimate.layout.interleave > 1 for row in plan.rows):
        lines.append("  vN: each stage holds N chunks of layers (interleaved 1F1B)")
    if plan.recommended is None:
        lines += ["", "nothing fits: more GPUs, a shorter sequence, or offload to the host"]
    if plan.options:
        name = plan.nearest.estimate.layout.strategy
        which = "" if plan.recommended else ", the nearest to fitting"
        lines += ["", f"changes to {name}{which}, before trying them"]
        cells = [
            [
                option.option,
                f"{option.memory_delta_bytes / 1e9:+,.1f}",
                f"{option.traffic_delta_bytes / 1e9:+,.1f}",
                f"{option.step_delta_s * 1e3:+,.0f}",
                "yes" if option.fits else "no",
            ]
            for option in plan.options
        ]
        texts = table([["change", "memory GB", "traffic GB", "step ms", "fits"], *cells])
        lines.append("  " + texts[0])
        for option, text in zip(plan.options, texts[1:], strict=True):
            lines.append(f"  {text}  {option.note}")
    lines += ["", *(f"assumed: {text}" for text in plan.assumptions)]
    return "\n".join(lines)


def _roofline(plan: Plan) -> list[str]:
    from advisor.model.plan_reasons import level_roofline

    return [
        f"{level['level']} links: {_gbps(level['link_gbps'])} GB/s per GPU, ridge "
        f"{level['ridge_flops_per_byte']:,.0f} FLOP/byte, critical batch "
        f"{level['critical_tokens_per_rank']:,.0f} tokens per GPU for data parallelism"
        for level in level_roofline(plan.cluster, plan.peak_flops)
    ]


def _gbps(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _gpus(plan: Plan) -> str:
    return f"{plan.cluster.gpus} GPU{'s' if plan.cluster.gpus > 1 else ''}"


def _scaling(plans: list[Plan]) -> str:
    lines = _head(plans[0])
    rows = []
    for plan in plans:
        name = _gpus(plan)
        if plan.recommended is None:
            rows.append([name, "nothing fits", *[""] * (len(_HEADER) - 1)])
        else:
            cells = _cells(plan.recommended.estimate)
            rows.append([name, *cells])
    lines += table([["", *_HEADER], *rows])
    lines += ["", "reasons: --gpus N shows every strategy"]
    lines += [f"assumed: {text}" for text in plans[0].assumptions]
    return "\n".join(lines)
