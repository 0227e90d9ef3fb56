"""The stretch of a trace that shows a finding, with our annotations, as JSON for Perfetto.

The events come from the store, so any input format will do; the ranks are put on one clock. The
Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from advisor.errors import AdvisorError
from advisor.findings import Finding, Window
from advisor.report import numbers, summary
from advisor.report.clean import one_line
from advisor.report.crop import aligned_window, clock_offsets
from advisor.report.tables import Row, rows
from advisor.store.store import Store

MAX_EVENTS = 200_000
# Perfetto's content policy lets its page fetch from this port of the loopback address only.
PERFETTO = "https://ui.perfetto.dev"
PORT = 9001

# Process numbers in the written file: ours first, then one per rank.
_OUR_PID = 1
_FIRST_RANK_PID = 10
# Device streams share their rank's process with host threads, whose ids are smaller than this.
_STREAM_TID = 1 << 30
# Events that cross others of their thread get threads of their own, from this number on.
_CROSSING_TID = 1 << 29

# Longest first, so that a cut leaves out what would hardly be seen.
_EVENTS_SQL = """
WITH crop AS (
  SELECT unnest(?::INTEGER[]) AS rank, unnest(?::BIGINT[]) AS s, unnest(?::BIGINT[]) AS e)
SELECT rank, event_id, name, category, class, device, stream, tid, start_ns, dur_ns, collective,
  dtype, in_elements, out_elements, process_group, group_size, seq, bytes, count(*) OVER () AS total
FROM event JOIN crop USING (rank) LEFT JOIN comm_event USING (run, rank, event_id)
WHERE run = ? AND start_ns < e AND start_ns + dur_ns > s
  AND category IS DISTINCT FROM 'Trace'  -- Kineto's span of the whole recording says nothing here
ORDER BY dur_ns DESC, rank, event_id LIMIT ?
"""

_CALLS_SQL = """
WITH crop AS (
  SELECT unnest(?::INTEGER[]) AS rank, unnest(?::BIGINT[]) AS s, unnest(?::BIGINT[]) AS e)
SELECT rank, call_id, op, bytes, process_group, start_ns, end_ns, last_rank, busbw_gbps,
  CASE WHEN wait_ns BETWEEN 0 AND end_ns - start_ns THEN wait_ns END AS wait_ns
FROM collective JOIN crop USING (rank)
WHERE run = ? AND start_ns < e AND end_ns > s ORDER BY start_ns, end_ns LIMIT ?
"""


@dataclass(frozen=True)
class TraceCrop:
    """A trace file's text, and the finding's window in that file's own time (ns)."""

    text: str
    start_ns: int
    end_ns: int
    events: int
    left_out: int


def finding_trace(store: Store, finding: Finding, *, context: float = 1.0) -> TraceCrop:
    """The events of the finding's ranks around its window, ``context`` windows on either side.

    Raises AdvisorError when the finding has no window, or its run holds no events there.
    """
    window = finding.evidence.window
    if window is None or window.end_ns <= window.start_ns:
        raise AdvisorError(
            f"finding '{finding.id}' is not about one stretch of time",
            hint="its numbers are in the report: advisor diagnose PATH --verbose",
        )
    offsets = clock_offsets(store, finding.run)
    ranks = [rank for rank in (window.ranks or sorted(offsets)) if rank in offsets]
    margin = round(context * (window.end_ns - window.start_ns))
    windows = {rank: aligned_window(window, rank, offsets) for rank in ranks}
    crops = {rank: (start - margin, end + margin) for rank, (start, end) in windows.items()}
    starts, ends = ([crop[at] for crop in crops.values()] for at in (0, 1))
    parameters = [[*crops], starts, ends, finding.run, MAX_EVENTS]
    found = rows(store, _EVENTS_SQL, parameters)
    calls = rows(store, _CALLS_SQL, parameters)
    if not found and not calls:
        raise AdvisorError(
            f"the run holds no events in the window of '{finding.id}'",
            hint="give the trace files, not findings.json, and ingest without --lean",
        )
    for row in found:
        _clip(row, *crops[row["rank"]])
    for row in [*found, *calls]:
        row["start_ns"] += offsets[row["rank"]]
    for row in calls:
        row["end_ns"] += offsets[row["rank"]]
    start = windows[ranks[0]][0] + offsets[ranks[0]]
    end = start + window.end_ns - window.start_ns
    origin = min([start, *(row["start_ns"] for row in [*found, *calls])])
    events = [
        *_names(store, finding.run, ranks, found),
        *_thread_events(found, origin),
        *_annotations(finding, window, calls, origin, start, end),
    ]
    total = found[0]["total"] if found else 0
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))
    return TraceCrop(text, start - origin, end - origin, len(found), total - len(found))


def _clip(row: Row, start_ns: int, end_ns: int) -> None:
    """Cut an event at the crop's ends, so that the file is as long as the crop; say how long it is.

    What is nested stays nested.
    """
    start, end = row["start_ns"], row["start_ns"] + (row["dur_ns"] or 0)
    inside = max(start, start_ns), min(end, end_ns)
    row["recorded"] = None
    if inside != (start, end):
        row["recorded"] = f"{numbers.duration(row['dur_ns'])}, cut at the ends of this crop"
        row["start_ns"], row["dur_ns"] = inside[0], inside[1] - inside[0]


def deep_link(trace_url: str, crop: TraceCrop) -> str:
    """The address that makes Perfetto fetch ``trace_url`` and show the finding's window.

    https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
    """
    room = (crop.end_ns - crop.start_ns) // 10
    first, last = max(crop.start_ns - room, 0), crop.end_ns + room
    return f"{PERFETTO}/#!/?url={quote(trace_url, safe='')}&visStart={first}&visEnd={last}"


