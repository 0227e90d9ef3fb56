"""Copies between host and devices, and on a device, that no compute hides (METRICS section 3)."""

import re
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.steps.annotated import Steps
from advisor.metrics.steps.whole import WHOLE_TRACE
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.contention import exclusive_ns
from advisor.metrics.timeline.intervals import Bools, Int64s
from advisor.metrics.timeline.timeline import COMM, COMPUTE, MEMORY, Timeline
from advisor.store.columns import MISSING
from advisor.store.events import Events

TINY_BYTES = 64 * 1024
"""Copies of no more are all latency: a launch costs more than their bytes."""
_LEAST_SHARE = (
    0.01  # of the steps that copies on the device take: who asks for fewer is not looked up
)
_INSIDE = "device-to-device"
# Kineto: "Memcpy HtoD (Pageable -> Device)"; Nsight Systems' exports are read into the same words;
# HIP: "CopyHostToDevice", "hipMemcpyHtoD".
_KINDS = (
    ("host-to-device", re.compile(r"HtoD|HostToDevice|HtoA")),
    ("device-to-host", re.compile(r"DtoH|DeviceToHost|AtoH")),
    ("peer-to-peer", re.compile(r"PtoP|PeerToPeer")),
    (_INSIDE, re.compile(r"DtoD|DeviceToDevice|AtoD|DtoA|AtoA")),
    ("fill", re.compile(r"[Mm]emset|FillBuffer")),
)


def copy_rows(
    events: Events, line: Timeline, occupancy: Occupancy, steps: Steps
) -> list[dict[str, Any]]:
    """Rows of ``memory_copy`` of one device: per step, direction and kind of host memory.

    Exposed time is shared between copies that run at once, so that it adds up.
    """
    chosen = np.flatnonzero(line.kind == MEMORY)
    if not line.on_device or not len(chosen):
        return []
    found = events.read(
        line.rank,
        "SELECT rank, event_id, name, bytes FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3 "
        "AND class = 'memory' AND device IS NOT NULL ORDER BY rank, event_id",
    )
    place = np.searchsorted(found["event_id"], line.event_id[chosen])
    names, sizes = found["name"][place], np.maximum(found["bytes"][place], 0)
    start, end = line.start[chosen], line.end[chosen]
    exposed = exclusive_ns(start, end, within=occupancy.exposed_memory)
    step = steps.by_window(start)
    at_edge = _at_edge(line, start, end, steps)
    described = {name: _describe(str(name)) for name in set(names.tolist())}
    kinds = np.array([described[name] for name in names.tolist()], dtype=object)
    inside = (kinds[:, 0] == _INSIDE) & (step >= 0)
    # Reading all operators of a rank takes longer than all else here.
    spans_ns = sum(one.end - one.start for one in steps.steps)
    is_worth = float(exposed[inside].sum()) >= _LEAST_SHARE * spans_ns
    askers = _askers(events, line, chosen) if is_worth else np.full(len(chosen), "", dtype=object)
    rows = []
    for number in np.unique(step[step >= 0]):
        for kind, memory in sorted({tuple(one) for one in kinds[step == number].tolist()}):
            own = (step == number) & (kinds[:, 0] == kind) & (kinds[:, 1] == memory)
            rows.append(
                {
                    "run": events.run,
                    "rank": line.rank,
                    "step": int(number),
                    "direction": kind,
                    "memory": memory,
                    "copies": int(own.sum()),
                    "tiny": int((sizes[own] <= TINY_BYTES).sum()),
                    "bytes": int(sizes[own].sum()),
                    "largest_bytes": int(sizes[own].max()),
                    "copy_ns": int((end - start)[own].sum()),
                    "exposed_ns": round(float(exposed[own].sum())),
                    "edge_ns": round(float(exposed[own & at_edge].sum())),
                    "launched_by": _mostly(askers[own], sizes[own]) if kind == _INSIDE else None,
                }
            )
    return rows


def _askers(events: Events, line: Timeline, chosen: Int64s) -> NDArray[np.object_]:
    """The outermost operator in which each copy was launched; '' where none was recorded."""
    launch, thread = line.launch[chosen], line.thread[chosen]
    found = events.read(
        line.rank,
        "SELECT rank, tid, start_ns, start_ns + dur_ns AS end_ns, name FROM event "
        "WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'cpu_op' AND device IS NULL "
        "AND dur_ns > 0 ORDER BY rank, start_ns, end_ns DESC",
    )
    names = np.full(len(chosen), "", dtype=object)
    for one in np.unique(thread[launch != MISSING]):
        own, ops = np.flatnonzero(thread == one), np.flatnonzero(found["tid"] == one)
        begin, end = found["start_ns"][ops], found["end_ns"][ops]
        outer = begin >= np.concatenate([begin[:1], np.maximum.accumulate(end)[:-1]])
        ops, at = ops[outer], begin[outer].searchsorted(launch[own], side="right") - 1
        held = (at >= 0) & (launch[own] < end[outer][at]) if len(ops) else np.zeros(len(own), bool)
        names[own[held]] = found["name"][ops[at[held]]]
    return names


def _mostly(names: NDArray[np.object_], sizes: Int64s) -> str | None:
    """The operator that copies half of the bytes or more, without autograd's frame around it."""
    each = Counter[str]()
    for name, size in zip(names.tolist(), sizes.tolist(), strict=True):
        each[str(name).removeprefix("autograd::engine::evaluate_function: ")] += size
    name, most = each.most_common(1)[0]
    return name if name and 2 * most >= each.total() else None


def _at_edge(line: Timeline, start: Int64s, end: Int64s, steps: Steps) -> Bools:
    """Which copies end before the first kernel, or begin after the last, of a trace without steps.

    A program that runs once brings its data in and its result out like that.
    """
    others = np.isin(line.kind, (COMPUTE, COMM))  # waits are events of a device, too
    if not others.any() or any(step.source != WHOLE_TRACE for step in steps.steps):
        return np.zeros(len(start), dtype=bool)
    edges: Bools = (end <= line.start[others].min()) | (start >= line.end[others].max())
    return edges


def _describe(name: str) -> tuple[str, str]:
    """Direction and kind of the host's memory: 'pageable', 'pinned', 'managed' or 'unknown'."""
    kind = next((kind for kind, pattern in _KINDS if pattern.search(name)), "unknown")
    memory = next((m for m in ("pageable", "managed", "pinned") if m in name.lower()), "unknown")
    return kind, memory
