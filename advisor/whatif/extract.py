"""From the tables of a traced run to programs that can be replayed.

Per rank and step the device's timeline is walked once (walk.py). A call is issued when the host
enqueued it (gloo) or when its kernel could start (NCCL: its stream's turn).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.metrics.steps.used import step_time
from advisor.metrics.timeline.intervals import Intervals
from advisor.store import Store
from advisor.whatif import queries, service
from advisor.whatif.host_work import host_work
from advisor.whatif.program import Call, Program, compact
from advisor.whatif.queries import WAKE_NS, CallRow
from advisor.whatif.walk import Timeline, walk

# gloo runs two collectives of a group at once (two worker threads per process group by default).
_SLOTS = {"gloo": 2}


def programs(store: Store, run: str, *, max_steps: int = 8) -> list[Program]:
    """One program per used step (the last ``max_steps``).

    Times of the ranks are aligned by ``rank.clock_offset_ns``. Empty when there is no used step
    with a collective.
    """
    con = store.con
    offsets, backend, timeline = queries.ranks(con, run)
    if not offsets:
        return []
    known, steps = queries.used_steps(con, run)
    offsets = {rank: offset for rank, offset in offsets.items() if rank in known}
    result = []
    run_step_ns = step_time(con, run)
    contention = queries.contention(con, run)
    for step in steps[-max_steps:]:
        program = _program(con, run, step, offsets, backend, timeline, contention)
        if program is not None:
            result.append(replace(program, run_step_ns=run_step_ns))
    return result


def _program(
    con: Any,
    run: str,
    step: int,
    offsets: dict[int, int],
    backend: str | None,
    timeline: str,
    contention: float,
) -> Program | None:
    windows = {
        int(rank): (int(start), int(end))
        for rank, start, end in con.execute(
            "SELECT rank, start_ns, end_ns FROM step WHERE run = ? AND step = ?", [run, step]
        ).fetchall()
        if rank in offsets
    }
    lines = {r: _timeline(con, run, r, step, window, timeline) for r, window in windows.items()}
    rows = {rank: list(line.calls) for rank, line in lines.items()}
    if not any(rows.values()):
        return None
    origin = min(start + offsets[rank] for rank, (start, _) in windows.items())
    spans = service.transfers(rows, offsets)
    if contention:
        for rank, line in lines.items():
            line.contention = contention
            line.beside = _beside(line, spans, offsets[rank])
    return Program(
        items={rank: compact(walk(line)) for rank, line in lines.items()},
        calls=_shared_calls(rows, spans),
        start_ns={rank: float(w[0] + offsets[rank] - origin) for rank, w in windows.items()},
        slots=_SLOTS.get(backend or "", 1),
        shared=backend == "gloo",
        measured_ns=float(np.median([end - start for start, end in windows.values()])),
        step=step,
        timeline=timeline,
        contention=contention,
    )


def _beside(line: Timeline, spans: Mapping[int, tuple[int, int]], offset: int) -> Intervals:
    """Compute of a rank beside its own calls once these move data: all their ranks are there."""
    start = [max(spans[call.call_id][0] - offset, call.start) for call in line.calls]
    return Intervals.of(start, [call.end for call in line.calls]) & Intervals(*line.busy)


def _timeline(
    con: Any, run: str, rank: int, step: int, window: tuple[int, int], timeline: str
) -> Timeline:
    gradients = queries.gradient_marks(con, run, rank, window, timeline)
    optimizer = queries.optimizer_start(con, run, rank, window, timeline)
    calls = queries.calls(con, run, rank, step, timeline, _backward(gradients, optimizer))
    owned, needed = host_work(con, run, rank, window, calls) if timeline == "host" else ([], [])
    return Timeline(
        window=window,
        busy=queries.busy(con, run, rank, window),
        calls=calls,
        gradients=gradients,
        optimizer=optimizer,
        needed=needed,
        owned=owned,
    )


def _shared_calls(
    rows: dict[int, list[CallRow]], spans: dict[int, tuple[int, int]]
) -> dict[int, Call]:
    """The calls of all ranks, each once."""
    times, apart = service.service_times(rows, spans)
    burst = service.burst_numbers(spans)
    calls: dict[int, Call] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            known = calls.get(row.call_id)
            calls[row.call_id] = Call(
                ranks=(*known.ranks, rank) if known else (rank,),
                channel=row.group,
                service_ns=times[row.call_id],
                apart_ns=apart.get(row.call_id),
                op=row.op,
                bytes=row.bytes,
                is_gradient=row.is_gradient,
                phase=row.phase,
                burst=burst[row.call_id],
            )
    return calls


def _backward(marks: list[tuple[int, int]], optimizer: int | None) -> tuple[int, int]:
    """From the first gradient to the optimizer (or the end); empty without gradients."""
    if not marks:
        return (1, 0)
    return marks[0][0] - WAKE_NS, optimizer if optimizer is not None else 2**62
