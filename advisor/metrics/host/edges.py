"""What a device waits for before its work begins and after it ends: none of it is a step's.

The profiler starts and stops, a CUDA graph is captured, the first request arrives. Such stretches
are shown as what they are, and no rule promises to win them back.
"""

from typing import Any

import numpy as np

from advisor.metrics.host.activity import KINDS, HostActivity
from advisor.metrics.host.stretches import enqueued
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.steps.whole import WHOLE_TRACE, main_work
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING
from advisor.store.events import Events

# What the host does in such a stretch tells what it is for. Names are those of the CUDA and HIP
# runtimes as Kineto and CUPTI record them; the first kind that fills half of the stretch counts,
# a capture in any part of it.
_CAPTURE = r"^(cuda|hip)(StreamBeginCapture|StreamEndCapture|Graph(Instantiate|Create|AddK))"
_PATTERN = dict(KINDS)
_STOPS = _PATTERN["synchronisation"]
_LOADS = f"{_PATTERN['loading']}|{_PATTERN['allocator']}"
_CALLS = """
    SELECT rank, CASE WHEN regexp_matches(name, $4) THEN 0 WHEN regexp_matches(name, $5) THEN 1
      ELSE 2 END, start_ns, start_ns + dur_ns
    FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'runtime'
      AND start_ns IS NOT NULL AND dur_ns IS NOT NULL
      AND (regexp_matches(name, $4) OR regexp_matches(name, $5) OR regexp_matches(name, $6))
    ORDER BY rank
"""
_SHORTEST_NS = 1_000_000
_SHARE = 0.02


def edge_rows(
    events: Events, line: Timeline, steps: Steps, activity: HostActivity
) -> list[dict[str, Any]]:
    """Rows of ``edge_gap`` of one device: stretches of 2 % of the recording or more, and 1 ms."""
    whole = [(s.start, s.end) for s in steps.steps if s.source == WHOLE_TRACE]
    work = next(iter(whole), None) or main_work(line)
    if not line.on_device or work is None:
        return []
    seen = events.rows(
        line.rank,
        "SELECT rank, min(start_ns), max(start_ns + dur_ns) FROM event "
        "WHERE run = $1 AND rank BETWEEN $2 AND $3 "
        "AND class IN ('cpu_op', 'runtime', 'annotation') AND device IS NULL AND dur_ns > 0 "
        "GROUP BY rank ORDER BY rank",
    )
    low, high = seen[0] if seen else (None, None)
    first, last = work
    hosts = [s for s in steps.steps if s.host_start is not None and s.host_end is not None]
    begin = min([first, *(s.host_start for s in hosts if s.host_start), *([low] if low else [])])
    end = max([last, int(line.end.max()), *([high] if high else [])])
    host_end = max((s.host_end for s in hosts if s.host_end), default=None)
    found = []
    for edge, start, stop in (("leading", begin, first), ("trailing", last, end)):
        if stop - start < max(_SHORTEST_NS, _SHARE * (end - begin)):
            continue
        kind = _kind(events, line.rank, edge, start, stop)
        if kind == "before-work":
            kind = _asked(line, start, stop, activity.union("loading"))
        loads_ns = activity.union("data-loading").within(start, stop)
        if kind == "before-work" and 2 * loads_ns >= stop - start:
            kind = "data-loading"
        found.append((edge, kind, start, stop))
    if host_end is not None and last > host_end:
        # What is still queued when the last step ends: the profiler waits for it, nobody else does.
        stopped = _kind(events, line.rank, "trailing", host_end, last)
        if stopped == "profiler-stop" and last - host_end >= max(
            _SHORTEST_NS, _SHARE * (end - begin)
        ):
            found.append(("trailing", stopped, host_end, last))
    return [
        {
            "run": events.run,
            "rank": line.rank,
            "edge": edge,
            "kind": kind,
            "start_ns": start,
            "end_ns": stop,
        }
        for edge, kind, start, stop in found
    ]


def _asked(line: Timeline, start: int, stop: int, loading: Intervals) -> str:
    """Whether the work that begins at ``stop`` was asked for in the first half of the stretch. Then
    the device did what was not recorded, and its host was ahead, unless the call that asked loaded
    for the rest of it."""
    first = int(np.searchsorted(line.start, stop))
    asked = line.launch[first : first + 1]
    if not len(asked) or asked[0] == MISSING or 2 * asked[0] > start + stop:
        return "before-work"
    handed = enqueued(asked, line.start[first : first + 1], loading)
    return "queued" if 2 * handed[0] <= start + stop else "loading"


def _kind(events: Events, rank: int, edge: str, start: int, stop: int) -> str:
    calls = events.rows(rank, _CALLS, [_CAPTURE, _STOPS, _LOADS])
    inside = [
        (kind, min(end, stop) - max(begin, start))
        for kind, begin, end in calls
        if begin < stop and end > start
    ]
    if any(kind == 0 for kind, _ in inside):
        return "graph-capture"
    if 2 * sum(ns for kind, ns in inside if kind == 1) >= stop - start:
        return "profiler-stop" if edge == "trailing" else "synchronisation"
    if 2 * sum(ns for kind, ns in inside if kind == 2) >= stop - start:
        return "loading"
    return "before-work" if edge == "leading" else "after-work"
