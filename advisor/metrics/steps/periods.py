"""Steps of a trace without annotations: the period of its repeating collectives (METRICS 1).

A training loop asks for the same collectives in the same order every step. The smallest shift at
which a rank's sequence of signatures agrees with itself is the period. Pauses are part of the
signature, because a step of equal buckets repeats within itself but for the pause between steps.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.collectives.call import Call
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.timeline.timeline import Timeline

# Share of calls that must be equal one period later.
_AGREEMENT = 0.95
_FEWEST_PERIODS = 3
# A pause is at least half as many times as long as the median distance between calls.
_PAUSE = 3.0
_LONGEST = 20_000


def period_steps(
    calls: Mapping[int, Sequence[Call]], lines: Mapping[int, Timeline]
) -> dict[int, Steps] | None:
    """Steps of every rank from the period of the rank with most calls; None without a period.

    A step ends where its last call ends on each rank. What comes before the first whole period and
    after the last one is kept as a partial step.
    """
    if not any(calls.values()):
        return None
    leader = max(sorted(calls), key=lambda rank: len(calls[rank]))
    ordered = _ordered(calls[leader])
    period = _period(ordered)
    if period is None:
        return None
    first = _first(ordered, period)
    # Calls that end a step: the one before each start of a period.
    ends = [ordered[i - 1].call_id for i in range(first, len(ordered) + 1, period) if i > 0]
    result = {}
    for rank, line in lines.items():
        by_id = {call.call_id: call for call in calls[rank]}
        boundaries = sorted(by_id[i].end for i in ends if i in by_id)
        result[rank] = _steps(line, boundaries, whole_from_start=first == 0)
    return result


def _ordered(calls: Sequence[Call]) -> list[Call]:
    return sorted(calls, key=lambda c: (c.asked, c.start))


def _asked(calls: Sequence[Call]) -> NDArray[np.int64]:
    return np.array([c.asked for c in calls], dtype=np.int64)


def _period(calls: Sequence[Call]) -> int | None:
    if len(calls) < 2 * _FEWEST_PERIODS or len(calls) > _LONGEST:
        return None
    pause = np.diff(_asked(calls), prepend=_asked(calls)[0])
    long = pause > _pause_threshold(pause)
    numbering: dict[object, int] = {}
    plain = np.array([numbering.setdefault((c.group, c.signature), len(numbering)) for c in calls])
    for sequence in (plain * 2 + long, plain):
        for period in range(1, len(calls) // _FEWEST_PERIODS + 1):
            if (sequence[period:] == sequence[:-period]).mean() >= _AGREEMENT:
                if period == 1:
                    break  # all alike: nothing marks where a step begins
                return period
    return None


def _pause_threshold(pause: NDArray[np.int64]) -> float:
    """What tells pauses between steps from those within: the widest step in their sorted lengths.

    Looked for among the longer half; never below the median times _PAUSE / 2.
    """
    ordered = np.sort(pause[1:]).astype(np.float64) + 1.0
    upper = ordered[len(ordered) // 2 :]
    if len(upper) < 2:
        return float("inf")
    jumps = upper[1:] / upper[:-1]
    # One outlier is not a step: at least _FEWEST_PERIODS - 1 pauses must lie above.
    usable = jumps[: len(jumps) - (_FEWEST_PERIODS - 2)] if len(jumps) > _FEWEST_PERIODS else jumps
    place = int(np.argmax(usable))
    return max(float(np.sqrt(upper[place] * upper[place + 1])), _PAUSE / 2 * float(upper[0]))


def _first(calls: Sequence[Call], period: int) -> int:
    """Index of the first call of a whole period: the call after the longest typical pause."""
    pause = np.diff(_asked(calls), prepend=_asked(calls)[0]).astype(np.float64)
    pause[0] = np.nan
    typical = [
        float(np.nanmedian(pause[phase::period]))
        if len(pause[phase::period]) > 1 or phase
        else float("-inf")
        for phase in range(period)
    ]
    return int(np.argmax(typical))


def _steps(line: Timeline, boundaries: Sequence[int], *, whole_from_start: bool) -> Steps:
    if not len(line):
        return Steps(())
    low, high = int(line.start.min()), int(line.end.max())
    inner = [b for b in boundaries if low < b < high]
    edges = [low, *inner, high]
    last_is_whole = bool(boundaries) and high - boundaries[-1] < 0.01 * (high - low)
    if last_is_whole and inner:
        edges = [low, *inner[:-1], high] if inner[-1] == boundaries[-1] else edges
    steps = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        is_first, is_last = number == 0, number == len(edges) - 2
        complete = not (is_first and not whole_from_start) and not (is_last and not last_is_whole)
        steps.append(Step(number, start, end, None, None, complete, "collective-period"))
    return Steps(tuple(steps))
