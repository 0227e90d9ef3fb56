"""From the tables of a traced run to programs that can be replayed.

Per rank and step the device's timeline is walked once (walk.py). A call is issued when the host
enqueued it (gloo) or when its kernel could start (NCCL: its stream's turn).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from advisor.metrics.steps.used import step_time
from advisor.metrics.timeline.intervals import Intervals
from advisor.store import Store
from advisor.store.events import Events
from advisor.whatif import queries, service
from advisor.whatif.host_work import device_work, host_work
from advisor.whatif.program import Call, Program, compact
from advisor.whatif.queries import WAKE_NS, CallRow, Recorded, Window
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
    lines: dict[int, dict[int, Timeline]] = {step: {} for step in steps[-max_steps:]}
    events = Events(con, run)
    for rank, windows in queries.windows(con, run, [*lines]).items():
        if rank not in offsets:
            continue
        recorded = Recorded(events, rank, [*lines], timeline)
        for step, window in windows.items():
            lines[step][rank] = _timeline(recorded, step, window, timeline)
    inside = frozenset() if backend == "gloo" else queries.within_hosts(con, run)
    for step, of_step in lines.items():
        program = _program(step, of_step, offsets, backend, timeline, contention, inside)
        if program is not None:
            result.append(replace(program, run_step_ns=run_step_ns))
    return result


def _program(
    step: int,
    lines: dict[int, Timeline],
    offsets: dict[int, int],
    backend: str | None,
    timeline: str,
    contention: float,
    within_hosts: frozenset[str],
) -> Program | None:
    rows = {rank: list(line.calls) for rank, line in lines.items()}
    if not any(rows.values()):
        return None
    starts = {rank: line.window[0] + offsets[rank] for rank, line in lines.items()}
    origin = min(starts.values())
    if max(starts.values()) >= min(line.window[1] + offsets[rank] for rank, line in lines.items()):
        return None  # by clocks that share no time no step is replayed
    spans = service.transfers(rows, offsets)
    if contention:
        for rank, line in lines.items():
            line.contention = contention
            line.beside = _beside(line, spans, offsets[rank])
    measured_ns = float(np.median([line.window[1] - line.window[0] for line in lines.values()]))
    last_end = max(line.window[1] + offsets[rank] for rank, line in lines.items())
    return Program(
        items={rank: compact(walk(line)) for rank, line in lines.items()},
        calls=_shared_calls(rows, spans, within_hosts),
        start_ns={rank: float(start - origin) for rank, start in starts.items()},
        slots=_SLOTS.get(backend or "", 1),
        shared=backend == "gloo",
        measured_ns=measured_ns,
        apart_ns=last_end - origin - measured_ns,
        step=step,
        timeline=timeline,
        contention=contention,
    )


def _beside(line: Timeline, spans: Mapping[int, tuple[int, int]], offset: int) -> Intervals:
    """Compute of a rank beside its own calls once these move data: all their ranks are there."""
    start = [max(spans[call.call_id][0] - offset, call.start) for call in line.calls]
    return Intervals.of(start, [call.end for call in line.calls]) & line.busy


def _timeline(recorded: Recorded, step: int, window: Window, timeline: str) -> Timeline:
    gradients = recorded.gradient_marks(window)
    optimizer = recorded.optimizer_start(window)
    calls = recorded.calls(step, _backward(gradients, optimizer))
    busy = recorded.busy(window)
    needed: list[tuple[int, int]] = []
    if timeline == "host":
        owned, needed = host_work(recorded, window, calls)
    else:
        owned = device_work(recorded, step, window, busy, calls)
    return Timeline(
        window=window,
        busy=busy,
        calls=calls,
        gradients=gradients,
        optimizer=optimizer,
        needed=needed,
        owned=owned,
        on_host=timeline == "host",
    )


def _shared_calls(
    rows: dict[int, list[CallRow]],
    spans: dict[int, tuple[int, int]],
    within_hosts: frozenset[str],
) -> dict[int, Call]:
    """The calls of all ranks, each once."""
    times, apart = service.service_times(rows, spans, within_hosts)
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
