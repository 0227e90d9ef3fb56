"""What the models say about a sweep from the trace of its baseline: ranks to try, never results.

Bucket caps of data-parallel runs, and of FSDP2 resharding, wrapping and prefetch, are replayed;
settings that a replay covers are predicted in combination, since their gains do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from advisor.config.sweep import Axis, Configuration, Value
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store
from advisor.tune.points import Key, key_of
from advisor.tune.search import Predicted
from advisor.whatif import sharded
from advisor.whatif.buckets import DEFAULT_BUCKET_CAP_MB
from advisor.whatif.cost import ServiceModel
from advisor.whatif.extract import programs
from advisor.whatif.predict import data_parallel, predict, predict_bucket_cap, service_models
from advisor.whatif.program import Program

_RESHARDS, _KEEPS = "fsdp2", "fsdp2-zero2"
_SHARDED = ("wrap_layers", "strategy", "prefetch_forward", "prefetch_backward")

Change = Callable[[Program], Program | None]


def from_trace(folder: Path, axes: Sequence[Axis], start: Configuration) -> Predicted:
    """Predicted step relative to the present one, for what a replay of the trace covers.

    Raises AdvisorError where there is no trace, or none that can be read.
    """
    traces = [str(path) for path in sorted(folder.glob("rank*.json*"))]
    if not traces:
        raise AdvisorError("it was removed", where=str(folder))
    with Store.create() as store:
        ingest(traces, store, run="baseline")
        derive(store)
        steps = programs(store, "baseline")
    known = _bucket_caps(steps, axes) if steps else {}
    covered = {"bucket_cap_mb"}
    if not known and steps:
        known, covered = _sharded(steps, axes, start)
    return Predicted(frozenset(covered if known else ()), known)


def _bucket_caps(steps: list[Program], axes: Sequence[Axis]) -> dict[Key, float]:
    caps = next((axis for axis in axes if axis.setting == "bucket_cap_mb"), None)
    ddp = data_parallel(steps) if caps is not None else None
    if caps is None or ddp is None:
        return {}
    known = {}
    for value in caps.values:
        cap = DEFAULT_BUCKET_CAP_MB if value is None else float(value)
        prediction = predict_bucket_cap(steps, ddp, cap)
        if prediction is not None and prediction.measured_ns > 0:
            ratio = prediction.step_ns / prediction.measured_ns
            known[key_of({"bucket_cap_mb": value})] = ratio
    return known


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
