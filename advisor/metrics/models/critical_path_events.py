"""Device events of one kind in order, to be walked backwards (critical_path.py)."""

from typing import NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING


class Track(NamedTuple):
    """Events of one kind by start, and for each the one of all before it that ends last."""

    start: Int64s
    end: Int64s
    kind: Int64s
    event_id: Int64s
    lane: Int64s
    longest: Int64s

    @classmethod
    def of(cls, line: Timeline, chosen: Int64s) -> "Track":
        end = line.end[chosen]
        reached = np.maximum.accumulate(end)
        fresh = np.flatnonzero(end >= reached)
        longest = fresh[np.searchsorted(fresh, np.arange(len(end)), side="right") - 1]
        return cls(
            start=line.start[chosen],
            end=end,
            kind=line.kind[chosen],
            event_id=line.event_id[chosen],
            lane=line.stream[chosen],
            longest=longest,
        )

    def before(self, now: int) -> tuple[int, int, int, int | None]:
        """(start, kind, event, lane) of the event until ``now``; of several the one begun last."""
        place = int(np.searchsorted(self.start, now, side="left")) - 1
        if self.end[place] < now:
            place = int(self.longest[place])
        start, kind = int(self.start[place]), int(self.kind[place])
        event, lane = int(self.event_id[place]), int(self.lane[place])
        return start, kind, event, None if lane == MISSING else lane
