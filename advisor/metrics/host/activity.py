"""What the host does that explains why a device waits: spans of its threads, by kind."""

import re
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.store.events import Events
from advisor.vocabulary.operations import DATA_LOADING

# Kinds of host activity, the most telling first. Names are those of the CUDA and HIP runtimes, of
# CUDA's driver API (which JAX, TensorFlow, Julia and OpenACC call: "Memory Management" there), of
# torch's profiler and of CPython's gc callbacks as profilers record them.
KINDS: tuple[tuple[str, str], ...] = (
    ("garbage-collection", r"(?i)garbage.?collect|^gc(\.collect|:|$)|gc_callback"),
    ("data-loading", DATA_LOADING),
    # torch/csrc/distributed/c10d/reducer.cpp, behind find_unused_parameters.
    ("unused-parameter-scan", r"search_unused_parameters"),
    ("allocator", r"^(cuda|hip)(Malloc(Managed|Pitch|Host|Async|FromPoolAsync)?|MemCreate|MemMap"
                  r"|Free(Host|Async)?)\b|^cuMem(Create|Map|Unmap|Release|Free(Host|Async)?"
                  r"|Alloc(Managed|Pitch|Host|Async|FromPoolAsync)?)\b"
                  r"|^(cuda|hip|cuMem)Host(Alloc|Malloc|Free|Register|Unregister)\b"),
    ("synchronisation", r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize"
                        r"|^cu(Ctx|Stream|Event)Synch"
                        r"|^hipMemcpyWithStream$"  # copies, then waits, in one call
                        r"|^aten::(item|_local_scalar_dense|is_nonzero)$"),
    ("blocking-copy", r"^(cuda|hip)(Memcpy|Memset)$|^(cu|cuda|hip)Memcpy(DtoH|HtoD)$"),
    # The span from one to the other: what is launched between them runs later.
    ("graph-capture", r"^(cuda|hip)Stream(Begin|End)Capture"),
    # Any other call of the runtime that takes so long (_FIRST_USE).
    ("loading", r"^cu(da)?(Module|Library)(Load|Get)|^hipModuleLoad"),
)  # fmt: skip
_FREES = re.compile(r"(cuda|hip|cuMem)(Host)?Free(Host)?\b|cuMem(Unmap|Release)")
TELLING = tuple(pattern for _, pattern in KINDS)
"""Names of host events that explain why a device waits."""
_NUMBER = {name: number for number, (name, _) in enumerate(KINDS)}
OWN_WORK = len(KINDS)
"""The kind of every other span of the host, from this long on."""
OWN_WORK_NS = 5_000_000
QUIET = OWN_WORK + 1
"""The kind of a range that a program names, in which none of its threads asks the device for work:
the host does something else in it, however short it is."""
# Copies that are asynchronous by name and returned only once the device had done them: to and from
# pageable memory.
_WAITING_COPIES = f"""
SELECT rank, {_NUMBER["blocking-copy"]}, c.name, c.tid, c.start_ns,
  c.start_ns + c.dur_ns, c.event_id
FROM event c JOIN event d USING (run, rank, correlation)
WHERE run = $1 AND rank BETWEEN $2 AND $3 AND correlation > 0
  AND c.class = 'runtime' AND c.dur_ns >= 20000
  AND regexp_matches(c.name, '^(cu|cuda|hip)Memcpy(HtoD|DtoH)?Async') AND d.class = 'memory'
  AND d.device IS NOT NULL AND d.start_ns + d.dur_ns <= c.start_ns + c.dur_ns
"""
# torch waits for the stream behind each copy to the device that it was not told to leave alone
# (at::native::copy_kernel_cuda): nothing is read there, and memory that is pinned needs no wait. On
# AMD it does both in one call (c10/cuda/CUDAFunctions.h, memcpy_and_sync).
_UPLOADS = """
SELECT event_id FROM (
  SELECT rank, event_id, CASE WHEN name = 'hipMemcpyWithStream' THEN correlation
    WHEN contains(name, 'StreamSynchronize')
      AND regexp_matches(lag(name) OVER own, 'Memcpy(HtoD)?Async')
      THEN lag(correlation) OVER own END AS copied
  FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'runtime' AND device IS NULL
    AND regexp_matches(name, 'StreamSynchronize|Memcpy|Launch')
  WINDOW own AS (PARTITION BY rank, tid ORDER BY start_ns))
WHERE (rank, copied) IN (SELECT (rank, correlation) FROM event
    WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'memory' AND device IS NOT NULL
      AND regexp_matches(name, 'HtoD|HostToDevice'))
"""
# The first use of a kernel, a library or a stream loads it within the call: CUDA loads modules
# lazily, and the first call of all makes the context (CUDA C++ Programming Guide, "Lazy Loading").
_FIRST_USE = f"""
SELECT rank, {_NUMBER["loading"]}, name, tid, start_ns, start_ns + dur_ns, event_id FROM event
WHERE run = $1 AND rank BETWEEN $2 AND $3
  AND class = 'runtime' AND device IS NULL AND dur_ns >= 2000000
  AND NOT regexp_matches(name, '{"|".join(p for n, p in KINDS if n != "loading")}|Memcpy|Wait')
"""
# A host that asks an event again and again, and sleeps in between, waits for the device: c10d's
# wait() for 10 ms, 1 ms later on, with NCCL_BLOCKING_WAIT or a timeout of its own
# (ProcessGroupNCCL.cpp, kSynchronizeBusyWaitMillis). torch's allocators ask without a pause: in
# recorded jobs such calls stand at most 0.36 ms apart on threads that launch.
_POLLS = f"""
SELECT rank, {_NUMBER["synchronisation"]}, name, tid, start_ns, again_ns, event_id
FROM (
  SELECT rank, name, tid, start_ns, event_id, lead(start_ns) OVER (
    PARTITION BY rank, tid ORDER BY start_ns) AS again_ns
  FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'runtime' AND device IS NULL
    AND contains(name, 'EventQuery')) q
WHERE again_ns - start_ns BETWEEN 900000 AND 20000000 AND NOT EXISTS (
  FROM event e WHERE e.run = $1 AND e.rank = q.rank AND e.tid = q.tid
    AND e.class IN ('runtime', 'cpu_op') AND e.start_ns > q.start_ns AND e.start_ns < again_ns)
"""
_QUIET_RANGES = f"""
SELECT r.rank, {QUIET}, r.name, r.tid, r.start_ns, r.end_ns, r.event_id
FROM (
  SELECT rank, name, tid, start_ns, start_ns + dur_ns AS end_ns, event_id
  FROM event JOIN told USING (name)
  WHERE run = $1 AND rank BETWEEN $2 AND $3 AND kind IS NULL AND class = 'annotation'
    AND device IS NULL AND dur_ns >= 200000 AND NOT starts_with(name, 'ProfilerStep#')) r
ASOF LEFT JOIN (
  SELECT rank, start_ns FROM event
  WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'runtime' AND device IS NULL
    AND regexp_matches(name, 'Launch|Memcpy|Memset')) asked
  ON asked.rank = r.rank AND r.start_ns <= asked.start_ns
WHERE coalesce(asked.start_ns >= r.end_ns, true)
"""
_CAPTURES = f"""
SELECT rank, {_NUMBER["graph-capture"]}, b.name, b.tid, b.start_ns, min(e.start_ns + e.dur_ns),
  b.event_id
FROM event b JOIN event e USING (run, rank, tid)
WHERE run = $1 AND rank BETWEEN $2 AND $3 AND b.class = 'runtime' AND e.class = 'runtime'
  AND regexp_matches(b.name, 'StreamBeginCapture') AND regexp_matches(e.name, 'StreamEndCapture')
  AND e.start_ns >= b.start_ns
GROUP BY ALL
"""


