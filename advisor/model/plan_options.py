"""Single changes to a recommended layout: what each does to memory, traffic and time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from advisor.config.loader import read_plain
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
        return any(self.deltas)

    @property
    def deltas(self) -> tuple[float, float, float]:
        """Of memory, traffic and step time."""
        return self.memory_delta_bytes, self.traffic_delta_bytes, self.step_delta_s


_WIRE_BYTES = {4: "gradients sent in fp32", 2: "gradients sent in bf16", 1: "FP8 communication"}


def single_changes(
    base: Estimate, estimated: Callable[[Layout, Settings], Estimate]
) -> tuple[Option, ...]:
    """What single changes to the recommended layout ``base`` would do."""
    changes = _settings(base.layout, base.settings)
    tried = [
        *((name, layout, base.settings) for name, layout in _layouts(base.layout)),
        *((name, base.layout, replace(base.settings, **changed)) for name, changed in changes),
    ]
    options = (_option(base, estimated(layout, settings), name) for name, layout, settings in tried)
    first: dict[tuple[float, float, float], Option] = {}  # of two that do the same
    for option in options:
        if option.changes_anything:
            first.setdefault(option.deltas, option)
    return tuple(first.values())


def _layouts(layout: Layout) -> Iterator[tuple[str, Layout]]:
    size, count = layout.micro_batch, layout.accumulation
    if size > 1:
        halved = replace(layout, micro_batch=size // 2, accumulation=count * 2)
        yield "twice the accumulation", halved
    if count > 1 and count % 2 == 0:
        doubled = replace(layout, micro_batch=size * 2, accumulation=count // 2)
        yield "half the accumulation", doubled


def _settings(layout: Layout, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    if settings.checkpointing:
        yield "no activation checkpointing", {"recompute": "none"}
        if not settings.fused_mlp:
            both = {"recompute": "none", "fused_mlp": True}
            yield "no checkpointing but of a gated MLP's product", both
    else:
        yield "activation checkpointing", {"recompute": "full"}
    yield "optimizer state on the host", {"offload_optimizer": True}
    if not settings.fused_loss:
        yield "a fused cross-entropy", {"fused_loss": True}
    if not settings.fused_mlp:
        yield "a gated MLP whose product is computed again", {"fused_mlp": True}
    if layout.tensor > 1 and not settings.overlap_tensor:
        yield "tensor parallelism beside compute", {"overlap_tensor": True}
    if layout.interleave > 1 and layout.replicas > 1 and not settings.overlap_chunks:
        yield "chunks' gradients beside each other", {"overlap_chunks": True}
    for size, name in _WIRE_BYTES.items() if layout.replicas > 1 else ():
        if size != wire_bytes(layout, settings):
            yield name, {"communication_bytes": size}


def _option(base: Estimate, tried: Estimate, name: str) -> Option:
    return Option(
        option=name,
        memory_delta_bytes=tried.memory_bytes - base.memory_bytes,
        traffic_delta_bytes=tried.traffic_bytes - base.traffic_bytes,
        step_delta_s=tried.step_s - base.step_s,
        fits=tried.fits,
        note=_notes()[name],
    )


@cache
def _notes() -> Any:
    return read_plain(Path(__file__).with_suffix(".yaml"))
