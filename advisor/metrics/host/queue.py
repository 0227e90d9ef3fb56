"""Which stream computes, and whether all streams of a device share one hardware queue.

With CUDA_DEVICE_MAX_CONNECTIONS=1 the device starts work in the order in which the host launched
it, whatever its stream: work whose own stream is free starts with the kernel launched before it,
while that one runs. What waits for an event starts after the end of a kernel instead; with several
queues, work overtakes what was launched before. Behind communication compute counts only where it
starts as the call ends and its stream was told to wait for nothing: of gathers, layers wait for one
as the next begins.
"""

from typing import Any

import numpy as np

from advisor.metrics.timeline.intervals import Bools, Int64s
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline
from advisor.store.columns import MISSING
from advisor.store.events import Events

# Two kernels start together when the queue's head moves: within a few launches' time.
_TOGETHER_NS = 20_000
# Shorter waits, and kernels too short to tell their start from their end, say nothing.
_SHORTEST_NS = 2 * _TOGETHER_NS


def stream_waits(events: Events, rank: int) -> Int64s:
    """When the host told a stream to wait for an event of another one, in order."""
    found = events.read(
        rank,
        """
        SELECT rank, start_ns FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3
          AND class = 'runtime' AND device IS NULL AND start_ns IS NOT NULL
          AND contains(name, 'StreamWaitEvent') ORDER BY rank, start_ns
        """,
    )
    begun: Int64s = found["start_ns"]
    return begun


def queue_row(run: str, line: Timeline, waits: Int64s) -> dict[str, Any] | None:
    """The row of ``device_queue`` of one GPU; None without launches or without communication.

    ``waits``: see :func:`stream_waits`. Each call's own stream waits once, for what it sends.
    """
    if not line.on_device or line.in_graph is not None:
        return None
    known = np.flatnonzero(
        (line.launch != MISSING) & (line.stream != MISSING) & np.isin(line.kind, (COMPUTE, COMM))
    )
    order = known[np.argsort(line.launch[known], kind="stable")]
    if len(order) < 2 or not (line.kind[order] == COMM).any():
        return None
    start, end, stream = line.start[order], line.end[order], line.stream[order]
    ready = np.maximum(_before(line, order), line.launch[order])[1:]
    later = np.minimum.accumulate(start[::-1])[::-1][1:]
    computes = line.kind[order] == COMPUTE
    free = computes[1:] & (len(waits) > 0) & ~told_to_wait(line, order, waits)[1:]
    beside = (
        (stream[1:] != stream[:-1])
        & (start[1:] - ready > _SHORTEST_NS)
        & (computes[:-1] | free)
        & (end[:-1] - start[:-1] > _SHORTEST_NS)
    )
    # Behind compute the queue's head moves when that starts. The record behind a call, for which
    # others wait, holds the queue until the call is done.
    moves = np.where(computes[:-1], start[:-1], end[:-1])
    together = (start[1:] >= start[:-1]) & (np.abs(start[1:] - moves) < _TOGETHER_NS)
    return {
        "run": run,
        "rank": line.rank,
        "waiting": int(beside.sum()),
        "in_order": int((beside & together).sum()),
        "overtaken": int((later < start[:-1] - _TOGETHER_NS).sum()),
        "compute_stream": line.compute_stream,
    }


def told_to_wait(line: Timeline, order: Int64s, waits: Int64s) -> Bools:
    """Whether the host may have told each kernel's stream to wait since the launch before on it.

    ``order``: the kernels, by launch. ``waits``: see :func:`stream_waits`.
    """
    launch, stream = line.launch[order], line.stream[order]
    before = np.zeros(len(order), dtype=np.int64)
    for one in np.unique(stream):
        own = np.flatnonzero(stream == one)
        before[own[1:]] = launch[own[:-1]]
    calls = launch[line.kind[order] == COMM]
    asked = np.searchsorted(waits, launch) - np.searchsorted(waits, before)
    result: Bools = asked > np.searchsorted(calls, launch) - np.searchsorted(calls, before)
    return result


def _before(line: Timeline, order: Int64s) -> Int64s:
    """For each of some device events the end of the one before it on its stream."""
    result = np.zeros(len(order), dtype=np.int64)
    for stream in np.unique(line.stream[order]):
        own = np.flatnonzero(line.stream[order] == stream)
        by_start = own[np.argsort(line.start[order[own]], kind="stable")]
        result[by_start[1:]] = line.end[order[by_start[:-1]]]
    return result
