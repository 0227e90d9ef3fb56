"""What the models say about a sweep from the trace of its baseline: ranks to try, never results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from advisor.config.sweep import Axis
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store
from advisor.whatif.buckets import DEFAULT_BUCKET_CAP_MB
from advisor.whatif.extract import programs
from advisor.whatif.predict import data_parallel, predict_bucket_cap


def from_trace(folder: Path, axes: list[Axis]) -> Mapping[str, Mapping[str, float]]:
    """Predicted step relative to the present one, per setting and repr(value).

    Only axes that a replay covers appear: ``bucket_cap_mb`` of data-parallel runs.
    """
    caps = next((axis for axis in axes if axis.setting == "bucket_cap_mb"), None)
    if caps is None:
        return {}
    with Store.create() as store:
        ingest([str(path) for path in sorted(folder.glob("rank*.json*"))], store, run="baseline")
        derive(store)
        steps = programs(store, "baseline")
        ddp = data_parallel(steps)
        if ddp is None:
            return {}
        known = {}
        for value in caps.values:
            cap = DEFAULT_BUCKET_CAP_MB if value is None else float(value)
            prediction = predict_bucket_cap(steps, ddp, cap)
            if prediction is not None and prediction.measured_ns > 0:
                known[repr(value)] = prediction.step_ns / prediction.measured_ns
        return {"bucket_cap_mb": known}
