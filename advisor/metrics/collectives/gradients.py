"""Gradient reductions of each step and the backward passes they belong to: rows of
``param_bucket`` and ``gradient_sync``. What a script reduces once more by hand is none of them.

With it comes how often a step gathers the same parameters: by their module's name, else by size.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.spans import Spans, backward_passes, update_starts
from advisor.metrics.timeline.intervals import Int64s, Intervals

# Sizes that a group gathers and reduces alike are modules of FSDP; others (DeepSpeed's buckets)
# tell nothing. Nearly all bytes that are gathered must be of such sizes.
_LEAST_ALIKE = 0.9
_AS_MANY = 0.02  # of a pass's bytes: norms and biases that look like metrics


def drop_repeated(calls: Sequence[Call], passes: Intervals) -> None:
    """Clear ``is_gradient`` of what a script sums by hand behind a backward pass whose hooks have
    summed as many bytes of the group: the same gradients (rule gradients-reduced-again)."""
    summed = [call for call in calls if call.is_gradient and call.op == "all_reduce"]
    asked = np.array([call.asked for call in summed], dtype=np.int64)
    within = (np.searchsorted(passes.start, asked, side="right") - 1).tolist()
    hooked, by_hand = Counter[tuple[int, str | None]](), Counter[tuple[int, str | None]]()
    for call, one in zip(summed, within, strict=True):
        of_phase = by_hand if call.phase == "other" else hooked
        of_phase[one, call.group] += call.bytes or call.count_bytes() or 0
    for call, one in zip(summed, within, strict=True):
        once, again = hooked[one, call.group], by_hand[one, call.group]
        if call.phase == "other" and once and abs(again - once) <= _AS_MANY * once:
            call.is_gradient = False


def bucket_rows(run: str, rank: int, calls: Sequence[Call], spans: Spans) -> list[dict[str, Any]]:
    """Rows of ``param_bucket``: gradient reductions of each step in order of launch."""
    passes = backward_passes(spans)
    found = None if passes is None else _repeated(calls, passes, _update_of(passes, spans))
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
            "backward_pass": None if found is None else found.within[id(call)],
            "early": None if found is None else id(call) in found.early,
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
    update = _update_of(passes, spans)
    early, _, repeated = _repeated(calls, passes, update)
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
            syncs = repeated[(step, group, op)]
            most = max(syncs, key=lambda one: syncs[one], default=None)
            gathers = _gathers(gathered, own, len(used))
            rows.append(
                {
                    "run": run,
                    "rank": rank,
                    "step": step,
                    "process_group": group,
                    "op": op,
                    "updates": len(syncs),
                    "micro_batches": int((update[inside] == most).sum()) if syncs else len(inside),
                    "syncs": max(syncs.values(), default=0),
                    "bytes": sum(c.bytes or 0 for c in own),
                    "early_bytes": sum(c.bytes or 0 for c in own if id(c) in early),
                    "gathers": None if gathers is None else -(-gathers // max(len(syncs), 1)),
                    "exposed_ns": sum(c.exposed_transfer for c in own),
                }
            )
    return rows


def _update_of(passes: Intervals, spans: Spans) -> Int64s:
    """Of each backward pass, how many optimizer steps came before: passes of one number add up to
    one update. An optimizer of its own for each of two models updates twice in a step."""
    return np.searchsorted(update_starts(spans), passes.start, side="right")


class _Repeated(NamedTuple):
    """``early``: identities of reductions whose gradients a later backward pass reduces again for
    the same update; ``within``: of each reduction its backward pass; ``syncs``: (step, group,
    operation) -> update -> how often, at most."""

    early: set[int]
    within: dict[int, int]
    syncs: dict[tuple[int | None, str | None, str], dict[int, int]]


def _repeated(calls: Sequence[Call], passes: Intervals, update: Int64s) -> _Repeated:
    """What is reduced repeatedly: the same gradients come in calls of the same sizes."""
    reduced = [call for call in calls if call.is_gradient and call.step is not None]
    asked = np.array([call.asked for call in reduced], dtype=np.int64)
    within = (np.searchsorted(passes.start, asked, side="right") - 1).tolist()
    places: dict[tuple[Any, ...], set[int]] = {}
    keys = []
    for call, one in zip(reduced, within, strict=True):
        key = (call.step, call.group, call.op), int(update[one]) if one >= 0 else -1, call.bytes
        places.setdefault(key, set()).add(one)
        keys.append(key)
    early = {
        id(call)
        for call, key, one in zip(reduced, keys, within, strict=True)
        if 0 <= one < max(places[key])
    }
    syncs: dict[tuple[int | None, str | None, str], dict[int, int]] = {}
    for (of, number, _), found in places.items():
        own = syncs.setdefault(of, {})
        if number >= 0:
            own[number] = max(own.get(number, 0), len(found))
    passed = dict(zip(map(id, reduced), within, strict=True))
    return _Repeated(early, passed, syncs)


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
