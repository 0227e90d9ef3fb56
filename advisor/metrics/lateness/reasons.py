"""Why a rank was late: what its own time before the collective held more of than the others'."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.host.overlap import Beside
from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.lateness.per_step import (
    MORE_OPERATORS,
    covered_per_step,
    idle_per_step,
    more_per_step,
    operators_begun,
    operators_per_step,
    unasked,
)
from advisor.metrics.lateness.work import Compared
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.statistics import floor_tail, sign_flip_tail
from advisor.store.columns import MISSING

# A cause explains this share of the time that a rank computes longer.
_EXPLAINED = 0.5
# A host this share of what its device idles slower than its peers' hosts is late by itself: theirs
# lose time of their own meanwhile, which the replay takes out of what its delay costs. So is a
# device that computes longer over its steps, by this share of what the others wait for it.
_BEHIND = 0.25


class Reason(NamedTuple):
    """A reason of ``lateness.reason`` with the numbers behind it, ns summed over the stretches."""

    name: str
    evidence: Mapping[str, float | str | None]


def is_inherited(evidence: Mapping[str, Any]) -> bool:
    """Whether a rank is late by what it waited, far more than by what it computes or idles longer;
    by :attr:`Reason.evidence`, which lacks these numbers where nothing was compared."""
    own = max(evidence.get(f"{part}_excess_ns", 0) for part in ("compute", "idle", "copies"))
    return bool(evidence.get("inherited_ns", 0) > 2 * own)


def reason_of(
    rank: int,
    items: Sequence[Arrivals],
    lines: Mapping[int, Timeline],
    occupancy: Mapping[int, Occupancy],
    steps: Mapping[int, Steps],
    begin_idle: Mapping[int, Intervals],
    loading: Mapping[int, Intervals],
    paces: Mapping[int, float],
    compare: Callable[[int, Sequence[int], float], Compared] | None,
    *,
    systematic: bool,
    cost_ns: float = 0.0,
    launches: Mapping[int, float] | None = None,
    hosts: Mapping[int, str] | None = None,
    beside: Mapping[int, Beside] | None = None,
) -> Reason | None:
    """The reason of one rank's own excess; None when it is never the slowest.

    Stretches in which the rank's own time exceeds the median are compared, part by part, with the
    median of the others in the same stretches. ``paces``: what each host takes for a step when
    nothing holds it up, ns; ``compare`` says of a rank and its peers who has more work or takes the
    given share longer for the same (None: it is not worth asking). ``cost_ns``: what the others
    wait for it per step. ``launches``: how long each rank's host takes to launch a kernel, ns.
    ``hosts``: the machines of ranks, as far as they are known. ``beside``: what each computes
    beside transfers, of which what those slow it by is no doing of its own.
    """
    slowed = beside or {}
    longer = np.zeros(7)
    inherited = asked_late = excess = operators = usual_operators = usual_compute = 0.0
    guilty = 0
    for item in items:
        if rank not in item.ranks:
            continue
        place = item.ranks.index(rank)
        lasts = np.append(np.flatnonzero(np.diff(item.segment)), len(item.segment) - 1)
        mine = lasts[item.excess[lasts].argmax(axis=1) == place]
        late = item.lateness[lasts, place] > 0
        inherited += float(
            (item.lateness[lasts, place] - item.excess[lasts, place])[late].clip(0).sum()
        )
        mine = mine[item.excess[mine, place] > 0]
        if not len(mine):
            continue
        guilty += len(mine)
        own_excess = item.excess[mine, place]
        excess += float(own_excess.sum())
        asked_late += float(own_excess[_asked_late(rank, item, mine, lines[rank])].sum())
        parts = {
            r: _parts(r, p, item, mine, lines, occupancy, begin_idle, loading, slowed.get(r))
            for p, r in enumerate(item.ranks)
        }
        others = [parts[r] for r in item.ranks if r != rank]
        usual = np.median(np.stack(others), axis=0)
        longer += (parts[rank] - usual).sum(axis=1)
        operators += parts[rank][4].sum()
        usual_operators += usual[4].sum()
        usual_compute += usual[0].sum()
    compute, idle, idle_at_begin_ns, loader, _, copies, by_transfers = longer.tolist()
    evidence: dict[str, float | str | None] = {
        "compute_excess_ns": round(compute),
        "idle_excess_ns": round(idle),
        "idle_at_step_begin_excess_ns": round(idle_at_begin_ns),
        "data_loader_excess_ns": round(loader),
        "inherited_ns": round(inherited),
        "operators_ratio": round(operators / usual_operators, 4) if usual_operators else 1.0,
        "stretches": guilty,
        "asked_late_ns": round(asked_late),
    }
    if copies:
        evidence["copies_excess_ns"] = round(copies)
    if not guilty:
        return Reason("slow-transfer-before", evidence) if inherited > 0 else None
    if max(compute, idle, inherited, asked_late, copies) <= 0:
        return Reason("unknown", evidence)
    if not systematic and is_inherited(evidence):
        return Reason("slow-transfer-before", evidence)
    peers = sorted({r for item in items if rank in item.ranks for r in item.ranks} - {rank})
    # Those of its own machine may be slow for the same reason: those elsewhere tell.
    machines = hosts or {}
    elsewhere = [r for r in peers if machines.get(r) != machines.get(rank)] or peers
    # A call that starts as soon as it is asked for waited for its host, whatever ran meanwhile.
    by_host = 2 * asked_late > excess
    if lines[rank].on_device and 2 * copies > excess and not by_host:
        return Reason("slow-copies", evidence)
    if lines[rank].on_device and 2 * by_transfers > excess and not by_host:
        return Reason("slow-transfer-before", evidence)
    if compute >= idle and not by_host:
        longer_ns, longer_share = more_per_step(
            rank, items, lambda r: covered_per_step(occupancy[r].compute, steps[r])
        )
        evidence["computes_longer_ns_per_step"] = round(longer_ns)
        if lines[rank].on_device and longer_ns < _BEHIND * cost_ns:
            # Who waits for another computes later there and less elsewhere (a stage of a pipeline);
            # so does who asks late for calls that run beside compute, once it has idled or copied.
            idles_longer_ns, _ = more_per_step(
                rank, items, lambda r: idle_per_step(occupancy[r], steps[r])
            )
            copies_longer_ns, _ = more_per_step(
                rank, items, lambda r: covered_per_step(occupancy[r].exposed_memory, steps[r])
            )
            if copies_longer_ns >= max(idles_longer_ns, _BEHIND * cost_ns) and not by_host:
                return Reason("slow-copies", evidence)
            unasked_ns, _ = more_per_step(
                rank, items, lambda r: covered_per_step(unasked(lines[r], occupancy[r]), steps[r])
            )
            by_host = (
                idle + asked_late >= _BEHIND * excess
                or max(idles_longer_ns, unasked_ns) >= _BEHIND * cost_ns
            ) and (_host_behind(rank, elsewhere, paces) or 0.0) >= _BEHIND * cost_ns
            if not by_host:
                return Reason("slow-transfer-before", evidence)
            if unasked_ns > idles_longer_ns:
                evidence["unasked_ns_per_step"] = round(unasked_ns)
    if compute >= idle and not by_host:
        surplus = operators - usual_operators
        more = surplus > (MORE_OPERATORS - 1) * usual_operators and (
            surplus * usual_compute >= _EXPLAINED * compute * usual_operators
        )
        needed = _EXPLAINED * compute / usual_compute if usual_compute else 0.0
        if lines[rank].on_device and longer_share > 0:
            # Its peers computed in other stretches what it does in these: steps hold all of both.
            needed = min(needed, _EXPLAINED * longer_share)
        if more:  # a peer may run in other stretches what it runs in these
            begun = more_per_step(rank, items, lambda r: operators_per_step(lines[r], steps[r]))
            more = begun[1] > MORE_OPERATORS - 1
        found = compare(rank, peers, needed) if compare else Compared(None, None)
        evidence |= found._asdict()
        many = surplus / max(usual_operators, 1) if more else 0.0
        name = _of_compute(found, needed, many, lines[rank].on_device)
        if name == "slow-compute":
            evidence["cause_p_value"] = found.pace_p_value
        return Reason(name, evidence)
    if not (lines[rank].launch != MISSING).any() and lines[rank].on_device:
        return Reason("unknown", evidence)  # nothing says when the host asked for what came late
    behind = _host_behind(rank, elsewhere, paces)
    if behind is not None:
        count = max(sum(step.used for step in steps[rank].steps), 1)
        evidence["host_slower_ns_per_step"] = round(behind)
        slower = behind / (paces[rank] - behind)
        evidence |= _slow_launches(rank, elsewhere, launches or {}, slower)
        if behind < _BEHIND * max(idle, asked_late) / count:
            return Reason("all-hosts-late", evidence)
        idle = max(idle, behind * count)
    # Where loaders were recorded they say what they took; elsewhere a step's beginning does.
    early = loader if len(loading[rank]) else max(idle_at_begin_ns, loader)
    evidence["cause_p_value"] = (
        _by_chance(rank, peers, steps, loading, sign_flip_tail)
        if any(len(loading[r]) for r in (rank, *peers)) or lines[rank].on_device
        else _by_chance(rank, peers, steps, begin_idle, floor_tail)
    )
    return Reason("data-loading" if early > 0.5 * idle else "late-launch", evidence)


def _host_behind(rank: int, peers: Sequence[int], paces: Mapping[int, float]) -> float | None:
    """How much longer a rank's host takes for a step than the median of its peers', ns."""
    hosts = [paces[peer] for peer in peers if peer in paces]
    return paces[rank] - float(np.median(hosts)) if rank in paces and hosts else None


def _slow_launches(
    rank: int, peers: Sequence[int], launches: Mapping[int, float], slower: float
) -> dict[str, float]:
    """What a launching call takes on a rank and on the median of its peers, ns.

    Where it takes longer by most of the share by which the host is slower, and beyond what its
    peers differ by: then all that the host does takes longer. Else, or with one peer, nothing.
    """
    others = [launches[peer] for peer in peers if peer in launches]
    if rank not in launches or len(others) < 2 or slower <= 0:
        return {}
    usual, longer = float(np.median(others)), launches[rank] - max(others)
    if launches[rank] / usual - 1 < _EXPLAINED * slower or longer <= max(others) - min(others):
        return {}
    return {"launch_ns": round(launches[rank]), "usual_launch_ns": round(usual)}


def _by_chance(
    rank: int,
    peers: Sequence[int],
    steps: Mapping[int, Steps],
    when: Mapping[int, Intervals],
    tail: Callable[[Int64s], float],
) -> float:
    """How often equal ranks would differ as much over the steps in such times; 1 without any."""
    spent = {
        r: when[r].covered(*windows)
        for r in (rank, *peers)
        if (windows := steps[r].used_windows)[0]
    }
    if len(spent) <= len(peers) or len({len(own) for own in spent.values()}) > 1:
        return 1.0
    most = np.max(np.stack([spent[r] for r in peers]), axis=0)
    return min(1.0, len(spent) * tail(spent[rank] - most))


def _asked_late(rank: int, item: Arrivals, rows: Int64s, line: Timeline) -> NDArray[np.bool_]:
    """Whether each call began as soon as it was launched: the host was what it waited for."""
    if not line.on_device:
        return np.zeros(len(rows), dtype=bool)
    calls = [item.columns[row][rank] for row in rows.tolist()]
    asked = np.array([c.asked for c in calls], dtype=np.int64)
    begun = np.array([c.start for c in calls], dtype=np.int64)
    # What was not launched as far as is known began when it did for reasons unknown.
    early: NDArray[np.bool_] = (asked < begun) & (begun - asked <= line.launch_delay_ns)
    return early


def _of_compute(found: Compared, needed: float, surplus: float, on_device: bool) -> str:
    """Why a rank computes longer.

    ``needed`` is the share of it that a cause has to explain, ``surplus`` how many more operators
    the rank ran than its peers (0.1: a tenth more) where those explain it, else 0.
    """
    if found.work is not None and found.work - 1 >= max(needed, MORE_OPERATORS - 1):
        return "more-work"
    if found.memory_pace is not None or (found.pace is not None and found.pace - 1 >= needed):
        return "slow-compute"
    if surplus > 0:
        # A slow rank's stretches last longer and so hold more operators, up to its pace and more.
        pace = found.pace or 1.0
        slow = pace - 1 >= _EXPLAINED * surplus and pace >= max(found.work or 1, MORE_OPERATORS)
        return "slow-compute" if slow else "more-work"
    if found.mean_pace is not None and found.mean_pace - 1 >= needed:
        return "slow-compute"
    # Without operators of equal shapes on both, equal FLOPs say that the work is the same.
    same = found.work is not None and found.pace is None and not on_device
    return "slow-compute" if same else "longer-compute"


def idle_at_begin(line: Timeline, busy: Intervals, steps: Steps) -> Intervals:
    """When a rank idled between the beginning of a step and its first computation from there."""
    begins = np.array(
        [s.start if s.host_start is None else s.host_start for s in steps.steps], dtype=np.int64
    )
    first = np.searchsorted(line.compute_starts, begins)
    computes = first < len(line.compute_starts)
    return Intervals.of(begins[computes], line.compute_starts[first[computes]]) - busy


def _parts(
    rank: int,
    place: int,
    item: Arrivals,
    rows: Int64s,
    lines: Mapping[int, Timeline],
    occupancy: Mapping[int, Occupancy],
    begin_idle: Mapping[int, Intervals],
    loading: Mapping[int, Intervals],
    slowed: Beside | None,
) -> Int64s:
    """Per stretch: compute, idle, idle at a step's begin, loading (ns), operators, copies, what
    transfers slow compute by (ns).

    A host computes for its model; operators inside its data loader load.
    """
    low, high = item.begin[rows, place], item.arrival[rows, place]
    own = occupancy[rank]
    line = lines[rank]
    busy = own.busy
    loads = loading[rank]
    compute = own.compute.covered(low, high)
    lost = np.zeros_like(low) if slowed is None else slowed.lost(low, high)
    idle = np.maximum(high - low, 0) - busy.covered(low, high)
    if not line.on_device and len(loads):
        inside = (own.compute & loads).covered(low, high)
        compute, idle = compute - inside, idle + inside
    at_begin = begin_idle[rank].covered(low, high)
    loader = loads.covered(low, high)
    count = operators_begun(line, low, high)
    copies = own.exposed_memory.covered(low, high)
    return np.stack([compute, idle, at_begin, loader, count, copies, lost]).astype(np.int64)
