"""Work of a device of which the recording does not say how long it took.

Such an event is in no timeline. It may have lasted until the next one on its stream began: a step
in which that is more than noise is not whole, and no figure rests on it.
"""

import numpy as np

from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.events import Events

UNTIMED = "dur_ns IS NULL AND (device IS NOT NULL OR class = 'comm')"
"""SQL: an event of a device, or of a backend's own threads, whose duration is not known."""
_SHARE = 0.01  # of a step: less changes no verdict


def without_untimed(events: Events, line: Timeline, steps: Steps) -> Steps:
    """The same with steps flagged partial of which work of unknown length may fill 1 % or more."""
    found = events.read(
        line.rank,
        "SELECT rank, start_ns, coalesce(stream, tid) AS stream FROM event "
        f"WHERE run = $1 AND rank BETWEEN $2 AND $3 AND start_ns IS NOT NULL AND {UNTIMED} "
        "AND category IS DISTINCT FROM 'gpu_user_annotation' ORDER BY rank, start_ns",
    )
    if not len(found["start_ns"]):
        return steps
    until = np.full(len(found["start_ns"]), np.iinfo(np.int64).max)
    for stream in np.unique(found["stream"]):
        own = found["stream"] == stream
        begun = np.append(line.start[line.stream == stream], until[0])
        until[own] = begun[np.searchsorted(begun[:-1], found["start_ns"][own], side="right")]
    unknown = Intervals.of(found["start_ns"], until)
    return Steps(
        tuple(
            step._replace(
                complete=step.complete
                and unknown.clip(step.start, step.end).length < _SHARE * (step.end - step.start),
            )
            for step in steps.steps
        )
    )
