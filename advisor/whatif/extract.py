"""From the tables of a traced run to programs that can be replayed.

Per rank and step the device's timeline is walked once. Work is what the device computes and the
gaps that no call explains; a gap that ends when a call in flight ends is a wait for it. A call is
issued when the host enqueued it (gloo) or when its kernel could start (NCCL: its stream's turn).
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.store import Store
from advisor.whatif.program import Call, Issue, Item, Mark, Program, Wait, Work, compact

Int = NDArray[np.int64]

# A gap counts as waiting when it ends within this of the call's end: what a woken thread needs.
_WAKE_NS = 400_000
# Shorter gaps are scheduling noise between operators, never a wait.
_SHORTEST_GAP_NS = 20_000
# An all-reduce of up to this many bytes is a flag or a loss, not a bucket of gradients.
_SCALAR_BYTES = 64
# gloo runs two collectives of a group at once (two worker threads per process group by default).
_SLOTS = {"gloo": 2}
# Passes over the ring: an all-reduce is a reduce-scatter and an all-gather.
_PASSES = {"all_reduce": 2}
_DTYPE_BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2,
    "c10::half": 2, "c10::bfloat16": 2, "bfloat16": 2,
}  # fmt: skip


@dataclass(frozen=True)
class _CallRow:
    call_id: int
    arrival: int
    start: int
    end: int
    group: str
    op: str
    bytes: int | None
    is_gradient: bool
    phase: str | None


def programs(store: Store, run: str, *, max_steps: int = 8) -> list[Program]:
    """One program per complete step (the last ``max_steps``) that every read rank has.

    Times of the ranks are aligned by ``rank.clock_offset_ns``. Empty when there is no complete
    step with a collective.
    """
    con = store.con
    offsets, backend, timeline = _ranks(con, run)
    if not offsets:
        return []
    steps = con.execute(
        "SELECT step FROM step WHERE run = ? AND complete GROUP BY step "
        "HAVING count(DISTINCT rank) = ? ORDER BY step DESC LIMIT ?",
        [run, len(offsets), max_steps],
    ).fetchall()
    result = []
    for (step,) in reversed(steps):
        program = _program(con, run, int(step), offsets, backend, timeline)
        if program is not None:
            result.append(program)
    return result


def _ranks(con: Any, run: str) -> tuple[dict[int, int], str | None, str]:
    rows = con.execute(
        "SELECT rank, coalesce(clock_offset_ns, 0), backend, timeline FROM rank "
        "WHERE run = ? AND rank IN (SELECT rank FROM step WHERE run = ?) ORDER BY rank",
        [run, run],
    ).fetchall()
    offsets = {int(rank): int(offset) for rank, offset, _, _ in rows}
    backend = next((str(row[2]) for row in rows if row[2]), None)
    timeline = next((str(row[3]) for row in rows if row[3]), "device")
    return offsets, backend, timeline


def _program(
    con: Any, run: str, step: int, offsets: dict[int, int], backend: str | None, timeline: str
) -> Program | None:
    windows = {
        int(rank): (int(start), int(end))
        for rank, start, end in con.execute(
            "SELECT rank, start_ns, end_ns FROM step WHERE run = ? AND step = ?", [run, step]
        ).fetchall()
    }
    marks = {r: _gradient_marks(con, run, r, w, timeline) for r, w in windows.items()}
    optimizer = {r: _optimizer_start(con, run, r, w, timeline) for r, w in windows.items()}
    rows = {
        rank: _calls(con, run, rank, step, timeline, _backward(marks[rank], optimizer[rank]))
        for rank in windows
    }
    if not any(rows.values()):
        return None
    origin = min(start + offsets[rank] for rank, (start, _) in windows.items())
    spans = _spans(rows, offsets)
    service = _service_times(rows, spans)
    burst = _bursts(spans)
    calls: dict[int, Call] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            known = calls.get(row.call_id)
            ranks = (*known.ranks, rank) if known else (rank,)
            calls[row.call_id] = Call(
                ranks=ranks,
                channel=row.group,
                service_ns=service[row.call_id],
                op=row.op,
                bytes=row.bytes,
                is_gradient=row.is_gradient,
                phase=row.phase,
                burst=burst[row.call_id],
            )
    items: dict[int, list[Item]] = {}
    for rank, window in windows.items():
        busy = _busy(con, run, rank, window)
        needed = _copy_outs(con, run, rank, window, rows[rank]) if timeline == "host" else []
        walk = _walk(window, busy, rows[rank], marks[rank], optimizer[rank], needed)
        items[rank] = compact(walk)
    return Program(
        items=items,
        calls=calls,
        start_ns={rank: float(w[0] + offsets[rank] - origin) for rank, w in windows.items()},
        slots=_SLOTS.get(backend or "", 1),
        shared=backend == "gloo",
        measured_ns=float(np.median([end - start for start, end in windows.values()])),
        step=step,
    )


def _backward(marks: list[tuple[int, int]], optimizer: int | None) -> tuple[int, int]:
    """From the first gradient to the optimizer (or the end); empty without gradients."""
    if not marks:
        return (1, 0)
    return marks[0][0] - _WAKE_NS, optimizer if optimizer is not None else 2**62


def _calls(
    con: Any, run: str, rank: int, step: int, timeline: str, backward: tuple[int, int]
) -> list[_CallRow]:
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
        queued = start - last_end.get(stream, 0) < _SHORTEST_GAP_NS
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
            _CallRow(
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


def _spans(rows: dict[int, list[_CallRow]], offsets: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Per call its transfer: from the last rank's start to the last rank's end, aligned clocks."""
    spans: dict[int, tuple[int, int]] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            start, end = row.start + offsets[rank], row.end + offsets[rank]
            old = spans.get(row.call_id)
            spans[row.call_id] = (max(old[0], start), max(old[1], end)) if old else (start, end)
    return spans


