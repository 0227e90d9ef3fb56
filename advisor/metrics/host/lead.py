"""Why a GPU idles: the host was late, by its own pace or because a wait took its lead away.

A host runs ahead of its device: work that was launched in time stands in a queue. A call that
waits for the device (``.item()``, a barrier, a blocking copy) ends with the queue empty, so that
the device idles AFTER the call, for as long as the host needs to catch up. Replayed without those
waits each launch comes earlier by all the waiting before it, and what idling that takes away is
the waits' doing; what stays is the host's own pace.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.host.activity import KINDS, OWN_WORK, QUIET, HostActivity
from advisor.metrics.host.stretches import WAITS, Stretches, stretches
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Bools, Int64s, Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING

_NAMED = (
    "garbage-collection", "data-loading", "unused-parameter-scan", "allocator", "graph-capture",
    "loading",
)  # fmt: skip
# A launch takes microseconds, with Python around it a millisecond: this is other work of the host.
PAUSE_NS = 20_000_000
HOOK_NS = 1_000_000
"""Longer than a node of autograd takes to launch its kernels, with Python around it."""
BARRIER = "barrier"


class Gaps(NamedTuple):
    """Idle stretches of a device in order, ns; arrays are parallel.

    The host launched what ends a stretch too late to start before ``until`` (``low`` where it was
    queued in time); ``regained`` of that goes when no call waits for the device. ``kind`` is what
    the host did, ``rest`` what it would be without what ``named`` tells, ``span`` the row of the
    activity of that (-1: none).
    """

    low: Int64s
    high: Int64s
    until: Int64s
    regained: Int64s
    kind: Any
    span: Int64s
    held: Intervals  # when the host waited for the device
    slack: Int64s  # how much earlier the launch would be than the device, without those waits
    launched: Bools  # what ends the stretch has a launch: pages of unified memory move without
    rest: Any
    named: Mapping[str, Intervals]  # when the host did what has a name of its own, none twice
    covered: Mapping[str, Int64s]  # how much of each stretch that fills

    @property
    def by_wait(self) -> Bools:
        """Those in which the host catches up after it waited for the device."""
        return np.isin(self.kind, (*WAITS, BARRIER))

    def in_hooks(self, nodes: Intervals) -> Intervals:
        """Long stretches that nothing names, in a node of autograd: Python that it calls there."""
        long = np.isin(self.kind, ("launch", "pause")) & (self.until - self.low >= HOOK_NS)
        return Intervals.of(self.low[long], self.until[long]) & nodes


class IdleSplit(NamedTuple):
    """A device's idle time between events by what it waited for, disjoint, where that is known."""

    host: Intervals
    launch_gap: Intervals
    sync: Intervals


def split_idle(gaps: Gaps) -> IdleSplit:
    """METRICS section 3: sync is what goes when no call waits for the device."""
    sync = Intervals.of(gaps.low, gaps.low + np.where(gaps.by_wait, gaps.regained, 0))
    late = Intervals.of(gaps.low, gaps.until)
    queued = Intervals.of(gaps.until[gaps.launched], gaps.high[gaps.launched])
    return IdleSplit(host=late - sync, launch_gap=queued, sync=sync)


def device_gaps(
    line: Timeline, occupancy: Occupancy, activity: HostActivity, barriers: Int64s
) -> Gaps | None:
    """The idle stretches of a GPU, None on a CPU. ``barriers``: events of calls that are one."""
    busy = occupancy.busy
    if not line.on_device or len(busy) < 2:
        return None
    found = stretches(line, busy, np.arange(len(line)), activity, busy)
    low, high, until, launch, waits = found.low, found.high, found.until, found.launch, found.waits
    late = found.known & (launch > low)
    kinds = np.full(len(low), "other", dtype=object)
    in_graph = np.zeros(len(low), dtype=bool)
    if line.in_graph is not None:
        in_graph = line.in_graph[found.following]
    kinds[in_graph] = "graph"
    kinds[late] = "launch"
    quiet = _quiet_since(line, found)
    kinds[late & (until - quiet - found.held.covered(quiet, until) >= PAUSE_NS)] = "pause"
    span = np.full(len(low), -1, dtype=np.int64)
    by_wait = (len(waits) > 0) & (2 * found.regained >= np.maximum(high - low, 1))
    needless = np.zeros(len(low), dtype=bool)
    if len(waits):
        before = np.searchsorted(activity.end[waits], launch, side="right") - 1
        by_wait &= before >= 0  # else only the queue was full: what waits later is not to blame
        last = waits[np.maximum(before, 0)]
        of_barrier = _is_barrier(line, activity, last, barriers)
        names = np.array([name for name, _ in KINDS], dtype=object)[activity.kind[last]]
        kinds = np.where(by_wait, np.where(of_barrier, BARRIER, names), kinds)
        needless = by_wait & of_barrier
        span = np.where(by_wait, last, span)
    rows, place = _own_work(line, activity, low, high)
    own = by_wait[place] | (kinds[place] == "launch") & (activity.kind[rows] == QUIET)
    kinds[place[own]], span[place[own]] = "pause", rows[own]
    # What the host did in the stretch comes first; what it waited for before is behind the rest.
    named, told = dict[str, Intervals](), Intervals.empty()
    for kind in _NAMED:
        named[kind] = activity.union(kind) - told
        told |= named[kind]
    covered = {kind: own.covered(low, high) for kind, own in named.items()}
    # A host that no barrier stops loads while its device works.
    covered["data-loading"] = np.where(needless, 0, covered["data-loading"])
    shares = np.array([*covered.values()])
    full = 2 * shares.sum(axis=0) >= high - low
    rest, most = kinds, np.array(_NAMED, dtype=object)[shares.argmax(axis=0)]
    kinds = np.where(full, most, kinds)
    # Freeing device memory waits for the device too; the gap after it has a name of its own.
    freeing = activity.freeing(np.sort(line.launch[line.launch != MISSING])) & busy
    held = found.held | freeing
    return Gaps(
        low, high, until, found.regained, kinds, span, held, found.slack, found.known, rest, named,
        covered,
    )  # fmt: skip


