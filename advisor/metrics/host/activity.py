"""What the host did while the device had nothing to do (METRICS section 3, idle)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING, read

# torch.utils.data names its iterator's spans so; '## data ##' is our own recordings' range.
DATA_LOADING = r"^enumerate\(DataLoader\)#|^## data ##$|DataLoaderIter\.__next__"
# Kinds of host activity, the most telling first. Names are those of the CUDA and HIP runtimes,
# of torch's profiler and of CPython's gc callbacks as profilers record them.
_KINDS: tuple[tuple[str, str], ...] = (
    ("garbage-collection", r"(?i)garbage.?collect|^gc(\.collect|:|$)|gc_callback"),
    ("data-loading", DATA_LOADING),
    ("allocator", r"^(cuda|hip)(Malloc|Free|MemCreate|MemMap|MallocHost|HostAlloc|FreeHost)\b"
                  r"|^cuMem(Create|Map|Unmap|Release)"),
    ("synchronisation", r"^(cuda|hip)(Device|Stream|Event)Synchronize|^cu(Ctx|Stream|Event)Synch"
                        r"|^aten::(item|_local_scalar_dense|is_nonzero)$"),
    ("blocking-copy", r"^(cuda|hip)(Memcpy|Memset)$|^(cuda|hip)Memcpy(DtoH|HtoD)$"),
)  # fmt: skip
TELLING = tuple(pattern for _, pattern in _KINDS)
"""Names of host events that explain why a device waits."""
# Gaps under this are not worth a row; they are in the breakdown's idle columns all the same.
_SHORTEST_GAP_NS = 50_000
_MOST_GAPS = 20_000

# A pause that nothing above names, by the outermost Python function that fills it (at least half of
# it, and at most a tenth of it beyond its ends), where the recording has stacks.
NAME_PAUSES = """
UPDATE host_gap SET name = code.name FROM (
  SELECT g.rank, g.start_ns, arg_max(e.name, e.dur_ns) AS name
  FROM host_gap g JOIN event e ON e.run = g.run AND e.rank = g.rank
    AND e.start_ns >= g.start_ns - g.idle_ns // 10
    AND e.start_ns + e.dur_ns <= g.end_ns + g.idle_ns // 10 AND e.dur_ns >= g.idle_ns // 2
  WHERE g.run = $run AND g.kind = 'other' AND g.name IS NULL AND g.idle_ns >= 5000000
    AND e.class = 'python' AND contains(e.name, '.py(')
  GROUP BY g.rank, g.start_ns) code
WHERE host_gap.run = $run AND host_gap.rank = code.rank AND host_gap.start_ns = code.start_ns
  AND host_gap.kind = 'other'
"""


@dataclass(frozen=True)
class HostActivity:
    """Host spans that explain why a device waits; sorted by start."""

    kind: Int64s
    name: Any
    start: Int64s
    end: Int64s
    event_id: Int64s

    def union(self, kind: str) -> Intervals:
        """When the host did this."""
        chosen = self.kind == [name for name, _ in _KINDS].index(kind)
        return Intervals.of(self.start[chosen], self.end[chosen])


def host_activity(con: Any, run: str, rank: int) -> HostActivity:
    """Spans of one rank's host threads that have a kind."""
    cases = " ".join(
        f"WHEN regexp_matches(name, ${index + 3}) THEN {index}" for index in range(len(_KINDS))
    )
    # The patterns are tried on each distinct name, of which there are few, not on each event.
    found = read(
        con,
        f"""
        WITH name AS MATERIALIZED (
          SELECT DISTINCT name FROM event WHERE run = $1 AND rank = $2 AND device IS NULL),
        told AS MATERIALIZED (SELECT name, CASE {cases} END AS kind FROM name)
        SELECT kind, name, start_ns, start_ns + dur_ns AS end_ns, event_id
        FROM event JOIN told USING (name)
        WHERE run = $1 AND rank = $2 AND device IS NULL AND start_ns IS NOT NULL AND dur_ns > 0
          AND class IN ('annotation', 'cpu_op', 'runtime', 'python') AND kind IS NOT NULL
        ORDER BY start_ns, event_id
        """,
        [run, rank, *(pattern for _, pattern in _KINDS)],
    )
    return HostActivity(
        found["kind"].astype(np.int64),
        found["name"],
        found["start_ns"],
        found["end_ns"],
        found["event_id"],
    )


