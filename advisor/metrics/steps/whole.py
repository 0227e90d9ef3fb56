"""The whole trace as one step, when nothing in it tells steps apart (METRICS section 1)."""

from collections.abc import Mapping

import numpy as np

from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import Timeline

WHOLE_TRACE = "whole-trace"
_EDGE_GAP, _STRAY = 0.1, 0.01


def whole_trace(line: Timeline) -> Steps:
    """A rank's whole trace as one step.

    Idling before the work begins and after it ends (the profiler starts or stops, a graph is
    captured, requests arrive) is none of the work's.
    """
    work = main_work(line)
    return Steps(()) if work is None else _one(*work)


def without_strays(lines: Mapping[int, Timeline], offsets: Mapping[int, int]) -> dict[int, Steps]:
    """The whole traces of ranks that do more before or after what all of them do together.

    What is stray beside the work of one rank may be more than that beside its peer's, which does
    less: a step that begins with it there alone makes that rank late by the whole gap. ``offsets``
    are what to add to a rank's times, ns; ranks without one are left as they are.
    """
    shifts = {rank: offsets[rank] for rank, line in lines.items() if rank in offsets and len(line)}
    if len(shifts) < 2:
        return {}
    together = Intervals.of(
        np.concatenate([lines[rank].start + shift for rank, shift in shifts.items()]),
        np.concatenate([lines[rank].end + shift for rank, shift in shifts.items()]),
    )
    found, work = {}, _main(together)
    for rank, shift in shifts.items():
        own = main_work(lines[rank])
        if own is None or work is None:
            continue
        both = max(own[0], work[0] - shift), min(own[1], work[1] - shift)
        if both != own and both[0] < both[1]:
            found[rank] = _one(*both)
    return found


def main_work(line: Timeline) -> tuple[int, int] | None:
    """From where to where a device's work lies, ns: without stray events beyond a long gap.

    Events that make up under 1 % of the busy time and are a tenth of the recording away from the
    rest are stray. None where nothing takes time.
    """
    return _main(Intervals.of(line.start, line.end))


def _main(busy: Intervals) -> tuple[int, int] | None:
    if not len(busy):
        return None
    start, end = busy.start, busy.end
    low, high = int(start[0]), int(end[-1])
    gaps, done = start[1:] - end[:-1], np.cumsum(end - start)
    for place in np.flatnonzero(gaps >= _EDGE_GAP * (high - low)):
        if done[place] < _STRAY * done[-1]:
            low = int(start[place + 1])
        elif done[-1] - done[place] < _STRAY * done[-1]:
            high = int(end[place])
            break
    return low, high


def _one(start: int, end: int) -> Steps:
    return Steps((Step(0, start, end, None, None, True, WHOLE_TRACE),))
