"""Whether two runs are of one job: of what is not alike no cause can be read from their steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from advisor.metrics.compare.figures import RunFigures

SAME = 0.05
"""Of gradients, tokens or FLOPs: FSDP pads its units and DDP leaves out what is not used."""


@dataclass(frozen=True)
class Unlike:
    """One thing that a run has otherwise than the base.

    ``code``: ``ranks``, ``devices``, ``tokens`` (of a step, where ranks are alike) or ``gradients``
    (values that the backward pass reduces per step and rank).
    """

    code: str
    base: Any
    other: Any


def unlike(base: RunFigures, other: RunFigures) -> list[Unlike]:
    """What makes ``other`` another job than ``base``; what either does not tell is left out."""
    if len(_ranks(base, other)) > 1:
        found = [Unlike("ranks", *_ranks(base, other))]
    else:
        found = _where(
            "tokens", base.tokens_per_step, other.tokens_per_step, lambda ratio: ratio - 1 > SAME
        )
    if base.devices and other.devices and base.devices != other.devices:
        found.append(Unlike("devices", base.devices, other.devices))
    return found + _where(
        "gradients", base.gradient_elements, other.gradient_elements, _is_no_multiple
    )


def _ranks(base: RunFigures, other: RunFigures) -> list[int]:
    """Those of both jobs where they are told and differ."""
    known = [row.world_size for row in (base, other) if row.world_size]
    return known if len(set(known)) > 1 else []


def _where(
    code: str, base: float | None, other: float | None, differs: Callable[[float], bool]
) -> list[Unlike]:
    if not base or not other:
        return []
    return [Unlike(code, base, other)] if differs(max(base, other) / min(base, other)) else []


def _is_no_multiple(ratio: float) -> bool:
    """Gradients reduced once for every micro-batch, or sharded, are a whole multiple."""
    return abs(ratio / round(ratio) - 1) > SAME