@dataclass(frozen=True)
class IdleSplit:
    """A device's idle time between events by what it waited for: disjoint, without remainder."""

    host: Intervals
    launch_gap: Intervals
    sync: Intervals


def split_idle(line: Timeline, occupancy: Occupancy, activity: HostActivity) -> IdleSplit | None:
    """Why a GPU was idle; None on a CPU.

    The event that ends a gap tells: launched after the gap began, the host was late; launched
    before, it was queued. Where the host sat in a synchronising call it is sync.
    """
    if not line.on_device or len(occupancy.busy) < 2:
        return None
    gaps_start, gaps_end = occupancy.busy.end[:-1], occupancy.busy.start[1:]
    next_event = np.searchsorted(line.start, gaps_end, side="left")
    launch = line.launch[np.minimum(next_event, len(line) - 1)]
    known = launch != MISSING
    # The way from the launch to the device is part of what a late launch costs; what takes longer
    # than usual waits for something else.
    late = known & (launch > gaps_start)
    usual = int(np.median((gaps_end - launch)[late])) if late.any() else 0
    until = np.where(late, np.minimum(launch + usual, gaps_end), gaps_start)
    gaps = Intervals.of(gaps_start, gaps_end)
    sync = gaps & activity.union("synchronisation")
    host = Intervals.of(gaps_start, until) - sync
    return IdleSplit(host=host, launch_gap=(gaps - sync) - host, sync=sync)


def gap_rows(
    run: str, line: Timeline, occupancy: Occupancy, steps: Steps, activity: HostActivity
) -> list[dict[str, Any]]:
    """Rows of ``host_gap``: gaps between device events in which the host did something telling.

    On a CPU a gap without operators or communication is named by the loader alone.
    """
    busy = occupancy.busy
    if len(busy) < 2:
        return []
    low, high = busy.end[:-1], busy.start[1:]
    long = np.flatnonzero(high - low >= _SHORTEST_GAP_NS)
    if len(long) > _MOST_GAPS:
        long = np.sort(long[np.argsort(low[long] - high[long], kind="stable")[:_MOST_GAPS]])
    low, high = low[long], high[long]
    next_event = np.minimum(np.searchsorted(line.start, high, side="left"), len(line) - 1)
    launch = line.launch[next_event]
    number = steps.by_window(low)
    # The k-th kind's overlap with each gap, and the span of it that overlaps most.
    overlap = np.stack([activity.union(kind).covered(low, high) for kind, _ in _KINDS])
    best = np.argmax(overlap * 2 >= high - low, axis=0)
    rows = []
    for index in range(len(low)):
        kind = int(best[index])
        found = overlap[kind, index] * 2 >= high[index] - low[index]
        name, event_id = None, None
        if found:
            label = _KINDS[kind][0]
            name, event_id = _largest(activity, kind, int(low[index]), int(high[index]))
        elif not line.on_device:
            label = "other"
        else:
            late = launch[index] != MISSING and launch[index] > low[index]
            graph = line.in_graph is not None and bool(line.in_graph[next_event[index]])
            label = "launch" if late else "graph" if graph else "other"
        rows.append(
            {
                "run": run,
                "rank": line.rank,
                "step": int(number[index]),
                "kind": label,
                "start_ns": int(low[index]),
                "end_ns": int(high[index]),
                "idle_ns": int(high[index] - low[index]),
                "name": name,
                "event_id": event_id,
            }
        )
    return rows


def _largest(
    activity: HostActivity, kind: int, low: int, high: int
) -> tuple[str | None, int | None]:
    own = np.flatnonzero((activity.kind == kind) & (activity.start < high) & (activity.end > low))
    if not len(own):
        return None, None
    shared = np.minimum(activity.end[own], high) - np.maximum(activity.start[own], low)
    place = int(own[np.argmax(shared)])
    return str(activity.name[place]), int(activity.event_id[place])
