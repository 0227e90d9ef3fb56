"""The chain of work that the length of a step rests on, across ranks.

Walked backwards from the end of the step on the rank that ends last: through compute to its begin,
through an exposed collective to the arrival of its last rank and on that rank from there, through
idle time to what ended before it. Shortening anything that is not on it cannot shorten the step by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advisor.metrics.breakdown import Occupancy
from advisor.metrics.calls import Call
from advisor.metrics.clock import Clock, aligned
from advisor.metrics.intervals import Intervals
from advisor.metrics.steps import Step, Steps

_MOST_SEGMENTS = 20_000


def critical_path_rows(
    run: str,
    calls: Mapping[int, Sequence[Call]],
    occupancy: Mapping[int, Occupancy],
    steps: Mapping[int, Steps],
    clocks: Mapping[int, Clock],
) -> list[dict[str, Any]]:
    """Rows of ``critical_path`` for the complete step of median length, in order of time.

    Times are on each rank's own clock.
    """
    chosen = _typical(steps)
    if chosen is None:
        return []
    windows = {
        rank: step for rank, own in steps.items() for step in own.steps if step.number == chosen
    }
    walker = _Walker(calls, occupancy, windows)
    last = max(windows, key=lambda rank: (aligned(windows[rank].end, rank, clocks), -rank))
    segments = walker.walk(last)
    return [
        {
            "run": run,
            "step": chosen,
            "position": position,
            "rank": rank,
            "kind": kind,
            "name": None if call is None else call.op,
            "event_id": None if call is None else call.event_id,
            "start_ns": start,
            "end_ns": end,
        }
        for position, (rank, kind, call, start, end) in enumerate(reversed(segments))
    ]


def _typical(steps: Mapping[int, Steps]) -> int | None:
    lengths: dict[int, list[int]] = {}
    for own in steps.values():
        for step in own.steps:
            if step.complete:
                lengths.setdefault(step.number, []).append(step.end - step.start)
    if not lengths:
        return None
    ordered = sorted(lengths, key=lambda number: (max(lengths[number]), number))
    return ordered[len(ordered) // 2]


_Segment = tuple[int, str, Call | None, int, int]


class _Walker:
    """Walks backwards through the windows of one step."""

    def __init__(
        self,
        calls: Mapping[int, Sequence[Call]],
        occupancy: Mapping[int, Occupancy],
        windows: Mapping[int, Step],
    ) -> None:
        self.occupancy = occupancy
        self.windows = windows
        self.by_end = {rank: sorted(own, key=lambda c: c.end) for rank, own in calls.items()}
        self.ends = {
            rank: np.array([c.end for c in own], dtype=np.int64)
            for rank, own in self.by_end.items()
        }
        self.arrivals = {(c.call_id, rank): c for rank, own in calls.items() for c in own}

    def walk(self, rank: int) -> list[_Segment]:
        """Segments from the end of the step to its begin."""
        now = self.windows[rank].end
        segments: list[_Segment] = []
        while now > self.windows[rank].start and len(segments) < _MOST_SEGMENTS:
            begin = self.windows[rank].start
            busy = _before(self.occupancy[rank].compute, now)
            if busy is not None and busy[1] >= now:
                start = max(busy[0], begin)
                segments.append((rank, "compute", None, start, now))
                now = start
                continue
            call = self._exposed(rank, now)
            if call is not None:
                arrived = max(call.start + (call.wait or 0), begin)
                other = call.last_rank if call.last_rank is not None else rank
                partner = self.arrivals.get((call.call_id, other))
                moved = arrived < now
                if moved:
                    segments.append((rank, "comm", call, arrived, now))
                    now = arrived
                # Only from the end of the waiting does the last rank explain what came before.
                if moved and other != rank and partner is not None and other in self.windows:
                    rank, now = other, min(partner.start, self.windows[other].end)
                    continue
                if call.start < now:
                    # Its last rank is unknown or gone: the rest of the call is waiting.
                    start = max(call.start, begin)
                    segments.append((rank, "wait", call, start, now))
                    now = start
                continue
            earlier = _before(self.occupancy[rank].busy, now)
            start = begin if earlier is None else max(min(earlier[1], now), begin)
            if start >= now:  # memory or other work of the device
                start = begin if earlier is None else max(earlier[0], begin)
                segments.append((rank, "memory", None, start, now))
            else:
                segments.append((rank, "idle", None, start, now))
            now = start
        return segments

    def _exposed(self, rank: int, now: int) -> Call | None:
        """The collective under way just before a moment: of several the one that began last."""
        first = int(np.searchsorted(self.ends[rank], now, side="left"))
        under_way = [c for c in self.by_end[rank][first : first + 16] if c.start < now]
        return max(under_way, key=lambda c: c.start + (c.wait or 0), default=None)


def _before(spans: Intervals, now: int) -> tuple[int, int] | None:
    """The last interval that begins before a moment."""
    place = int(np.searchsorted(spans.start, now, side="left")) - 1
    return None if place < 0 else (int(spans.start[place]), int(spans.end[place]))
