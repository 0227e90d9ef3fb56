"""Which steps count: every figure per step, in every command, rests on these and no others.

A step is used when it is complete on all ranks that count, past the warm-up and not odd. Where
files were cut, their ranks or the steps they lack are left out, whichever leaves more (ranks times
steps), so that a cut file silences no other. Ranks without device events beside others that have
them do not count either: their windows are their hosts'. The time of a step is its median over the
ranks, the step time of a run the median of its used steps.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.metrics.steps.annotated import Step, Steps
from advisor.store.columns import rows

CUT_RANK, NO_DEVICE, PARTIAL, WARM_UP, ODD = "cut-rank", "no-device", "partial", "warm-up", "odd"
LOST_THREAD = "lost-thread"

WARM_UP_TIMES = 1.5
"""Leading steps of over so many times the median: allocations, autotuning, lazy connections."""
ODD_TIMES = 5.0
"""Later ones of over so many: an evaluation, a checkpoint, an annotation over many steps."""
_FEWEST = 3  # with fewer, none of them is the usual one


def mark_used(
    steps: Mapping[int, Steps], cut: Collection[int], blind: Collection[int] = ()
) -> dict[int, Steps]:
    """The steps of all ranks, with why some do not count.

    ``cut`` ranks lack events, ``blind`` ones those of their devices.
    """
    seeing = {rank: own for rank, own in steps.items() if rank not in blind}
    ranks = ranks_that_count(seeing, cut)
    lengths: dict[int, list[int]] = {}
    for rank in ranks:
        for step in steps[rank].steps:
            if step.complete:
                lengths.setdefault(step.number, []).append(step.end - step.start)
    times = {n: float(np.median(own)) for n, own in lengths.items() if len(own) == len(ranks)}
    unusual = _unusual(times)

    def reason(rank: int, step: Step) -> str | None:
        if rank not in ranks:
            return NO_DEVICE if rank in blind else CUT_RANK
        return unusual.get(step.number) if step.number in times else step.left_out or PARTIAL

    return {
        rank: Steps(tuple(step._replace(left_out=reason(rank, step)) for step in own.steps))
        for rank, own in steps.items()
    }


def ranks_that_count(steps: Mapping[int, Steps], cut: Collection[int]) -> frozenset[int]:
    """The ranks whose complete steps in common are most: ranks times steps, of equals more ranks.

    All that have steps where no step is complete on every rank that is not ``cut``.
    """
    of_step: dict[int, set[int]] = {}
    for rank, own in steps.items():
        for step in own.steps:
            if step.complete:
                of_step.setdefault(step.number, set()).add(rank)
    stepping = frozenset(rank for rank, own in steps.items() if own.steps)
    needed = stepping - set(cut)
    sets = {frozenset(own) for own in of_step.values() if own >= needed}
    shared = {one: sum(own >= one for own in of_step.values()) for one in sets}
    return min(
        shared,
        key=lambda one: (-len(one) * shared[one], -len(one), sorted(one)),
        default=stepping,
    )


def _unusual(times: Mapping[int, float]) -> dict[int, str]:
    """Step -> why it is no step like the others."""
    if len(times) < _FEWEST:
        return {}
    typical = float(np.median(list(times.values())))
    found: dict[int, str] = {}
    for number in sorted(times):
        if times[number] <= WARM_UP_TIMES * typical:
            break
        found[number] = WARM_UP
    for number, time in times.items():
        if time > ODD_TIMES * typical:
            found.setdefault(number, ODD)
    return found


def step_times(con: Any, run: str) -> dict[int, int]:
    """Used step -> its time, ns: the median over ranks. In order; empty without any."""
    found = rows(
        con,
        "SELECT step, median(end_ns - start_ns)::BIGINT FROM step WHERE run = ? AND used "
        "GROUP BY step ORDER BY step",
        [run],
    )
    return {int(step): int(time) for step, time in found}


def step_time(con: Any, run: str) -> int | None:
    """The step time of a run, ns: the median of its used steps; None without any."""
    times = step_times(con, run)
    return round(float(np.median(list(times.values())))) if times else None


def mark_records(
    steps: Sequence[dict[str, Any]], breakdowns: Sequence[dict[str, Any]], cut: Collection[int]
) -> None:
    """Say of rows of ``step`` and ``step_breakdown`` which are used, from their own columns."""
    of_rank: dict[int, list[Step]] = {}
    for row in steps:
        of_rank.setdefault(row["rank"], []).append(
            Step(row["step"], row["start_ns"], row["end_ns"], None, None, row["complete"], "")
        )
    marked = mark_used({rank: Steps(tuple(own)) for rank, own in of_rank.items()}, cut)
    found = {(rank, s.number): s.left_out for rank, own in marked.items() for s in own.steps}
    for row in steps:
        row["left_out"] = found[row["rank"], row["step"]]
    for row in [*steps, *breakdowns]:
        row["used"] = found.get((row["rank"], row["step"]), PARTIAL) is None
