"""What the replay needs of the ranks' steps, read from the tables of a traced run."""

import json
import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Intervals
from advisor.store.events import Events
from advisor.vocabulary.dtypes import element
from advisor.vocabulary.numbers import MOST_BYTES, within

Window = tuple[int, int]

# A gap counts as waiting when it ends within this of the call's end: what a woken thread needs.
WAKE_NS = 400_000
# Older traces hold whole microseconds: of two times each may be off by one.
ROUNDING_NS = 2_000
# On a host shorter gaps are scheduling noise between operators, never a wait.
SHORTEST_GAP_NS = 20_000
# An all-reduce of up to this many bytes is a flag or a loss, not a bucket of gradients.
_SCALAR_BYTES = 64
# A kernel may end this long after its launch and still be what a step's host waits for.
_LONGEST_QUEUE_NS = 10_000_000_000

# When each rank's steps that are replayed begin and end.
_SPAN = """span AS MATERIALIZED (
  SELECT rank, min(start_ns) AS low, max(end_ns) AS high FROM step
  WHERE run = $1 AND rank BETWEEN $2 AND $3 AND list_contains($4, step) GROUP BY rank)"""
_GRADIENT = "torch::autograd::AccumulateGrad"
_OPTIMIZERS = ("## optimizer ##", "Optimizer.step#")
REQUESTS, UNITS, FSDP1_UNITS = "c10d::", "FSDP::", "FullyShardedDataParallel._"
# Into the buffer that is reduced, and out of the one that was gathered (pytorch/pytorch
# torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
COPY_IN, COPY_OUT = "fsdp::chunk_cat", "fsdp::split_with_sizes_copy"
# Operators whose time grows with the bytes, as far as they run inside those annotations.
COPIES = (
    "fsdp::all_gather_copy_in", COPY_OUT, COPY_IN, "aten::copy_", "aten::clone", "aten::cat",
    "aten::div_",
)  # fmt: skip
HOST_WORK = (REQUESTS, UNITS, FSDP1_UNITS, *COPIES)


class CallRow(NamedTuple):
    call_id: int
    arrival: int
    start: int
    end: int
    group: str
    op: str
    bytes: int | None
    is_gradient: bool
    phase: str | None
    after: int | None = None


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


def windows(con: Any, run: str, steps: Sequence[int]) -> dict[int, dict[int, Window]]:
    """The windows of these steps by rank and step, each on its rank's own clock."""
    found: dict[int, dict[int, Window]] = {}
    for rank, step, start, end in con.execute(
        "SELECT rank, step, start_ns, end_ns FROM step WHERE run = ? AND list_contains(?, step) "
        "ORDER BY rank, step",
        [run, list(steps)],
    ).fetchall():
        found.setdefault(int(rank), {})[int(step)] = int(start), int(end)
    return found


def within_hosts(con: Any, run: str) -> frozenset[str]:
    """The process groups of several ranks that are all on one host, where their hosts are known."""
    rows = con.execute(
        "SELECT process_group FROM (SELECT process_group, unnest(ranks) AS rank FROM process_group "
        "WHERE run = $1) LEFT JOIN (FROM rank WHERE run = $1) USING (rank) GROUP BY 1 "
        "HAVING count(*) > 1 AND count(host) = count(*) AND count(DISTINCT host) = 1",
        [run],
    ).fetchall()
    return frozenset(str(name) for (name,) in rows)


