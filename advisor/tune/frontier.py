"""Time against memory: the settings that no other beats in both, as far as the noise lets one tell.

Steps are freed of drift: a trial's ratio to the baselines around it times the baselines' median.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from advisor.config.sweep import Configuration
from advisor.tune.points import Key, key_of
from advisor.tune.sweep import Sweep
from advisor.tune.trial import TrialResult
from advisor.tune.verdict import describe

# Peaks of two runs of one setting differ by up to some tenths of a per cent.
SAME_MEMORY = 1.01


@dataclass(frozen=True)
class _Point:
    configuration: Configuration
    ratio: float
    tokens_per_step: int
    memory_bytes: int
    trials: int


def frontier(sweep: Sweep) -> list[dict[str, Any]]:
    """Step and peak memory of every configuration that ran to its end.

    ``on_frontier``: faster beyond the resolution than all that need no more memory. ``fastest``:
    faster beyond it than every other one. ``confirmed``: the present settings, and a winner of the
    fresh pairs.
    """
    points = _points(sweep)
    costs = [result.cost for result in sweep.baselines]
    if not points or not costs:
        return []
    base = statistics.median(costs)
    winner = sweep.winner()
    sure = {key_of(sweep.start), *([key_of(winner[0])] if winner else [])}

    def beats(one: _Point, other: _Point) -> bool:
        noise = sweep.resolution_of(min(one.trials, other.trials))
        return noise is not None and one.ratio < other.ratio * (1 - noise)

    least = min(point.memory_bytes for point in points)

    def smaller(one: _Point, other: _Point) -> bool:
        return (_memory_class(one, least), one.ratio) < (_memory_class(other, least), other.ratio)

    return [
        {
            "settings": describe(sweep.changes(point.configuration)) or "present settings",
            "step_ns": round(point.ratio * base * max(point.tokens_per_step, 1)),
            "peak_memory_bytes": point.memory_bytes,
            "on_frontier": all(beats(point, o) for o in points if smaller(o, point)),
            "fastest": all(beats(point, o) for o in points if o is not point),
            "confirmed": key_of(point.configuration) in sure,
        }
        for point in points
    ]


def _memory_class(point: _Point, least: int) -> int:
    """Steps of ``SAME_MEMORY`` above the least: within one nothing needs less than another."""
    return int(math.log(max(point.memory_bytes, 1) / max(least, 1)) / math.log(SAME_MEMORY))


def _points(sweep: Sweep) -> list[_Point]:
    groups: dict[Key, list[tuple[TrialResult, float]]] = {}
    for result, ratio in sweep.with_ratios():
        relative = 1.0 if result.is_baseline else ratio
        if result.status == "ok" and result.peak_memory_bytes is not None and relative is not None:
            groups.setdefault(key_of(result.configuration), []).append((result, relative))
    return [
        _Point(
            of_one[0][0].configuration,
            statistics.median(ratio for _, ratio in of_one),
            of_one[0][0].tokens_per_step,
            round(statistics.median(r.peak_memory_bytes or 0 for r, _ in of_one)),
            len(of_one),
        )
        for of_one in groups.values()
    ]
