"""The chain of work that the length of a step rests on, across streams, host threads and ranks.

Walked backwards from the end of the step on the rank that ends last: through compute to its begin,
through an exposed collective to the arrival of its last rank and on that rank from there. Where a
device had nothing to do before an event, the walk goes to the thread that launched it too late, and
along that thread's operators; from there to another thread that it waited for, or back to the
device that a synchronising call waited for. Shortening anything that is not on the path cannot
shorten the step by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.host.threads import HostThreads
from advisor.metrics.models.critical_path_events import Track
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, KINDS, SYNC, Timeline
from advisor.store.columns import rows

_MOST_SEGMENTS = 50_000


class Segment(NamedTuple):
    """A stretch of the path; ``lane`` is the stream or thread that it ran on."""

    rank: int
    kind: str
    start: int
    end: int
    name: str | None = None
    event_id: int | None = None
    lane: int | None = None


def critical_path_rows(
    con: Any,
    run: str,
    calls: Mapping[int, Sequence[Call]],
    lines: Mapping[int, Timeline],
    occupancy: Mapping[int, Occupancy],
    steps: Mapping[int, Steps],
    clocks: Mapping[int, Clock],
) -> list[dict[str, Any]]:
    """Rows of ``critical_path`` for the used step of median length, in order of time.

    Times are on each rank's own clock.
    """
    chosen = _typical(steps)
    if chosen is None:
        return []
    windows = {
        rank: step for rank, own in steps.items() for step in own.steps if step.number == chosen
    }
    walker = _Walker(con, run, calls, lines, occupancy, windows)
    last = max(windows, key=lambda rank: (aligned(windows[rank].end, rank, clocks), -rank))
    segments = _named(con, run, walker.walk(last))
    return [
        {
            "run": run,
            "step": chosen,
            "position": position,
            "rank": segment.rank,
            "kind": segment.kind,
            "name": segment.name,
            "event_id": segment.event_id,
            "lane": segment.lane,
            "start_ns": segment.start,
            "end_ns": segment.end,
        }
        for position, segment in enumerate(reversed(segments))
    ]


def _typical(steps: Mapping[int, Steps]) -> int | None:
    lengths: dict[int, list[int]] = {}
    for own in steps.values():
        for step in own.steps:
            if step.used:
                lengths.setdefault(step.number, []).append(step.end - step.start)
    if not lengths:
        return None
    ordered = sorted(lengths, key=lambda number: (max(lengths[number]), number))
    return ordered[len(ordered) // 2]


def _named(con: Any, run: str, segments: Sequence[Segment]) -> list[Segment]:
    """The segments with the names of their events."""
    wanted = sorted({(s.rank, s.event_id) for s in segments if s.event_id is not None})
    names = {
        (rank, event): name
        for rank, event, name in rows(
            con,
            "SELECT rank, event_id, name FROM event JOIN (SELECT unnest(?::INTEGER[]) AS rank, "
            "unnest(?::BIGINT[]) AS event_id) USING (rank, event_id) WHERE run = ?",
            [[rank for rank, _ in wanted], [event for _, event in wanted], run],
        )
    }
    return [
        s
        if s.name is not None or s.event_id is None
        else s._replace(name=names.get((s.rank, s.event_id)))
        for s in segments
    ]


class _Walker:
    """Walks backwards through the windows of one step."""

    def __init__(
        self,
        con: Any,
        run: str,
        calls: Mapping[int, Sequence[Call]],
        lines: Mapping[int, Timeline],
        occupancy: Mapping[int, Occupancy],
        windows: Mapping[int, Step],
    ) -> None:
        self._con, self._run = con, run
        self.lines, self.occupancy, self.windows = lines, occupancy, windows
        self.busy = {
            rank: line.spans(*(kind for kind in range(len(KINDS)) if kind != SYNC))
            for rank, line in lines.items()
            if rank in windows
        }
        self.by_end = {rank: sorted(own, key=lambda c: c.end) for rank, own in calls.items()}
        self.ends = {
            rank: np.array([c.end for c in own], dtype=np.int64)
            for rank, own in self.by_end.items()
        }
        self.arrivals = {(c.call_id, rank): c for rank, own in calls.items() for c in own}
        self._hosts: dict[int, HostThreads] = {}
        self._tracks: dict[tuple[int, bool], Track] = {}

    def walk(self, rank: int) -> list[Segment]:
        """Segments from the end of the step to its begin."""
        now = self.windows[rank].end
        segments: list[Segment] = []
        following: int | None = None  # the device event that begins at ``now``
        while now > self.windows[rank].start and len(segments) < _MOST_SEGMENTS:
            begin = self.windows[rank].start
            busy = _before(self.occupancy[rank].compute, now)
            if busy is not None and busy[1] >= now:
                segment = self._work(rank, now, begin, compute=True)
                segments.append(segment)
                now, following = segment.start, segment.event_id
                continue
            call = self._exposed(rank, now)
            if call is not None:
                arrived = max(call.start + (call.wait or 0), begin)
                other = call.last_rank if call.last_rank is not None else rank
                partner = self.arrivals.get((call.call_id, other))
                moved = arrived < now
                if moved:
                    segments.append(_of_call(rank, "comm", call, arrived, now))
                    now, following = arrived, call.event_id
                # Only from the end of the waiting does the last rank explain what came before.
                if moved and other != rank and partner is not None and other in self.windows:
                    rank, now = other, min(partner.start, self.windows[other].end)
                    following = partner.event_id
                    continue
                if call.start < now:
                    # Its last rank is unknown or gone: the rest of the call is waiting.
                    start = max(call.start, begin)
                    segments.append(_of_call(rank, "wait", call, start, now))
                    now, following = start, call.event_id
                continue
            earlier = _before(self.busy[rank], now)
            idle_from = begin if earlier is None else max(min(earlier[1], now), begin)
            if idle_from >= now:  # memory or other work of the device
                segment = self._work(rank, now, begin, compute=False)
                segments.append(segment)
                now, following = segment.start, segment.event_id
                continue
            now, following = self._idle(rank, idle_from, now, following, segments), None
        return segments

    def _work(self, rank: int, now: int, begin: int, *, compute: bool) -> Segment:
        """The device event under way until ``now``: of compute, or the best of the others."""
        if (rank, compute) not in self._tracks:
            line = self.lines[rank]
            wanted = line.kind == COMPUTE if compute else ~np.isin(line.kind, (COMPUTE, SYNC))
            self._tracks[rank, compute] = Track.of(line, np.flatnonzero(wanted))
        start, kind, event_id, lane = self._tracks[rank, compute].before(now)
        if not compute:  # compute inside it explains more
            inside = _before(self.occupancy[rank].compute, now)
            start = start if inside is None else max(start, min(inside[1], now - 1))
        label = {COMPUTE: "compute", COMM: "comm"}.get(kind, "memory")
        return Segment(rank, label, max(start, begin), now, event_id=event_id, lane=lane)

    def _idle(
        self, rank: int, idle_from: int, now: int, following: int | None, segments: list[Segment]
    ) -> int:
        """Explain why the device did nothing from ``idle_from`` until ``now``; where it led to."""
        launch = None
        if following is not None and self.lines[rank].on_device:
            launch = self._host(rank).launch(following)
        if launch is None or launch[1] <= idle_from:
            segments.append(Segment(rank, "idle", idle_from, now))
            return idle_from
        tid, asked = launch
        segments.append(Segment(rank, "launch", asked, now, event_id=following, lane=tid))
        return self._along_host(rank, tid, asked, segments)

    def _along_host(self, rank: int, tid: int, now: int, segments: list[Segment]) -> int:
        """Follow the rank's threads back until the device made one wait, or the step begins."""
        host, begin = self._host(rank), self.windows[rank].start
        while now > begin and len(segments) < _MOST_SEGMENTS:
            piece = host.before(tid, now)
            start = max(piece.start, begin)
            if piece.row is None:
                other = host.waited_for(tid, start, now)
                done = start if other is None else other[1]
                if done < now:
                    segments.append(Segment(rank, "host", done, now, lane=tid))
                    now = done
                if other is not None:
                    tid = other[0]
                continue
            event_id = int(host.event_id[piece.row])
            if host.awaits_device(piece.row):
                busy = _before(self.busy[rank], now)
                drained = None if busy is None else min(busy[1], now)
                if drained is not None and drained > start:
                    if drained < now:
                        segments.append(
                            Segment(rank, "host", drained, now, event_id=event_id, lane=tid)
                        )
                    return drained
            segments.append(Segment(rank, "host", start, now, event_id=event_id, lane=tid))
            now = start
        return now

    def _host(self, rank: int) -> HostThreads:
        if rank not in self._hosts:
            step = self.windows[rank]
            low = step.start if step.host_start is None else min(step.start, step.host_start)
            self._hosts[rank] = HostThreads(self._con, self._run, rank, low, step.end)
        return self._hosts[rank]

    def _exposed(self, rank: int, now: int) -> Call | None:
        """The collective under way just before a moment: of several the one that began last."""
        first = int(np.searchsorted(self.ends[rank], now, side="left"))
        under_way = [c for c in self.by_end[rank][first : first + 16] if c.start < now]
        return max(under_way, key=lambda c: c.start + (c.wait or 0), default=None)


def _of_call(rank: int, kind: str, call: Call, start: int, end: int) -> Segment:
    return Segment(rank, kind, start, end, call.op, call.event_id, call.stream)


def _before(spans: Intervals, now: int) -> tuple[int, int] | None:
    """The last interval that begins before a moment."""
    place = int(np.searchsorted(spans.start, now, side="left")) - 1
    return None if place < 0 else (int(spans.start[place]), int(spans.end[place]))
