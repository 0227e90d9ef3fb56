"""One rank's timeline as items: what it computes, what it issues, and where it waits.

Work is what the device computes and the gaps that no call explains; a gap that ends when a call
in flight ends is a wait for it. What computes beside the rank's own transfers took longer for it:
work is kept at its length alone.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advisor.metrics.timeline.intervals import Intervals
from advisor.whatif.host_work import Span
from advisor.whatif.program import Issue, Item, Mark, Wait, Work
from advisor.whatif.queries import ROUNDING_NS, SHORTEST_GAP_NS, WAKE_NS, CallRow

# What happens at a point in time, in the order in which it does when times are equal.
_GRADIENT, _ISSUE, _OPTIMIZER, _NEEDED = range(4)


@dataclass
class Timeline:
    """What is known of one rank's step; times on the rank's own clock, ns.

    ``busy``: everything but communication. ``gradients``: (ready time,
    bytes). ``needed``: (time, call) by which a call has been waited for. ``owned``: stretches of
    work done for a call. ``beside``: compute beside the rank's own transfers, which takes longer
    for it by the share ``contention``. ``on_host``: threads wait, and wake late.
    """

    window: tuple[int, int]
    busy: Intervals
    calls: Sequence[CallRow]
    gradients: Sequence[tuple[int, int]] = ()
    optimizer: int | None = None
    needed: Sequence[tuple[int, int]] = ()
    owned: Sequence[Span] = ()
    beside: Intervals = field(default_factory=Intervals.empty)
    contention: float = 0.0
    on_host: bool = False


def walk(line: Timeline) -> list[Item]:
    """The items of the step, in order of time."""
    return list(_Walk(line).items())


@dataclass
class _Walk:
    line: Timeline
    points: list[tuple[int, int, int]] = field(default_factory=list)
    by_end: list[CallRow] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    issued: set[int] = field(default_factory=set)
    waited: set[int] = field(default_factory=set)
    after: dict[int, int | None] = field(default_factory=dict)
    cursor: int = 0
    place: int = 0
    owned_place: int = 0

    def __post_init__(self) -> None:
        line = self.line
        self.cursor = line.window[0]
        self.points = [
            *((ready, _GRADIENT, i) for i, (ready, _) in enumerate(line.gradients)),
            *((max(c.arrival, line.window[0]), _ISSUE, c.call_id) for c in line.calls),
            *((at, _NEEDED, call) for at, call in line.needed),
        ]
        if line.optimizer is not None:
            self.points.append((line.optimizer, _OPTIMIZER, 0))
        # Calls that arrive together keep the order in which they ran: the sort is stable.
        self.points.sort(key=lambda point: point[:2])
        self.by_end = sorted(line.calls, key=lambda row: row.end)
        self.ends = [row.end for row in self.by_end]
        self.after = {row.call_id: row.after for row in line.calls}

    def items(self) -> Iterator[Item]:
        window_end = self.line.window[1]
        for start, end in self._stretches():
            if start - self.cursor > self._shortest_ns:
                yield from self._gap(start)
            yield from self._upto(max(end, self.cursor))
        for row in self.by_end:
            if self._is_open(row.call_id) and row.end <= window_end + WAKE_NS:
                yield Wait(row.call_id)
        for row in self.line.calls:
            if row.call_id not in self.issued:
                yield Issue(row.call_id, row.after)

    def _stretches(self) -> list[tuple[int, int]]:
        """What was busy, and the window's end; joined over gaps in which no call ended."""
        begin, end = self.line.window
        busy = self.line.busy
        starts, ends = np.append(busy.start, end), np.append(busy.end, end)
        before = np.concatenate(([begin], ends[:-1]))
        ended = np.searchsorted(self.ends, starts + self._ahead(starts - before), side="right")
        apart = ended > np.searchsorted(self.ends, before, side="right")
        first = np.flatnonzero(apart & (starts - before > self._shortest_ns))
        first = np.union1d(first, [0])
        last = np.append(first[1:], len(starts)) - 1
        return list(zip(starts[first].tolist(), ends[last].tolist(), strict=True))

    def _gap(self, until: int) -> Iterator[Item]:
        """A gap that calls in flight explain becomes waiting for them; any other one stays."""
        near = int(_near(until - self.cursor))
        ahead = int(self._ahead(until - self.cursor))
        ended = slice(
            bisect.bisect_right(self.ends, self.cursor),
            bisect.bisect_right(self.ends, until + ahead),
        )
        ending = [
            row
            for row in self.by_end[ended]
            if row.call_id not in self.waited and row.start < until
        ]
        blocking = [row for row in ending if until - row.end <= near]
        if not blocking:
            return
        last = max(row.end for row in blocking)
        # The wait began at the gap's start, or when the call was issued inside the gap.
        begin = max(self.cursor, min(max(row.arrival for row in blocking), until))
        yield from self._upto(begin)
        self.cursor = max(self.cursor, min(last, until))
        yield from self._points_upto(self.cursor)
        for row in ending:
            if row.end <= last and row.call_id in self.issued:
                self.waited.add(row.call_id)
                yield Wait(row.call_id)

    def _upto(self, limit: int) -> Iterator[Item]:
        while self.place < len(self.points) and self.points[self.place][0] <= limit:
            yield from self._work(self.points[self.place][0])
            self.place += 1
            yield from self._at(self.points[self.place - 1])
        yield from self._work(limit)

    def _points_upto(self, limit: int) -> Iterator[Item]:
        while self.place < len(self.points) and self.points[self.place][0] <= limit:
            self.place += 1
            yield from self._at(self.points[self.place - 1])

    def _work(self, limit: int) -> Iterator[Item]:
        """Work from the cursor to ``limit``, cut where its owner changes."""
        owned = self.line.owned
        while self.cursor < limit:
            while self.owned_place < len(owned) and owned[self.owned_place][1] <= self.cursor:
                self.owned_place += 1
            until, owner = limit, None
            if self.owned_place < len(owned):
                first, last, candidate = owned[self.owned_place]
                if first > self.cursor:
                    until = min(limit, first)
                else:
                    until, owner = min(limit, last), candidate
            yield Work(self._alone(self.cursor, until), owner)
            self.cursor = until

    def _alone(self, begin: int, end: int) -> float:
        """How long the work of a stretch takes while no call of the rank moves data."""
        if not self.line.contention:
            return end - begin
        beside = self.line.beside.within(begin, end)
        return end - begin - beside * self.line.contention / (1 + self.line.contention)

    def _at(self, point: tuple[int, int, int]) -> Iterator[Item]:
        _, kind, index = point
        if kind == _GRADIENT:
            yield Mark("gradient", index, self.line.gradients[index][1])
        elif kind == _ISSUE:
            self.issued.add(index)
            yield Issue(index, self.after[index])
        elif kind == _NEEDED:
            if self._is_open(index):
                self.waited.add(index)
                yield Wait(index)
        else:
            # Gradient calls that ended unnoticed under compute are waited for here at the latest;
            # what ends later a gap shows.
            yield Mark("optimizer", 0)
            ended = bisect.bisect_right(self.ends, self.cursor + self._ahead(0))
            for row in self.by_end[: None if self.line.on_host else ended]:
                if self._is_open(row.call_id) and row.is_gradient:
                    self.waited.add(row.call_id)
                    yield Wait(row.call_id)

    @property
    def _shortest_ns(self) -> int:
        """A gap that may be a wait: what a device's queue holds back, if only for a scalar."""
        return SHORTEST_GAP_NS if self.line.on_host else ROUNDING_NS

    def _ahead(self, gap_ns: Any) -> Any:
        """How long after a gap's end the call may end that it was spent waiting for.

        A thread may go on before the record of its call ends; a device's queue never does.
        """
        return _near(gap_ns) if self.line.on_host else ROUNDING_NS

    def _is_open(self, call: int) -> bool:
        return call in self.issued and call not in self.waited


def _near(gap_ns: Any) -> Any:
    """How long before a gap's end the call may end that it was spent waiting for.

    A thread wakes late where cores are busy, and so does the one that ends the call's record.
    """
    return np.maximum(WAKE_NS, gap_ns // 5)
