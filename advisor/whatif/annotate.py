"""Fill the table ``whatif`` that rules use: other bucket caps, and the step without a late rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.store import Store
from advisor.whatif.extract import programs
from advisor.whatif.predict import (
    DataParallel,
    Prediction,
    data_parallel,
    predict_bucket_cap,
    predict_without_lateness,
)
from advisor.whatif.program import Program

# The caps that are tried: torch's default, and the range people set (PEERS, STUDY B).
BUCKET_CAPS_MB: tuple[float | None, ...] = (None, 0.5, 1, 2, 5, 10, 25, 50, 100, 200)

Row = tuple[str, str, bool, Prediction]


def annotate(store: Store) -> None:
    """Fill ``whatif`` for every run that has complete steps; rows of earlier calls are replaced."""
    con = store.con
    for (run,) in con.execute("SELECT run FROM run").fetchall():
        con.execute("DELETE FROM whatif WHERE run = ?", [run])
        steps = programs(store, run)
        if not steps:
            continue
        for setting, value, is_current, prediction in _rows(con, run, steps):
            con.execute(
                "INSERT INTO whatif VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    run,
                    setting,
                    value,
                    is_current,
                    round(prediction.step_ns),
                    round(prediction.low_ns),
                    round(prediction.high_ns),
                    round(prediction.measured_ns),
                    round(prediction.replayed_ns),
                    prediction.extrapolates,
                ],
            )


def _rows(con: Any, run: str, steps: list[Program]) -> Iterator[Row]:
    ddp = data_parallel(steps)
    if ddp is not None:
        yield from _bucket_rows(steps, ddp)
    late = con.execute(
        "SELECT DISTINCT rank FROM lateness WHERE run = ? AND systematic ORDER BY rank", [run]
    ).fetchall()
    for (rank,) in late:
        prediction = predict_without_lateness(steps, int(rank))
        if prediction is not None:
            yield "without-lateness", str(rank), False, prediction


def _bucket_rows(steps: list[Program], ddp: DataParallel) -> Iterator[Row]:
    current = ddp.current_cap_mb
    caps = list(BUCKET_CAPS_MB)
    if not isinstance(current, str) and current not in caps:
        caps.append(current)
    for cap in caps:
        prediction = predict_bucket_cap(steps, ddp, cap)
        if prediction is not None:
            name = "default" if cap is None else f"{cap:g}"
            yield "bucket_cap_mb", name, cap == current, prediction