def _names(store: Store, run: str, ranks: Sequence[int], found: list[Row]) -> Iterator[Any]:
    yield _metadata("process_name", _OUR_PID, 0, {"name": "advisor"})
    yield _metadata("process_sort_index", _OUR_PID, 0, {"sort_index": -1})
    hosts = {
        row["rank"]: row["host"]
        for row in rows(store, "SELECT rank, host FROM rank WHERE run = ?", [run])
    }
    for rank in ranks:
        host = f" on {one_line(hosts[rank])}" if hosts.get(rank) else ""
        pid = _FIRST_RANK_PID + rank
        yield _metadata("process_name", pid, 0, {"name": f"rank {rank}{host}"})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": rank})
    streams = {
        (row["rank"], row["device"], row["stream"]) for row in found if row["stream"] is not None
    }
    for rank, device, stream in sorted(streams, key=str):
        name = f"stream {stream}" + (f" of device {device}" if device is not None else "")
        yield _metadata("thread_name", _FIRST_RANK_PID + rank, _STREAM_TID + stream, {"name": name})


def _thread_events(found: list[Row], origin: int) -> Iterator[dict[str, Any]]:
    """Slices of one thread may nest but not cross: Perfetto drops the later of two that do.

    Annotations cross operators where a recorder marks phases in hooks.
    """
    threads: dict[tuple[int, int], list[list[int]]] = {}
    crossing: dict[tuple[int, int, int], int] = {}
    for row in sorted(found, key=lambda row: (row["start_ns"], -(row["dur_ns"] or 0))):
        thread = row["rank"], _tid(row)
        start, end = row["start_ns"], row["start_ns"] + (row["dur_ns"] or 0)
        lanes = threads.setdefault(thread, [])
        number = 0
        while number < len(lanes) and not _nests(lanes[number], start, end):
            number += 1
        if number == len(lanes):
            lanes.append([])
        lanes[number].append(end)
        tid = thread[1]
        if number:
            key = (*thread, number)
            if key not in crossing:
                crossing[key] = _CROSSING_TID + len(crossing)
                name = {"name": f"crossing {thread[1]}"}
                yield _metadata("thread_name", _FIRST_RANK_PID + row["rank"], crossing[key], name)
            tid = crossing[key]
        yield _event(row, tid, origin)


def _nests(open_ends: list[int], start: int, end: int) -> bool:
    """Whether a slice fits under those still open; ends that have passed are taken off."""
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _tid(row: Row) -> int:
    stream = row["stream"]
    return _STREAM_TID + stream if stream is not None else row["tid"] or 0


def _event(row: Row, tid: int, origin: int) -> dict[str, Any]:
    keys = (
        "collective", "dtype", "in_elements", "out_elements", "process_group", "group_size", "seq",
        "bytes", "recorded",
    )  # fmt: skip
    return _slice(
        row["name"] or "unnamed",
        row["category"] or row["class"] or "event",
        _FIRST_RANK_PID + row["rank"],
        tid,
        row["start_ns"] - origin,
        row["dur_ns"] or 0,
        {key: row[key] for key in keys if row[key] is not None},
    )


def _annotations(
    finding: Finding, window: Window, calls: list[Row], origin: int, start: int, end: int
) -> Iterator[dict[str, Any]]:
    """Our process: the finding over its window, and per rank who waited for whom."""
    yield _metadata("thread_name", _OUR_PID, 1, {"name": "finding"})
    about = {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "gives": summary.gain(finding),
        "what": summary.words(finding),
        "fix": " / ".join(finding.fix),
    }
    yield _slice(finding.title, "finding", _OUR_PID, 1, start - origin, end - start, about)
    marked = set(window.call_ids)
    for lane, ((rank, number), placed) in enumerate(_lanes(calls), 2):
        name = f"rank {rank}: waiting and transfer" + (f" ({number})" if number > 1 else "")
        yield _metadata("thread_name", _OUR_PID, lane, {"name": name})
        for row in placed:
            wait = row["wait_ns"] or 0
            star = "* " if row["call_id"] in marked else ""
            size = f" {numbers.traffic(row['bytes'])}" if row["bytes"] else ""
            detail = {
                "call": row["call_id"],
                "group": row["process_group"],
                "busbw": numbers.bandwidth(row["busbw_gbps"]),
            }
            at = row["start_ns"] - origin
            if wait:
                whom = f"waits for rank {row['last_rank']}" if row["last_rank"] is not None else ""
                title = f"{star}{row['op']} {whom or 'waits'}"
                yield _slice(title, "wait", _OUR_PID, lane, at, wait, detail)
            title = f"{star}{row['op']}{size}"
            left = row["end_ns"] - row["start_ns"] - wait
            yield _slice(title, "transfer", _OUR_PID, lane, at + wait, left, detail)


def _lanes(calls: Iterable[Row]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Calls per rank on as many lanes as overlap: Perfetto drops slices that cross on one."""
    lanes: dict[tuple[int, int], list[Row]] = {}
    for row in calls:
        number = 1
        while (lane := lanes.get((row["rank"], number))) and lane[-1]["end_ns"] > row["start_ns"]:
            number += 1
        lanes.setdefault((row["rank"], number), []).append(row)
    return sorted(lanes.items())


def _slice(
    name: str, category: str, pid: int, tid: int, at_ns: int, dur_ns: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": one_line(name),
        "cat": one_line(category),
        "pid": pid,
        "tid": tid,
        # Microseconds; relative to the crop they are small enough for a double to be exact.
        "ts": at_ns / 1000,
        "dur": dur_ns / 1000,
        "args": args,
    }


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
