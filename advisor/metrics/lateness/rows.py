"""Who arrives late at collectives, how often, at what cost, and why (METRICS section 6)."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.host.overlap import Beside
from advisor.metrics.lateness.blame import Arrivals, arrivals
from advisor.metrics.lateness.chance import SIGNIFICANCE, late_by_chance
from advisor.metrics.lateness.cost import cost_of, costs_by_step, is_sure
from advisor.metrics.lateness.hosts import by_host, with_hosts
from advisor.metrics.lateness.lost import lost_time
from advisor.metrics.lateness.others import Others, others_per_peer
from advisor.metrics.lateness.reasons import idle_at_begin, reason_of
from advisor.metrics.lateness.slow_steps import slow_steps
from advisor.metrics.lateness.work import Compared
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.statistics import Floats, median
from advisor.vocabulary.operations import ROOTED, SYNCHRONISING

# Reasons whose own evidence (FLOPs, loaders, kernels of equal shapes) shows that a rank is late.
_SHOWN_BY_CAUSE = ("more-work", "data-loading", "slow-compute")

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
    launches: Mapping[int, float]  # what a call that launches a kernel takes, ns
    compare: Callable[[int, Sequence[int], float], Compared]
    hosts: Mapping[int, str]  # where they are known
    places: Mapping[str, Mapping[int, str]]  # by kind of groups side by side
    recorded: Mapping[int, float]  # operators that the profiler wrote down, per step
    moving: Mapping[int, Intervals]  # when data of each moves (collectives/call.py)
    beside: Mapping[int, Beside]  # what each computes beside transfers

    @cached_property
    def begin_idle(self) -> dict[int, Intervals]:
        """Idle time of each rank between the beginning of a step and its first computation."""
        return {
            rank: idle_at_begin(line, self.occupancy[rank].busy, self.steps[rank])
            for rank, line in self.lines.items()
        }

    @cached_property
    def slow_steps(self) -> dict[int, dict[int, float]]:
        """Of devices that are slow in some steps, see :func:`slow_steps`."""
        return slow_steps(self.lines, self.occupancy, self.steps)


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
    for kind, unit_of in [(None, ranks.hosts), *ranks.places.items()]:
        of_units = [
            (row, stands_for[row["rank"]])
            for item, stands_for in by_host(found, unit_of)
            for row in _rows(run, [item], ranks)
        ]
        of_all = with_hosts(of_all, of_units, unit_of, kind, ranks.launches)
    records += of_all
    return [{**row, "reason_evidence": json.dumps(row["reason_evidence"])} for row in records]


class _Group(NamedTuple):
    """Arrivals of one group, with what is asked of it for each of its ranks."""

    item: Arrivals
    after: Mapping[int, Sequence[float]]
    """Of each rank, see :func:`after_median`."""
    steps: Sequence[int | None]
    """Of each stretch, in order."""
    slowest: Sequence[int | None]
    """Of each stretch the rank whose own excess is the greatest, and above 0."""

    @classmethod
    def of(cls, item: Arrivals, ranks: Ranks) -> "_Group":
        # Calls of one stretch are late together: the stretch is what counts as one trial.
        lasts = np.append(np.flatnonzero(np.diff(item.segment)), len(item.segment) - 1)
        worst = item.excess[lasts].argmax(axis=1)
        late = item.excess[lasts, worst] > 0
        return cls(
            item,
            after_median(item.columns, ranks.clocks),
            [item.columns[last][item.ranks[0]].step for last in lasts],
            [item.ranks[w] if is_late else None for w, is_late in zip(worst, late, strict=True)],
        )


class _All(NamedTuple):
    """What all ranks have, which each is held against."""

    costs: Mapping[int, Floats]  # by step
    others_costs: Others
    waits: Mapping[int, Mapping[int, float]]  # by step
    own_excess: Mapping[int, float]
    recorded_more: Mapping[int, float]  # operators, of ranks whose number is known
    per_peer: Mapping[int, float]


def _rows(run: str, items: Sequence[Arrivals], ranks: Ranks) -> list[dict[str, Any]]:
    members = sorted({rank for item in items for rank in item.ranks})
    by_step, waits = costs_by_step(items, ranks.steps, ranks.occupancy, members, ranks.moving)
    costs = {rank: np.array([*by_step[rank].values()], dtype=np.float64) for rank in members}
    recorded = {rank: ranks.recorded[rank] for rank in members if rank in ranks.recorded}
    of_all = _All(
        costs,
        Others(np.stack([*costs.values()])),
        waits,
        _beyond({rank: _own_ns(rank, ranks) for rank in members}),
        _beyond(recorded) if len(recorded) > 1 else {},
        others_per_peer(items, len(members)),
    )
    groups: dict[int, list[_Group]] = defaultdict(list)
    for item in items:
        group = _Group.of(item, ranks)
        for rank in item.ranks:
            groups[rank].append(group)
    return [_row(run, rank, groups[rank], ranks, of_all) for rank in members]


def _row(
    run: str, rank: int, groups: Sequence[_Group], ranks: Ranks, of_all: _All
) -> dict[str, Any]:
    items = [group.item for group in groups]
    calls = sum(len(item.columns) for item in items)
    times_last = sum(column[rank].last_rank == rank for item in items for column in item.columns)
    late = [ns for group in groups for ns in group.after[rank]]
    chance = sum(len(group.steps) / len(group.item.ranks) for group in groups)
    stretches = Counter(step for group in groups for step in group.steps)
    slowest = Counter(
        step
        for group in groups
        for step, worst in zip(group.steps, group.slowest, strict=True)
        if worst == rank
    )
    values, waits = of_all.costs[rank], of_all.waits[rank]
    most, usual = of_all.others_costs.greatest(values), of_all.others_costs.median(values)
    # Often the last; or seldom, but what it costs outweighs the next worst rank's over the steps.
    p_value = late_by_chance(
        values,
        most,
        np.array([slowest[step] for step in stretches], dtype=np.float64),
        np.array([*stretches.values()], dtype=np.float64),
        chance / max(stretches.total(), 1),
        len(of_all.costs),
    )
    own_excess = of_all.own_excess[rank]
    significant = p_value < SIGNIFICANCE and len(values) > 0
    cost, low, high = cost_of(values, usual, own_excess, significant=significant)
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
            systematic=significant and is_sure(cost, low),
            cost_ns=cost,
            launches=ranks.launches,
            hosts=ranks.hosts,
            beside=ranks.beside,
        )
        if cost
        else None
    )
    told = False
    slow = ranks.slow_steps.get(rank, {})
    in_slow = np.array([step in slow for step in waits], dtype=bool)
    slow_at_times = bool(
        reason and not significant and 2 * values[in_slow].sum() > values.sum() > 0
    )
    if slow_at_times:
        # Not always, and no chance: the same work takes longer on its device in just these steps.
        share = in_slow.mean()
        low, high = share * float(values[in_slow].min()), share * float(values[in_slow].max())
        significant = told = True
    elif reason and not significant and len(values):
        # Who arrives last may vary where who has more to do does not.
        cause = float(reason.evidence.get("cause_p_value") or 1.0)
        significant = reason.name in _SHOWN_BY_CAUSE and cause < SIGNIFICANCE
        if significant:
            cost, low, high = cost_of(values, usual, own_excess, significant=True)
        # Whom others hold up in turn, for lack of cores say, may gain nothing: its work is more.
        told = significant and reason.name == "more-work" and own_excess > 0
    return {
        "run": run,
        "rank": rank,
        "process_group": None,
        "calls": calls,
        "times_last": times_last,
        "p_value": p_value,
        "median_lateness_ns": round(median(late)),
        "cost_ns_per_step": cost,
        "cost_low_ns": round(max(low, 0.0)),
        "cost_high_ns": round(max(high, 0.0)),
        "systematic": significant and (is_sure(cost, low) or told),
        "reason": "slow-compute" if slow_at_times else reason.name if reason else None,
        "reason_evidence": {
            "stretches": stretches.total(),
            "stretches_slowest": slowest.total(),
            **(reason.evidence if reason else {}),
            **(
                {"slow_steps": [*slow], "times_as_long": median([*slow.values()])}
                if slow_at_times
                else {}
            ),
            "recorded_more": round(of_all.recorded_more.get(rank, 0)),
            "own_excess_ns_per_step": round(own_excess),
            "others_per_peer": of_all.per_peer[rank],
            **({"host_ns_per_step": round(ranks.paces[rank])} if rank in ranks.paces else {}),
        },
        "wait_ns_per_step": round(sum(waits.values()) / max(len(waits), 1)),
        "wait_by_step": json.dumps({step: round(ns) for step, ns in waits.items() if round(ns)}),
    }


def _beyond(values: Mapping[int, float]) -> dict[int, float]:
    """What each rank has beyond the median of its others; one that is alone all it has."""
    others = Others(np.array([*values.values()], dtype=np.float64))
    beyond = {}
    for rank, value in values.items():
        usual = others.median(np.array(value))
        beyond[rank] = value - (0.0 if usual is None else float(usual))
    return beyond


def _waits_for_last(column: Mapping[int, Call], ranks: Ranks) -> bool:
    """Whether somebody was in the call before its last rank came to it.

    On a host a call that was asked for in time and begins late stood behind what the same rank
    sends or receives in others: a transfer that nobody's lateness explains.
    """
    last = column[next(iter(column.values())).last_rank or 0]
    came = last.start if ranks.lines[last.rank].on_device else last.asked
    begun = aligned(came, last.rank, ranks.clocks)
    return any(c.wait and aligned(c.start, r, ranks.clocks) < begun for r, c in column.items())


def _own_ns(rank: int, ranks: Ranks) -> float:
    """What a rank's used steps last but for its communication, on average; see Arrivals.excess."""
    own = ranks.occupancy[rank]
    start, end = ranks.steps[rank].used_windows
    waited = own.exposed_comm.covered(start, end)
    known = ranks.lines[rank].gaps_are_idle
    spent = np.subtract(end, start) - waited if known else own.compute.covered(start, end)
    return float(np.mean(spent)) if start else 0.0


def _step_ns(steps: Steps) -> float:
    lengths = [s.end - s.start for s in steps.steps if s.used]
    return median(lengths) if lengths else 0.0


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
        middle = median([start - first for start in starts.values()])
        for rank, start in starts.items():
            late[rank].append(start - first - middle)
    return late
