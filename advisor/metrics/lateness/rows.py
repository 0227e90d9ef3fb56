"""Who arrives late at collectives, how often, at what cost, and why (METRICS section 6)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.lateness.blame import Arrivals, arrivals
from advisor.metrics.lateness.lost import lost_time
from advisor.metrics.lateness.reasons import Reason, idle_at_begin, reason_of
from advisor.metrics.lateness.work import Compared
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.statistics import binomial_tail, mean_interval
from advisor.metrics.timeline.timeline import Timeline
from advisor.vocabulary.operations import ROOTED, SYNCHRONISING

# A rank is a straggler when chance would make it last this often less than once in twenty runs.
_SIGNIFICANCE = 0.05

# Kernels and shapes are compared for ranks that others wait for this share of a step.
_WORTH_COMPARING = 0.005


@dataclass(frozen=True)
class Ranks:
    """What lateness needs of each rank."""

    lines: Mapping[int, Timeline]
    occupancy: Mapping[int, Occupancy]
    steps: Mapping[int, Steps]
    clocks: Mapping[int, Clock]
    loading: Mapping[int, Intervals]  # time in the data loader
    paces: Mapping[int, float]  # what each host takes for a step when nothing holds it up, ns
    compare: Callable[[int, Sequence[int]], Compared]

    @cached_property
    def begin_idle(self) -> dict[int, Intervals]:
        """Idle time of each rank between the beginning of a step and its first computation."""
        return {
            rank: idle_at_begin(line, self.occupancy[rank].busy, self.steps[rank])
            for rank, line in self.lines.items()
        }


def lateness_rows(
    run: str, columns: Sequence[Mapping[int, Call]], ranks: Ranks
) -> list[dict[str, Any]]:
    """Rows of ``lateness``: per group, and over all groups where there are several.

    Calls that lack a rank (a file is missing or cut) count too: who kept the ranks that were read
    waiting kept them waiting, whatever the others did.
    """
    by_group: dict[str | None, list[Mapping[int, Call]]] = defaultdict(list)
    for column in columns:
        call = next(iter(column.values()))
        if call.last_rank is None:
            continue
        if call.op in SYNCHRONISING or (call.op in ROOTED and _waits_for_last(column, ranks)):
            by_group[call.group].append(column)
    lost = lost_time(columns, ranks.clocks)
    found = [
        item
        for name in sorted(by_group, key=lambda n: (n is None, n or ""))
        if (
            item := arrivals(name, by_group[name], ranks.occupancy, ranks.lines, ranks.clocks, lost)
        )
    ]
    if not found:
        return []
    of_all = _rows(run, found, ranks)
    records = []
    for item in found:
        if item.group is not None:
            own = of_all if len(found) == 1 else _rows(run, [item], ranks)
            records += [{**row, "process_group": item.group} for row in own]
    return records + of_all


def _rows(run: str, items: Sequence[Arrivals], ranks: Ranks) -> list[dict[str, Any]]:
    members = sorted({rank for item in items for rank in item.ranks})
    costs = _costs(items, ranks, members)
    late = [after_median(item.columns, ranks.clocks) for item in items]
    return [_row(run, rank, items, late, ranks, costs, members) for rank in members]


def _row(
    run: str,
    rank: int,
    items: Sequence[Arrivals],
    after: Sequence[Mapping[int, Sequence[float]]],
    ranks: Ranks,
    costs: Mapping[int, Mapping[int, float]],
    members: Sequence[int],
) -> dict[str, Any]:
    calls = times_last = trials = successes = 0
    chance = 0.0
    late: list[float] = []
    signed = dict.fromkeys(costs[rank], 0.0)
    for item, of_item in zip(items, after, strict=True):
        if rank not in item.ranks:
            continue
        place = item.ranks.index(rank)
        calls += len(item.columns)
        times_last += sum(column[rank].last_rank == rank for column in item.columns)
        late += of_item[rank]
        # Calls of one stretch are late together: the stretch is what counts as one trial.
        lasts = np.append(np.flatnonzero(np.diff(item.segment)), len(item.segment) - 1)
        trials += len(lasts)
        chance += len(lasts) / len(item.ranks)
        worst = item.excess[lasts].argmax(axis=1)
        own = item.excess[lasts, place]
        for row, value in zip(lasts, own, strict=True):
            step = item.columns[int(row)][rank].step
            if step in signed:
                signed[step] += float(value)
        successes += int(((worst == place) & (own > 0)).sum())
    p_value = min(1.0, len(members) * binomial_tail(successes, trials, chance / max(trials, 1)))
    values = np.array(list(costs[rank].values()), dtype=np.float64)
    others = [np.array(list(costs[r].values()), dtype=np.float64) for r in members if r != rank]
    significant = p_value < _SIGNIFICANCE and len(values) > 0
    if significant and others:
        # Everybody is last at times; only what exceeds that is this rank's.
        values = values - np.median(np.stack(others), axis=0)
    mean = float(values.mean()) if len(values) else 0.0
    low, high = mean_interval(values)
    if len(values) < 2:
        low, high = 0.5 * mean, 1.5 * mean  # one step shows no spread
    own_excess = float(np.mean(list(signed.values()))) if signed else 0.0
    if significant:
        # Noise of the others hides part of the waiting; its whole excess bounds what can be won.
        high = max(high, own_excess)
    cost = round(max(mean, 0.0))
    systematic = significant and mean > 0 and low > 0
    # Who keeps nobody waiting is not late: what came before its calls is nobody's reason.
    reason = (
        reason_of(
            rank,
            items,
            ranks.lines,
            ranks.occupancy,
            ranks.steps,
            ranks.begin_idle,
            ranks.loading,
            ranks.paces,
            ranks.compare if cost > _WORTH_COMPARING * _step_ns(ranks.steps[rank]) else None,
            systematic=systematic,
        )
        if cost
        else None
    )
    return {
        "run": run,
        "rank": rank,
        "process_group": None,
        "calls": calls,
        "times_last": times_last,
        "p_value": p_value,
        "median_lateness_ns": round(float(np.median(late))),
        "cost_ns_per_step": cost,
        "cost_low_ns": round(max(low, 0.0)),
        "cost_high_ns": round(max(high, 0.0)),
        "systematic": systematic,
        "reason": reason.name if reason else None,
        "reason_evidence": json.dumps(
            {
                **_evidence(reason, trials, successes),
                "own_excess_ns_per_step": round(own_excess),
                "others_per_peer": others_per_peer(rank, items, len(members)),
            }
        ),
    }


def _waits_for_last(column: Mapping[int, Call], ranks: Ranks) -> bool:
    """Whether somebody was in the call before its last rank came to it.

    On a host a call that was asked for in time and begins late stood behind what the same rank
    sends or receives in others: a transfer that nobody's lateness explains.
    """
    last = column[next(iter(column.values())).last_rank or 0]
    came = last.start if ranks.lines[last.rank].on_device else last.asked
    begun = aligned(came, last.rank, ranks.clocks)
    return any(c.wait and aligned(c.start, r, ranks.clocks) < begun for r, c in column.items())


def _step_ns(steps: Steps) -> float:
    lengths = [step.end - step.start for step in steps.steps if step.used]
    return float(np.median(lengths)) if lengths else 0.0


def after_median(
    columns: Sequence[Mapping[int, Call]], clocks: Mapping[int, Clock]
) -> dict[int, list[float]]:
    """Each rank's lateness by METRICS section 6: per call start(rank) - median start, ns.

    On the aligned clock. With an even number of ranks the median lies midway between the middle
    two, so that of two ranks each is half of what lies between them off.
    """
    late: dict[int, list[float]] = defaultdict(list)
    for column in columns:
        starts = {rank: aligned(call.start, rank, clocks) for rank, call in column.items()}
        # Differences first: nanoseconds since 1970 do not fit a double.
        first = min(starts.values())
        middle = float(np.median([start - first for start in starts.values()]))
        for rank, start in starts.items():
            late[rank].append(start - first - middle)
    return late


def others_per_peer(rank: int, items: Sequence[Arrivals], members: int) -> float:
    """All other ranks over those that meet ``rank`` in a call: 1 where everybody does."""
    peers = {other for item in items if rank in item.ranks for other in item.ranks} - {rank}
    return round((members - 1) / max(len(peers), 1), 4)


def _evidence(reason: Reason | None, trials: int, successes: int) -> dict[str, Any]:
    numbers = dict(reason.evidence) if reason is not None else {}
    return {"stretches": trials, "stretches_slowest": successes, **numbers}


def _costs(
    items: Sequence[Arrivals], ranks: Ranks, members: Sequence[int]
) -> dict[int, dict[int, float]]:
    """late rank -> {step: exposed waiting that its own excess causes, mean over the others, ns}.

    Of a call's waiting, the last rank's own excess is what it is to blame for, at most. That is
    what a step may gain; METRICS' cost, the sum of all waits, is in view ``late_rank``.
    """
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for item in items:
        excess = {rank: item.excess[:, place] for place, rank in enumerate(item.ranks)}
        for row, column in enumerate(item.columns):
            last = column[item.ranks[0]].last_rank
            if last not in excess:
                continue  # a rank that was left out, because its file is cut
            guilt = int(excess[last][row])
            for rank, call in column.items():
                if rank == last or not call.wait or guilt <= 0:
                    continue
                arrived = call.start + call.wait
                spans[last, rank].append((arrived - min(call.wait, guilt), arrived))
    steps = {rank: [s for s in ranks.steps[rank].steps if s.used] for rank in members}
    numbers = sorted({s.number for own in steps.values() for s in own})
    costs: dict[int, dict[int, float]] = {rank: dict.fromkeys(numbers, 0.0) for rank in members}
    shared = dict.fromkeys(numbers, 0)
    for rank in members:
        for step in steps[rank]:
            shared[step.number] += 1
    for (last, rank), found in spans.items():
        own = Intervals.of([s for s, _ in found], [e for _, e in found])
        exposed = own - ranks.occupancy[rank].compute
        windows = steps[rank]
        waited = exposed.covered([s.start for s in windows], [s.end for s in windows])
        for step, value in zip(windows, waited, strict=True):
            others = max(shared[step.number] - 1, 1)
            costs[last][step.number] += float(value) / others
    return costs