def host_pace(
    line: Timeline, steps: Steps, gaps: Gaps | None, calls: Sequence[Call]
) -> float | None:
    """What a host takes for a step when the device never holds it up, ns: mean over used steps.

    From the first launch of a step to that of the next, less what it waited in between. ``calls``:
    those of its rank.
    """
    if gaps is None:
        return None
    held = gaps.held if len(gaps.held) else _stood(line, calls)
    spent = []
    for step, following in pairwise(steps.steps):
        first, then = np.searchsorted(line.start, [step.start, following.start])
        if then >= len(line) or MISSING in (line.launch[first], line.launch[then]):
            continue
        begin, end = int(line.launch[first]), int(line.launch[then])
        if step.used and following.number == step.number + 1:
            spent.append(end - begin - int(held.covered([begin], [end])[0]))
    return float(np.mean(spent)) if spent else None


def _stood(line: Timeline, calls: Sequence[Call]) -> Intervals:
    """When a device waited in calls for other ranks and its host launched nothing until they ended.

    A host that is free runs ahead then. It waits in ways that no profiler records, such as polling.
    """
    launches = np.sort(line.launch[line.launch != MISSING])
    found = [call for call in calls if call.wait]
    start = np.array([call.start for call in found], dtype=np.int64)
    end = np.array([call.end for call in found], dtype=np.int64)
    waited = start + np.array([call.wait for call in found], dtype=np.int64)
    idle = np.searchsorted(launches, start) == np.searchsorted(launches, end)
    return Intervals.of(start[idle], waited[idle])


class AskedLate(NamedTuple):
    """When communication ran that began as soon as it was asked for, by what held the host up."""

    by_pace: Intervals
    by_wait: Intervals


def asked_late(calls: Sequence[Call], line: Timeline, gaps: Gaps) -> AskedLate:
    """Gathers of parameters that a host further ahead would have started under compute.

    What they gather has been there since the last step, but for the first of a step, which waits
    for the optimizer.
    """
    seen: set[tuple[str | None, int | None]] = set()
    found: list[Call] = []
    for call in calls:
        if call.op != "all_gather" or call.enqueue is None:
            continue
        if (call.group, call.step) in seen and call.start - call.enqueue <= line.launch_delay_ns:
            found.append(call)
        seen.add((call.group, call.step))
    start = np.array([call.start for call in found], dtype=np.int64)
    end = np.array([call.end for call in found], dtype=np.int64)
    before = np.searchsorted(gaps.low, start, side="right") - 1
    slack = np.where(before >= 0, gaps.slack[np.maximum(before, 0)], 0)
    waited = slack >= end - start
    return AskedLate(
        Intervals.of(start[~waited], end[~waited]), Intervals.of(start[waited], end[waited])
    )


def _quiet_since(line: Timeline, found: Stretches) -> Int64s:
    """When each stretch began for the host, whose last launch returned then: what its lead hides of
    a pause is no idle time of the device."""
    launches, returned = line.launch, line.launch if line.returned is None else line.returned
    order = np.argsort(launches)[np.count_nonzero(launches == MISSING) :]
    if not len(order):  # a trace without its runtime calls
        return found.low
    ends = np.maximum.accumulate(np.maximum(launches, returned)[order])
    before = np.searchsorted(launches[order], launches[found.following], side="left") - 1
    last = np.where(before >= 0, ends[np.maximum(before, 0)], found.low)
    quiet: Int64s = np.minimum(last, found.low)
    return quiet


def _own_work(
    line: Timeline, activity: HostActivity, low: Int64s, high: Int64s
) -> tuple[Int64s, Int64s]:
    """Rows of the activity that are mostly one stretch and fill most of it, and the stretches: what
    a script names itself, such as saving a checkpoint. The one nearest to each comes last."""
    rows = np.flatnonzero(
        (activity.kind >= OWN_WORK) & np.isin(activity.thread, np.unique(line.thread))
    )
    start, end = activity.start[rows], activity.end[rows]
    place = np.maximum(np.searchsorted(low, (start + end) // 2, side="right") - 1, 0)
    shared = np.minimum(end, high[place]) - np.maximum(start, low[place])
    fit = shared / np.maximum(end - start, (high - low)[place])
    order = np.argsort(fit, kind="stable")
    order = order[fit[order] >= 0.5]
    return rows[order], place[order]


def _is_barrier(line: Timeline, activity: HostActivity, waits: Int64s, barriers: Int64s) -> Bools:
    """Whether what the host had launched last when each wait ended was a barrier."""
    order = np.argsort(line.launch, kind="stable")
    place = np.searchsorted(line.launch[order], activity.end[waits], side="right") - 1
    return np.isin(line.event_id[order[np.maximum(place, 0)]], barriers)
