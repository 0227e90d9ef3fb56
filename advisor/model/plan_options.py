"""Single changes to a recommended layout: what each does to memory, traffic and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from advisor.model.plan_estimate import Estimate
from advisor.model.plan_layout import Layout, Settings, wire_bytes


@dataclass(frozen=True)
class Option:
    """One change to the recommended layout and what it does, before trying it."""

    option: str
    memory_delta_bytes: float
    traffic_delta_bytes: float
    step_delta_s: float
    fits: bool
    note: str

    @property
    def changes_anything(self) -> bool:
        """Whether memory, traffic or time become others."""
        return any((self.memory_delta_bytes, self.traffic_delta_bytes, self.step_delta_s))


def single_changes(
    base: Estimate, estimated: Callable[[Layout, Settings], Estimate]
) -> tuple[Option, ...]:
    """What single changes to the recommended layout ``base`` would do."""
    layout, settings = base.layout, base.settings
    trials: list[tuple[str, Layout, Settings, str]] = []
    if layout.micro_batch > 1:
        halved = replace(
            layout, micro_batch=layout.micro_batch // 2, accumulation=layout.accumulation * 2
        )
        trials.append(
            ("twice the accumulation", halved, settings, "half the activations per micro-batch")
        )
    if layout.accumulation > 1 and layout.accumulation % 2 == 0:
        doubled = replace(
            layout, micro_batch=layout.micro_batch * 2, accumulation=layout.accumulation // 2
        )
        trials.append(
            ("half the accumulation", doubled, settings, "larger matrices, fewer collectives")
        )
    flipped = replace(settings, recompute="none" if settings.checkpointing else "full")
    trials.append(
        (
            "no activation checkpointing",
            layout,
            flipped,
            "all activations kept, a fifth of the compute saved",
        )
        if settings.checkpointing
        else (
            "activation checkpointing",
            layout,
            flipped,
            "a quarter of the compute again for keeping layer inputs only",
        )
    )
    trials.append(
        (
            "optimizer state on the host",
            layout,
            replace(settings, offload_optimizer=True),
            "gradients and weights cross PCIe every step, Adam runs on the CPU",
        )
    )
    if not settings.fused_loss:
        trials.append(
            (
                "a fused cross-entropy",
                layout,
                replace(settings, fused_loss=True),
                "its gradient is written over the logits (Liger, flash-attn, Megatron)",
            )
        )
    if not settings.fused_mlp:
        trials.append(
            (
                "a gated MLP whose product is computed again",
                layout,
                replace(settings, fused_mlp=True),
                "two tensors of its width are kept, not three (xFormers' SwiGLU, torch.compile)",
            )
        )
    if layout.tensor > 1 and not settings.overlap_tensor:
        trials.append(
            (
                "tensor parallelism beside compute",
                layout,
                replace(settings, overlap_tensor=True),
                "matrices in pieces (Megatron's --tp-comm-overlap, torch's async TP)",
            )
        )
    if layout.replicas > 1:
        for size, name, note in (
            (4, "gradients sent in fp32", "exact sums, twice the bytes of bf16"),
            (
                2,
                "gradients sent in bf16",
                "half the bytes of fp32 (bf16_compress_hook, FSDP's own)",
            ),
            (
                1,
                "FP8 communication",
                "needs a hook or FP8 all-gather; rings over 8 ranks lose precision (NCCL 2.24+ "
                "avoids them)",
            ),
        ):
            if size != wire_bytes(layout, settings):
                changed = replace(settings, communication_bytes=size)
                trials.append((name, layout, changed, note))
    options = (
        _option(base, estimated(layout, settings), name, note)
        for name, layout, settings, note in trials
    )
    return tuple(option for option in options if option.changes_anything)


def _option(base: Estimate, tried: Estimate, name: str, note: str) -> Option:
    return Option(
        option=name,
        memory_delta_bytes=tried.memory_bytes - base.memory_bytes,
        traffic_delta_bytes=tried.traffic_bytes - base.traffic_bytes,
        step_delta_s=tried.step_s - base.step_s,
        fits=tried.fits,
        note=note,
    )