class Recorded:
    """What one rank recorded in the steps that are replayed, read once for all of them."""

    def __init__(self, events: Events, rank: int, steps: Sequence[int], timeline: str) -> None:
        self._on_host = timeline == "host"
        chosen = [[*steps]]
        self._calls = events.rows(
            rank,
            "SELECT rank, step, call_id, enqueue_ns, start_ns, end_ns, "
            "coalesce(process_group, '?'), op, bytes, phase, coalesce(stream, 0), "
            "(run, rank, call_id) IN (SELECT (run, rank, call_id) FROM param_bucket) "
            "FROM collective WHERE run = $1 AND rank BETWEEN $2 AND $3 "
            "AND list_contains($4, step) ORDER BY rank, start_ns",
            chosen,
        )
        begins = (*_OPTIMIZERS, *(HOST_WORK if self._on_host else (COPY_IN, COPY_OUT)))
        names = " OR ".join(f"starts_with(name, '{begin}')" for begin in begins)
        self._events = events.rows(
            rank,
            f"WITH {_SPAN} SELECT rank, name, start_ns, start_ns + dur_ns, input_dims, input_types "
            "FROM event LEFT JOIN comm_event USING (run, rank, event_id) JOIN span USING (rank) "
            "WHERE run = $1 AND rank BETWEEN $2 AND $3 AND start_ns >= low AND start_ns < high "
            f"AND (name = '{_GRADIENT}' OR {names}) ORDER BY rank, start_ns",
            chosen,
        )
        self._times = [event[1] for event in self._events]
        self._copied: dict[str, list[tuple[int, int, int]]] = {}
        busy = events.read(
            rank,
            f"WITH {_SPAN} SELECT rank, start_ns, end_ns FROM activity JOIN span USING (rank) "
            "WHERE run = $1 AND rank BETWEEN $2 AND $3 AND kind <> 'comm' "
            "AND end_ns > low AND start_ns < high ORDER BY rank, start_ns",
            chosen,
        )
        self._starts, self._ends = busy["start_ns"], busy["end_ns"]
        self._ended = np.sort(self._ends)
        self._launched = self._begun = self._finished = np.empty(0, dtype=np.int64)
        if not self._on_host:
            kernels = events.read(
                rank,
                f"WITH {_SPAN} SELECT rank, launch_ns, start_ns, end_ns FROM activity "
                "JOIN span USING (rank) WHERE run = $1 AND rank BETWEEN $2 AND $3 "
                f"AND kind = 'compute' AND launch_ns >= low - {_LONGEST_QUEUE_NS} "
                "AND launch_ns < high ORDER BY rank, launch_ns",
                chosen,
            )
            self._launched, self._begun = kernels["launch_ns"], kernels["start_ns"]
            self._finished = kernels["end_ns"]

    def calls(self, step: int, backward: Window) -> list[CallRow]:
        """The calls of a step, with when each was issued."""
        result: list[CallRow] = []
        ended: list[tuple[int, int]] = []  # (end, -index) of those before, sorted
        last_end: dict[int, int] = {}
        last_arrival: dict[int, int] = {}
        for row in (row for row in self._calls if row[0] == step):
            call_id, enqueue, start, end, group, op, size, phase, stream, sums = row[1:]
            arrival = int(enqueue) if self._on_host and enqueue is not None else int(start)
            queued = start - last_end.get(stream, 0) < SHORTEST_GAP_NS
            if not self._on_host and queued and stream in last_arrival:
                # Held back by its stream only: it was ready at some time since the one before.
                arrival = max(last_arrival[stream], min(int(start), int(enqueue or start)))
            held = None
            if not self._on_host and not queued:
                held = _held_by(result, ended, int(start), enqueue)
                if held is not None and self._computed(held.end, int(start)):
                    held = None
            if held is not None:
                arrival = max(held.arrival, last_arrival.get(stream, held.arrival))
            arrival = min(arrival, int(start))
            last_end[stream], last_arrival[stream] = int(end), arrival
            in_backward = phase == "backward" or (
                phase is None and backward[0] <= arrival <= backward[1]
            )
            large = in_backward and (size or 0) > _SCALAR_BYTES
            gradient = op == "all_reduce" and (sums or large)
            insort(ended, (int(end), -len(result)))
            result.append(
                CallRow(
                    int(call_id), arrival, int(start), int(end), str(group), str(op), size,
                    gradient, phase, held.call_id if held is not None else None,
                )
            )  # fmt: skip
        return result

    def asked(self, step: int, op: str) -> list[tuple[int, int]]:
        """When the host asked for the calls of an operation in a step, and which, in order."""
        return sorted(
            (int(enqueue), int(call))
            for of_step, call, enqueue, *_, named, _, _, _, _ in self._calls
            if of_step == step and named == op and enqueue is not None
        )

    def copied(self, window: Window, operator: str) -> list[tuple[int, int, int]]:
        """When the host began an operator, and its kernels begin and end, inside the window."""
        if operator not in self._copied:
            asked = [(at, end + 1) for name, at, end, *_ in self._events if name == operator]
            edges = np.searchsorted(self._launched, np.reshape(asked, (-1, 2))).tolist()
            self._copied[operator] = [
                (int(at), int(self._begun[first]), int(self._finished[first:last].max()))
                for (at, _), (first, last) in zip(asked, edges, strict=True)
                if last > first
            ]
        return [one for one in self._copied[operator] if window[0] <= one[1] < window[1]]

    def _computed(self, begin: int, end: int) -> bool:
        """Whether a kernel ended in between: what starts then more likely waited for that."""
        first, last = np.searchsorted(self._ended, (begin, end), side="right")
        return bool(last > first)

    def busy(self, window: Window) -> Intervals:
        """Everything but communication inside the window."""
        begun = np.searchsorted(self._starts, window[1])
        starts = np.maximum(self._starts[:begun], window[0])
        return Intervals.of(starts, np.minimum(self._ends[:begun], window[1]))

    def nothing_begins(self, after: int, before: int) -> bool:
        """Whether nothing but communication begins strictly between two times."""
        first = np.searchsorted(self._starts, after, side="right")
        return bool(first >= np.searchsorted(self._starts, before))

    def events(self, window: Window, *names: str) -> list[tuple[str, int, int]]:
        """(name, start, end) of the operators whose names begin so, in order."""
        return [
            (str(name), int(start), int(end))
            for name, start, end, _, _ in self._inside(window)
            if name.startswith(names)
        ]

    def gradient_marks(self, window: Window) -> list[tuple[int, int]]:
        """(ready time, bytes) of each gradient of the step, in the order they became ready."""
        marks = []
        for name, _, ready, dims, types in self._inside(window):
            if name != _GRADIENT:
                continue
            size = _tensor_bytes(dims, types)
            if size is None:
                return []
            marks.append((int(ready), size))
        if self._on_host or not marks:
            return marks
        times = self._on_device(window, [ready for ready, _ in marks])
        return [(at, size) for at, (_, size) in zip(times, marks, strict=True)] if times else []

    def optimizer_start(self, window: Window) -> int | None:
        """When the optimizer begins: by then every gradient has been reduced."""
        begun = [start for _, start, _ in self.events(window, *_OPTIMIZERS)[:1]]
        times = begun if self._on_host else self._on_device(window, begun)
        return times[0] if times else None

    def _inside(self, window: Window) -> list[tuple[Any, ...]]:
        first, last = (bisect_left(self._times, at) for at in window)
        return self._events[first:last]

    def _on_device(self, window: Window, host_times: list[int]) -> list[int]:
        """Host times on the device's timeline: the end of the last kernel launched before each."""
        first, last = np.searchsorted(self._launched, (window[0] - _LONGEST_QUEUE_NS, window[1]))
        if first == last:
            return []
        ended = np.maximum.accumulate(self._finished[first:last])
        at = np.searchsorted(self._launched[first:last], host_times, side="right") - 1
        return [int(ended[max(i, 0)]) for i in at]


def _held_by(
    before: Sequence[CallRow], ended: Sequence[tuple[int, int]], start: int, enqueue: int | None
) -> CallRow | None:
    """The call on another stream that a launched one waited for: it starts when that one ends."""
    place = bisect_left(ended, (start, 1)) - 1
    if place < 0 or enqueue is None:
        return None
    end, index = ended[place]
    return before[-index] if start - end < SHORTEST_GAP_NS and enqueue < end else None


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
    return None if width is None else within(math.prod(shape) * width, 0, MOST_BYTES)
