"""Gradient reductions of each step and the backward passes they belong to: rows of
``param_bucket`` and ``gradient_sync``.

With it comes how often a step gathers the same parameters: by their module's name, else by size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.phases import Spans, backward_passes

# Sizes that a group gathers and reduces alike are modules of FSDP; others (DeepSpeed's buckets)
# tell nothing. Nearly all bytes that are gathered must be of such sizes.
_LEAST_ALIKE = 0.9


def bucket_rows(run: str, rank: int, calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Rows of ``param_bucket``: gradient reductions of each step in order of launch."""
    by_step: dict[int, list[Call]] = {}
    for call in calls:
        if call.is_gradient and call.step is not None:
            by_step.setdefault(call.step, []).append(call)
    return [
        {
            "run": run,
            "rank": rank,
            "step": step,
            "bucket": number,
            "bytes": call.bytes,
            "ready_ns": call.asked,
            "call_id": call.call_id,
        }
        for step, own in sorted(by_step.items())
        for number, call in enumerate(sorted(own, key=lambda c: (c.asked, c.start)))
    ]


def sync_rows(
    run: str, rank: int, calls: Sequence[Call], spans: Spans, steps: Mapping[int, tuple[int, int]]
) -> list[dict[str, Any]]:
    """Rows of ``gradient_sync``; [] where no backward pass is seen.

    ``steps`` gives the host span of each step, ns.
    """
    passes = backward_passes(spans)
    if passes is None:
        return []
    rows = []
    for step, (low, high) in sorted(steps.items()):
        inside = np.flatnonzero((passes.start >= low) & (passes.start < high))
        groups: dict[tuple[str | None, str], list[Call]] = {}
        for call in calls:
            if call.is_gradient and call.step == step:
                groups.setdefault((call.group, call.op), []).append(call)
        for (group, op), own in sorted(groups.items(), key=lambda item: str(item[0])):
            asked = np.array([c.asked for c in own])
            used = np.unique(np.searchsorted(passes.start, asked, side="right") - 1)
            gathered = [
                call
                for call in calls
                if call.op == "all_gather" and call.step == step and call.group == group
            ]
            rows.append(
                {
                    "run": run,
                    "rank": rank,
                    "step": step,
                    "process_group": group,
                    "op": op,
                    "micro_batches": len(inside),
                    "syncs": len(np.intersect1d(used, inside)),
                    "bytes": sum(c.bytes or 0 for c in own),
                    "gathers": _gathers(gathered, own, len(used)),
                    "exposed_ns": sum(c.exposed_transfer for c in own),
                }
            )
    return rows


def _gathers(gathered: Sequence[Call], reduced: Sequence[Call], passes: int) -> int | None:
    """How often a step gathers the same parameters; None where that is not known.

    FSDP2 names its units but the root. Without names (FSDP1) a module is gathered and reduced in
    calls of one size: how many such calls are gathers, over those of one backward pass that reduce.
    """
    if not gathered:
        return None
    names = Counter(call.module for call in gathered if call.module)
    units = Counter(call.module for call in gathered if call.module and call.ahead is not None)
    if units or names.total() == len(gathered):
        return max((units or names).values())
    modules, gathers = _sizes(reduced), _sizes(gathered)
    alike = gathers.keys() & modules.keys()
    if sum(n * gathers[n] for n in alike) < _LEAST_ALIKE * sum(n * gathers[n] for n in gathers):
        return None
    return max((-(-gathers[n] * passes // modules[n]) for n in alike), default=None)


def _sizes(calls: Iterable[Call]) -> Counter[int]:
    return Counter(call.bytes for call in calls if call.bytes)
