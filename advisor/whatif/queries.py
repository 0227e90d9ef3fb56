"""What the replay needs of one rank and step, read from the tables of a traced run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.vocabulary.dtypes import element

Int = NDArray[np.int64]

# A gap counts as waiting when it ends within this of the call's end: what a woken thread needs.
WAKE_NS = 400_000
# Shorter gaps are scheduling noise between operators, never a wait.
SHORTEST_GAP_NS = 20_000
# An all-reduce of up to this many bytes is a flag or a loss, not a bucket of gradients.
_SCALAR_BYTES = 64


@dataclass(frozen=True)
class CallRow:
    call_id: int
    arrival: int
    start: int
    end: int
    group: str
    op: str
    bytes: int | None
    is_gradient: bool
    phase: str | None


def ranks(con: Any, run: str) -> tuple[dict[int, int], str | None, str]:
    rows = con.execute(
        "SELECT rank, coalesce(clock_offset_ns, 0), backend, timeline FROM rank "
        "WHERE run = ? AND rank IN (SELECT rank FROM step WHERE run = ?) ORDER BY rank",
        [run, run],
    ).fetchall()
    offsets = {int(rank): int(offset) for rank, offset, _, _ in rows}
    backend = next((str(row[2]) for row in rows if row[2]), None)
    timeline = next((str(row[3]) for row in rows if row[3]), "device")
    return offsets, backend, timeline


def used_steps(con: Any, run: str) -> tuple[frozenset[int], list[int]]:
    """The ranks that count, and their used steps in order."""
    rows = con.execute(
        "SELECT step, rank FROM step WHERE run = ? AND used ORDER BY step", [run]
    ).fetchall()
    return frozenset(int(rank) for _, rank in rows), sorted({int(step) for step, _ in rows})


def contention(con: Any, run: str) -> float:
    """How much longer compute takes beside communication, as a share; 0 where none was seen."""
    (slowdown,) = con.execute(
        "SELECT median(slowdown) FROM overlap_slowdown WHERE run = ?", [run]
    ).fetchone()
    return max(0.0, float(slowdown or 1.0) - 1.0)


def calls(
    con: Any, run: str, rank: int, step: int, timeline: str, backward: tuple[int, int]
) -> list[CallRow]:
    rows = con.execute(
        "SELECT call_id, enqueue_ns, start_ns, end_ns, coalesce(process_group, '?'), op, bytes, "
        "phase, coalesce(stream, 0) FROM collective WHERE run = ? AND rank = ? AND step = ? "
        "ORDER BY start_ns",
        [run, rank, step],
    ).fetchall()
    result = []
    last_end: dict[int, int] = {}
    last_arrival: dict[int, int] = {}
    for call_id, enqueue, start, end, group, op, size, phase, stream in rows:
        arrival = int(enqueue) if timeline == "host" and enqueue is not None else int(start)
        queued = start - last_end.get(stream, 0) < SHORTEST_GAP_NS
        if timeline != "host" and queued and stream in last_arrival:
            # Held back by its stream only: it was ready at some time since the one before.
            arrival = max(last_arrival[stream], min(int(start), int(enqueue or start)))
        arrival = min(arrival, int(start))
        last_end[stream], last_arrival[stream] = int(end), arrival
        in_backward = phase == "backward" or (
            phase is None and backward[0] <= arrival <= backward[1]
        )
        gradient = op == "all_reduce" and in_backward and (size or 0) > _SCALAR_BYTES
        result.append(
            CallRow(
                int(call_id),
                arrival,
                int(start),
                int(end),
                str(group),
                str(op),
                size,
                gradient,
                phase,
            )
        )
    return result


def busy(con: Any, run: str, rank: int, window: tuple[int, int]) -> tuple[Int, Int]:
    """Merged intervals of everything but communication inside the window."""
    table = con.execute(
        "SELECT greatest(start_ns, ?) AS s, least(end_ns, ?) AS e FROM activity "
        "WHERE run = ? AND rank = ? AND kind <> 'comm' AND end_ns > ? AND start_ns < ? "
        "ORDER BY s",
        [window[0], window[1], run, rank, window[0], window[1]],
    ).fetchnumpy()
    starts = np.asarray(table["s"], dtype=np.int64)
    ends = np.asarray(table["e"], dtype=np.int64)
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate(([True], starts[1:] > reach[:-1]))
    first = np.flatnonzero(opens)
    last = np.concatenate((first[1:] - 1, [len(starts) - 1]))
    return starts[first], reach[last]


def gradient_marks(
    con: Any, run: str, rank: int, window: tuple[int, int], timeline: str
) -> list[tuple[int, int]]:
    """(ready time, bytes) of each gradient of the step, in the order they became ready."""
    rows = con.execute(
        "SELECT start_ns + dur_ns, input_dims, input_types "
        "FROM event LEFT JOIN comm_event USING (run, rank, event_id) WHERE run = ? AND rank = ? "
        "AND name = 'torch::autograd::AccumulateGrad' AND start_ns >= ? AND start_ns < ? "
        "ORDER BY start_ns",
        [run, rank, window[0], window[1]],
    ).fetchall()
    marks = []
    for ready, dims, types in rows:
        size = _tensor_bytes(dims, types)
        if size is None:
            return []
        marks.append((int(ready), size))
    if timeline == "host" or not marks:
        return marks
    times = _on_device(con, run, rank, window, [ready for ready, _ in marks])
    return [(at, size) for at, (_, size) in zip(times, marks, strict=True)] if times else []


def optimizer_start(
    con: Any, run: str, rank: int, window: tuple[int, int], timeline: str
) -> int | None:
    """When the optimizer begins: by then every gradient has been reduced."""
    row = con.execute(
        "SELECT min(start_ns) FROM event WHERE run = ? AND rank = ? AND start_ns >= ? AND "
        "start_ns < ? AND (name = '## optimizer ##' OR name LIKE 'Optimizer.step#%')",
        [run, rank, *window],
    ).fetchone()
    if row is None or row[0] is None:
        return None
    if timeline == "host":
        return int(row[0])
    times = _on_device(con, run, rank, window, [int(row[0])])
    return times[0] if times else None


def _on_device(
    con: Any, run: str, rank: int, window: tuple[int, int], host_times: list[int]
) -> list[int]:
    """Host times on the device's timeline: the end of the last kernel launched before each."""
    table = con.execute(
        "SELECT launch_ns, end_ns FROM activity WHERE run = ? AND rank = ? AND kind = 'compute' "
        "AND launch_ns IS NOT NULL AND launch_ns >= ? AND launch_ns < ? ORDER BY launch_ns",
        [run, rank, window[0] - 10_000_000_000, window[1]],
    ).fetchnumpy()
    launched = np.asarray(table["launch_ns"], dtype=np.int64)
    ended = np.maximum.accumulate(np.asarray(table["end_ns"], dtype=np.int64))
    if not len(launched):
        return []
    at = np.searchsorted(launched, host_times, side="right") - 1
    return [int(ended[max(i, 0)]) for i in at]


def _tensor_bytes(dims: str | None, types: str | None) -> int | None:
    """Bytes of the first input tensor from the profiler's shapes; None without record_shapes."""
    if not dims:
        return None
    try:
        shapes, names = json.loads(dims), json.loads(types or "[]")
    except ValueError:
        return None
    shape = shapes[0] if isinstance(shapes, list) and shapes else None
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        return None
    _, width = element(str(names[0]) if isinstance(names, list) and names else "float")
    return None if width is None else int(np.prod(shape, dtype=np.int64)) * width