class HostActivity(NamedTuple):
    """Host spans that explain why a device waits; sorted by start. ``kind`` indexes KINDS, or is
    OWN_WORK or QUIET."""

    kind: Int64s
    thread: Int64s
    name: Any
    start: Int64s
    end: Int64s
    event_id: Int64s
    queue_full: Intervals
    """When a launch waited for room in the device's queue."""

    def union(self, kind: str) -> Intervals:
        """When the host did this."""
        chosen = self.kind == _NUMBER[kind]
        return Intervals.of(self.start[chosen], self.end[chosen])

    def freeing(self, launches: Int64s) -> Intervals:
        """When the host freed device memory, which returns once all queued work is done.

        Paszke et al., "PyTorch" (NeurIPS 2019), section 5.3, on cudaFree. Where a cudaMalloc failed
        torch's allocator waits before it frees (release_cached_blocks), in cudaEventSynchronize,
        which Kineto did not record from #543 (2022) to #808 (2023). ``launches``: times, in order.
        """
        rows = np.flatnonzero(self.kind == _NUMBER["allocator"])
        rows = rows[np.lexsort((self.start[rows], self.thread[rows]))]
        begin, before = self.start[rows], self.end[rows[:-1]]
        same = self.thread[rows[1:]] == self.thread[rows[:-1]]
        same &= np.searchsorted(launches, begin[1:]) == np.searchsorted(launches, before)
        begin[1:][same] = before[same]
        frees = np.array([bool(_FREES.match(name)) for name in self.name[rows]], dtype=bool)
        return Intervals.of(begin[frees], self.end[rows[frees]])