def _bursts(spans: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Number the stretches of overlapping transfers; call to its stretch."""
    bursts: dict[int, int] = {}
    reach, number = -1, -1
    for call, (start, end) in sorted(spans.items(), key=lambda entry: entry[1]):
        if start >= reach:
            number += 1
        bursts[call] = number
        reach = max(reach, end)
    return bursts


def _service_times(
    rows: dict[int, list[_CallRow]], spans: dict[int, tuple[int, int]]
) -> dict[int, float]:
    """Per call: its time with the network for itself.

    Transfers that run at once on a rank share the network in proportion to the bytes they move
    (see simulate.py), so service = integral of own bytes / all bytes over the transfer.
    """
    members: dict[int, set[int]] = {}
    weight: dict[int, float] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            members.setdefault(row.call_id, set()).add(rank)
            weight[row.call_id] = float(max(row.bytes or 0, 1)) * _PASSES.get(row.op, 1)
    service: dict[int, float] = {}
    ordered = sorted(spans.items(), key=lambda entry: entry[1])
    for call, (start, end) in ordered:
        others = [
            (*span, weight[other])
            for other, span in ordered
            if other != call
            and span[0] < end
            and span[1] > start
            and members[other] & members[call]
        ]
        cuts = sorted({start, end, *(t for span in others for t in span[:2] if start < t < end)})
        total = 0.0
        for left, right in pairwise(cuts):
            rest = sum(of for since, until, of in others if since <= left and until >= right)
            total += (right - left) * weight[call] / (weight[call] + rest)
        service[call] = max(total, 0.0)
    return service


def _busy(con: Any, run: str, rank: int, window: tuple[int, int]) -> tuple[Int, Int]:
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


def _gradient_marks(
    con: Any, run: str, rank: int, window: tuple[int, int], timeline: str
) -> list[tuple[int, int]]:
    """(ready time, bytes) of each gradient of the step, in the order they became ready."""
    rows = con.execute(
        "SELECT start_ns + dur_ns, input_dims, input_types FROM event WHERE run = ? AND rank = ? "
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


def _optimizer_start(
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


def _copy_outs(
    con: Any, run: str, rank: int, window: tuple[int, int], calls: list[_CallRow]
) -> list[tuple[int, int]]:
    """(time, call) at which FSDP2 copies a gathered unit out: by then the gather is waited for.

    The annotations and the gathers come in the same order; without one for each there are none.
    """
    rows = con.execute(
        "SELECT start_ns FROM event WHERE run = ? AND rank = ? AND start_ns >= ? AND start_ns < ? "
        "AND name LIKE 'FSDP::all_gather_copy_out%' ORDER BY start_ns",
        [run, rank, *window],
    ).fetchall()
    order = sorted((c for c in calls if c.op == "all_gather"), key=lambda c: c.arrival)
    if len(rows) != len(order):
        return []
    return [(int(at), call.call_id) for (at,), call in zip(rows, order, strict=True)]


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
    name = str(names[0]).lower() if isinstance(names, list) and names else "float"
    width = _DTYPE_BYTES.get(name)
    return None if width is None else int(np.prod(shape, dtype=np.int64)) * width


def _walk(
    window: tuple[int, int],
    busy: tuple[Int, Int],
    calls: list[_CallRow],
    marks: list[tuple[int, int]],
    optimizer: int | None,
    needed: list[tuple[int, int]],
) -> Iterator[Item]:
    """The timeline of one rank as items, in order of time."""
    arrivals = sorted(
        ((max(row.arrival, window[0]), 1, row.call_id) for row in calls), key=lambda a: a[:2]
    )
    points: list[tuple[int, int, int]] = sorted(
        [*arrivals, *((ready, 0, i) for i, (ready, _) in enumerate(marks))]
    )
    if optimizer is not None:
        bisect.insort(points, (optimizer, 2, 0))
    for at, call in needed:
        bisect.insort(points, (at, 3, call))
    issued: set[int] = set()
    waited: set[int] = set()
    cursor = window[0]
    place = 0

    def at_point(kind: int, index: int) -> Iterator[Item]:
        if kind == 0:
            yield Mark("gradient", index, marks[index][1])
        elif kind == 1:
            issued.add(index)
            yield Issue(index)
        elif kind == 3:
            if index in issued - waited:
                waited.add(index)
                yield Wait(index)
        else:
            # Gradient calls that ended unnoticed under compute are waited for here at the latest.
            yield Mark("optimizer", 0)
            for row in sorted(calls, key=lambda r: r.end):
                if row.call_id in issued - waited and row.is_gradient:
                    waited.add(row.call_id)
                    yield Wait(row.call_id)

    def upto(limit: int) -> Iterator[Item]:
        nonlocal cursor, place
        while place < len(points) and points[place][0] <= limit:
            at, kind, index = points[place]
            if at > cursor:
                yield Work(at - cursor)
                cursor = at
            place += 1
            yield from at_point(kind, index)
        if limit > cursor:
            yield Work(limit - cursor)
            cursor = limit

    edges = [(int(s), int(e)) for s, e in zip(*busy, strict=True)]
    edges.append((window[1], window[1]))
    for start, end in edges:
        if start - cursor > _SHORTEST_GAP_NS:
            ending = [
                row
                for row in calls
                if row.call_id not in waited
                and cursor < row.end <= start + _WAKE_NS
                and row.start < start
            ]
            blocking = [row for row in ending if start - row.end <= _woken_within(cursor, start)]
            if blocking:
                last = max(row.end for row in blocking)
                # The wait began at the gap's start, or when the call was issued inside the gap.
                begin = max(cursor, min(max(row.arrival for row in blocking), start))
                yield from upto(begin)
                cursor = max(cursor, min(last, start))
                while place < len(points) and points[place][0] <= cursor:
                    _, kind, index = points[place]
                    place += 1
                    yield from at_point(kind, index)
                for row in sorted(ending, key=lambda r: r.end):
                    if row.end <= last and row.call_id in issued:
                        waited.add(row.call_id)
                        yield Wait(row.call_id)
        yield from upto(max(end, cursor))
    for row in sorted(calls, key=lambda r: r.end):
        if row.call_id in issued and row.call_id not in waited and row.end <= window[1] + _WAKE_NS:
            yield Wait(row.call_id)
    for row in calls:
        if row.call_id not in issued:
            yield Issue(row.call_id)


def _woken_within(start: int, end: int) -> int:
    return max(_WAKE_NS, (end - start) // 5)
