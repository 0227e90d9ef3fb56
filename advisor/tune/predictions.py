"""What the models say about a sweep from the trace of its baseline: ranks to try, never results.

Bucket caps of data-parallel runs and 16-bit gradients, and of FSDP2 resharding, wrapping and
prefetch, are replayed; settings that a replay covers are predicted in combination, since their
gains do not add up.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from advisor.config.combinations import values_of
from advisor.config.sweep import Axis, Configuration, Value
from advisor.errors import AdvisorError
from advisor.tune.points import Key, key_of
from advisor.tune.recorded import recorded, traces_in
from advisor.tune.search import Predicted
from advisor.vocabulary.dtypes import element
from advisor.whatif import sharded
from advisor.whatif.buckets import DEFAULT_BUCKET_CAP_MB
from advisor.whatif.cost import ServiceModel
from advisor.whatif.extract import programs
from advisor.whatif.predict import (
    DataParallel,
    data_parallel,
    predict,
    predict_bucket_cap,
    service_models,
)
from advisor.whatif.program import Program

_RESHARDS, _KEEPS = "fsdp2", "fsdp2-zero2"
_SHARDED = ("wrap_layers", "strategy", "prefetch_forward", "prefetch_backward")

Change = Callable[[Program], Program | None]


def from_trace(folder: Path, axes: Sequence[Axis], start: Configuration) -> Predicted:
    """Predicted step relative to the present one, for what a replay of the trace covers.

    Raises AdvisorError where there is no trace, or none that can be read.
    """
    if not traces_in(folder):
        raise AdvisorError("it was removed", where=str(folder))
    with recorded(folder, "baseline") as store:
        steps = programs(store, "baseline")
        (width,) = store.con.execute(
            "SELECT arg_max(dtype, bytes) FROM collective WHERE op = 'all_reduce'"
        ).fetchone()
    known, covered = _data_parallel(steps, axes, start, wide=element(width or "")[1] == 4)
    if not known and steps:
        known, covered = _sharded(steps, axes, start)
    return Predicted(frozenset(covered if known else ()), known)


def _data_parallel(
    steps: list[Program], axes: Sequence[Axis], start: Configuration, *, wide: bool
) -> tuple[dict[Key, float], set[str]]:
    """Every combination of bucket caps and, of 32-bit gradients, hooks that send them in 16."""
    heeded = {"bucket_cap_mb"}
    if wide and start.get("comm_hook") == "none":
        heeded.add("comm_hook")
    chosen = [axis for axis in axes if axis.setting in heeded]
    ddp = data_parallel(steps) if chosen else None
    if ddp is None:
        return {}, set()
    known: dict[Key, float] = {}
    for values in product(*(values_of(axis, start) for axis in chosen)):
        point = {axis.setting: value for axis, value in zip(chosen, values, strict=True)}
        halved = point.get("comm_hook", "none") != "none"
        found = predict_bucket_cap(steps, ddp, _cap(point, start, ddp), halved=halved)
        if found is not None and found.measured_ns > 0:
            known[key_of(point)] = found.step_ns / found.measured_ns
    return known, {axis.setting for axis in chosen}


def _cap(point: Configuration, start: Configuration, ddp: DataParallel) -> float | None:
    """The cap of a point; the present one as the trace's own buckets show it."""
    cap = point.get("bucket_cap_mb", start.get("bucket_cap_mb"))
    if cap == start.get("bucket_cap_mb") and not isinstance(ddp.current_cap_mb, str):
        return ddp.current_cap_mb
    return DEFAULT_BUCKET_CAP_MB if cap is None else float(cap)


def _sharded(
    steps: list[Program], axes: Sequence[Axis], start: Configuration
) -> tuple[dict[Key, float], set[str]]:
    """Every combination of the sharding settings that one trace tells of."""
    chosen = [axis for axis in axes if axis.setting in _SHARDED]
    models = service_models(steps)
    known: dict[Key, float] = {}
    for values in product(*(axis.values for axis in chosen)):
        point = {axis.setting: value for axis, value in zip(chosen, values, strict=True)}
        change = _change(point, start, models)
        found = predict(steps, change) if change is not None else None
        if found is not None and found.measured_ns > 0:
            known[key_of(point)] = found.step_ns / found.measured_ns
    return known, {axis.setting for axis in chosen}


def _change(
    point: Configuration, start: Configuration, models: Mapping[tuple[str, int], ServiceModel]
) -> Change | None:
    """From the present settings to ``point``; None where the trace cannot tell."""
    changes: list[Change] = []
    if point.get("strategy", start.get("strategy")) != start.get("strategy"):
        if (start.get("strategy"), point["strategy"]) != (_RESHARDS, _KEEPS):
            return None
        changes.append(sharded.without_resharding)
    now, wanted = start.get("wrap_layers"), point.get("wrap_layers", start.get("wrap_layers"))
    if now != wanted:
        if not isinstance(now, int) or not isinstance(wanted, int) or not now or wanted % now:
            return None
        units = wanted // now
        changes.append(lambda program: sharded.with_wrapping(program, units, models))
    for phase in ("forward", "backward"):
        setting = f"prefetch_{phase}"
        depth = point.get(setting, start.get(setting))
        if depth != start.get(setting):
            if not isinstance(depth, int):
                return None
            changes.append(_prefetch(phase, depth))

    def apply(program: Program) -> Program | None:
        changed: Program | None = program
        for change in changes:
            changed = None if changed is None else change(changed)
        return changed

    return apply


def _prefetch(phase: str, depth: Value) -> Change:
    def change(program: Program) -> Program | None:
        if len(sharded.gathers(program, phase)) < 2:
            return program  # nothing is fetched there, or there is nothing to fetch ahead
        return sharded.with_prefetch(program, phase, int(depth or 0))

    return change