def host_activity(events: Events, rank: int) -> HostActivity:
    """Spans of one rank's host threads that have a kind, and long ones that have none."""
    cases = " ".join(
        f"WHEN regexp_matches(name, ${index + 4}) THEN {index}" for index in range(len(KINDS))
    )
    # The patterns are tried on each distinct name, of which there are few, not on each event.
    found = events.read(
        rank,
        f"""
        WITH name AS MATERIALIZED (
          SELECT DISTINCT name FROM event
          WHERE run = $1 AND rank BETWEEN $2 AND $3 AND device IS NULL),
        told AS MATERIALIZED (SELECT name, CASE {cases} END AS kind FROM name)
        SELECT rank, CASE WHEN event_id IN ({_UPLOADS}) THEN {_NUMBER["blocking-copy"]}
          ELSE coalesce(kind, {OWN_WORK}) END AS kind,
          name, tid, start_ns, start_ns + dur_ns AS end_ns, event_id
        FROM event JOIN told USING (name)
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND device IS NULL
          AND start_ns IS NOT NULL AND dur_ns > 0
          AND (kind IS NOT NULL AND class IN ('annotation', 'cpu_op', 'runtime', 'python')
            OR class IN ('annotation', 'cpu_op') AND dur_ns >= {OWN_WORK_NS}
              AND NOT starts_with(name, 'ProfilerStep#'))
        UNION ALL {_WAITING_COPIES}
        UNION ALL {_FIRST_USE}
        UNION ALL {_POLLS}
        UNION ALL {_QUIET_RANGES}
        UNION ALL {_CAPTURES}
        ORDER BY rank, start_ns, event_id
        """,
        [*(pattern for _, pattern in KINDS)],
    )
    return HostActivity(
        found["kind"].astype(np.int64),
        found["tid"].astype(np.int64),
        found["name"],
        found["start_ns"],
        found["end_ns"],
        found["event_id"],
        _queue_full(events, rank),
    )


def _queue_full(events: Events, rank: int) -> Intervals:
    """Launches that took many times the usual, and long enough to be no hiccup of the host."""
    found = events.read(
        rank,
        """
        WITH launch AS (
          SELECT rank, start_ns, dur_ns, median(dur_ns) OVER (PARTITION BY rank) AS usual_ns
          FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3
            AND class = 'runtime' AND contains(name, 'LaunchKernel'))
        SELECT rank, start_ns, start_ns + dur_ns AS end_ns FROM launch
        WHERE dur_ns >= 200000 AND dur_ns >= 10 * usual_ns ORDER BY rank
        """,
    )
    return Intervals.of(found["start_ns"], found["end_ns"])


def largest(
    activity: HostActivity, kind: int, low: int, high: int
) -> tuple[str | None, int | None, int | None]:
    """Name, event and start of the span of a kind that overlaps most with a stretch."""
    own = np.flatnonzero((activity.kind == kind) & (activity.start < high) & (activity.end > low))
    if not len(own):
        return None, None, None
    shared = np.minimum(activity.end[own], high) - np.maximum(activity.start[own], low)
    place = int(own[np.argmax(shared)])
    return str(activity.name[place]), int(activity.event_id[place]), int(activity.start[place])
