"""What the host's threads of one rank did, moment by moment: the innermost span that was open.

The critical path follows the host through it: to the operator that launched late, to another
thread that this one waited for (autograd's, the program's), to the device that a synchronisation
waited for.
"""

import re
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Int64s
from advisor.store.columns import read

# A call into the driver that takes this long is told by its own name, not by its operator's.
_LONG_CALL_NS = 20_000
# A thread that did nothing waited for the one that worked most of that time.
_MOST_OF_A_GAP = 0.5
_SYNCHRONISES = re.compile(
    r"^(cuda|hip)(Device|Stream|Event)Synchronize|^cu(Ctx|Stream|Event)Synch"
)
_COPIES = re.compile(r"^(cuda|hip|cu)Mem(cpy|set)")


class Piece(NamedTuple):
    """A stretch of one thread ending at a moment; ``row`` is None where no span was open."""

    start: int
    row: int | None


class _Thread(NamedTuple):
    """Stretches in which the innermost span stayed the same, in order of time."""

    start: Int64s
    end: Int64s
    inner: Int64s
    outer: Int64s


class HostThreads:
    """Operators and driver calls of one rank between two moments, ns on its clock."""

    def __init__(self, con: Any, run: str, rank: int, low: int, high: int) -> None:
        found = read(
            con,
            """
            SELECT event_id, name, coalesce(tid, -1) AS tid, start_ns,
              start_ns + dur_ns AS end_ns, correlation, class = 'runtime' AS is_call
            FROM event
            WHERE run = ? AND rank = ? AND class IN ('cpu_op', 'runtime') AND device IS NULL
              AND start_ns < ? AND start_ns + dur_ns > ? AND dur_ns > 0
            ORDER BY tid, start_ns, end_ns DESC, event_id
            """,
            [run, rank, high, low],
        )
        self.event_id, self.name = found["event_id"], found["name"]
        self._is_call = found["is_call"].astype(bool)
        self._start, self._end = found["start_ns"], found["end_ns"]
        self._threads = {
            int(tid): self._sweep(np.flatnonzero(found["tid"] == tid))
            for tid in np.unique(found["tid"])
        }
        calls = np.flatnonzero(self._is_call & (found["correlation"] > 0))
        by_link = dict(zip(found["correlation"][calls].tolist(), calls.tolist(), strict=True))
        launched = read(
            con,
            """
            SELECT event_id, correlation, start_ns + dur_ns AS end_ns FROM event
            WHERE run = ? AND rank = ? AND device IS NOT NULL AND correlation > 0
              AND class IN ('compute', 'comm', 'memory', 'other')
              AND start_ns < ? AND start_ns + dur_ns > ?
            """,
            [run, rank, high, low],
        )
        self._launches: dict[int, tuple[int, int]] = {}
        """Device event -> (thread, begin of the call that launched it)."""
        self._done: dict[int, int] = {}
        """Driver call (row) -> end of the last device event that it launched."""
        for event, link, end in zip(*(launched[name].tolist() for name in launched), strict=True):
            call = by_link.get(link)
            if call is not None:
                self._launches[event] = int(found["tid"][call]), int(self._start[call])
                self._done[call] = max(end, self._done.get(call, end))

    def launch(self, event_id: int) -> tuple[int, int] | None:
        """(thread, begin of the launching call) of a device event; None when not recorded."""
        return self._launches.get(event_id)

    def before(self, tid: int, now: int) -> Piece:
        """What a thread did until ``now``: an operator, a long driver call, or nothing."""
        thread = self._threads.get(tid)
        if thread is None:
            return Piece(np.iinfo(np.int64).min, None)
        place = int(np.searchsorted(thread.start, now, side="left")) - 1
        if place < 0:
            return Piece(np.iinfo(np.int64).min, None)
        if thread.end[place] < now:
            return Piece(int(thread.end[place]), None)
        if self._stands_alone(thread, place, now):
            return Piece(int(thread.start[place]), int(thread.inner[place]))
        first = place
        while (
            first > 0
            and thread.outer[first - 1] == thread.outer[place]
            and thread.end[first - 1] == thread.start[first]
            and not self._stands_alone(thread, first - 1, int(thread.end[first - 1]))
        ):
            first -= 1
        return Piece(int(thread.start[first]), int(thread.outer[place]))

    def waited_for(self, tid: int, low: int, high: int) -> tuple[int, int] | None:
        """(other thread, when it was done) that explains why ``tid`` did nothing meanwhile."""
        best: tuple[int, int, int] | None = None
        for other, thread in self._threads.items():
            if other == tid:
                continue
            first = int(np.searchsorted(thread.end, low, side="right"))
            last = int(np.searchsorted(thread.start, high, side="left"))
            if first >= last or thread.end[last - 1] > high:
                continue  # nothing in between, or still at work
            worked = int((thread.end[first:last] - np.maximum(thread.start[first:last], low)).sum())
            if worked >= _MOST_OF_A_GAP * (high - low) and (best is None or worked > best[0]):
                best = worked, other, int(thread.end[last - 1])
        return None if best is None else best[1:]

    def awaits_device(self, row: int) -> bool:
        """Whether a driver call returned only once the device had done its work."""
        if not self._is_call[row]:
            return False
        name = str(self.name[row])
        if _SYNCHRONISES.match(name):
            return True
        done = self._done.get(row)
        return bool(_COPIES.match(name)) and done is not None and done <= int(self._end[row])

    def _stands_alone(self, thread: _Thread, place: int, now: int) -> bool:
        row = int(thread.inner[place])
        return bool(self._is_call[row]) and (
            now - int(thread.start[place]) >= _LONG_CALL_NS
            or _SYNCHRONISES.match(str(self.name[row])) is not None
        )

    def _sweep(self, rows: Int64s) -> _Thread:
        """Cut one thread's nested spans into stretches of one innermost span each."""
        # As plain numbers: looking into arrays one by one costs as much as all the rest.
        numbers = rows.tolist()
        starts, ends = self._start[rows].tolist(), self._end[rows].tolist()
        pieces: list[tuple[int, int, int, int]] = []
        open_: list[tuple[int, int]] = []  # (end, row), the innermost last
        cursor = 0

        def until(moment: int) -> None:
            nonlocal cursor
            while open_ and open_[-1][0] <= moment:
                end, done = open_[-1]
                if end > cursor:
                    pieces.append((cursor, end, done, open_[0][1]))
                    cursor = end
                open_.pop()
            if open_ and moment > cursor:
                pieces.append((cursor, moment, open_[-1][1], open_[0][1]))

        for row, start, end in zip(numbers, starts, ends, strict=True):
            until(start)
            cursor = start
            open_.append((end, row))
        until(int(np.iinfo(np.int64).max))
        table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
        return _Thread(table[:, 0], table[:, 1], table[:, 2], table[:, 3])
