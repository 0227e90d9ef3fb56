"""Stretches in which a device lacks work, and how much of each goes when no call waits for it."""

from typing import NamedTuple

import numpy as np

from advisor.metrics.host.activity import KINDS, HostActivity
from advisor.metrics.host.queue import told_to_wait
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Bools, Int64s, Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline
from advisor.store.columns import MISSING

WAITS = ("synchronisation", "blocking-copy")
# Launches that a stream's queue holds, before the next one blocks: "about 1000" by measurement
# (NVIDIA developer forums 68937, Stack Overflow 53970187). A host is no further ahead than that.
_QUEUED = 1_024


class Stretches(NamedTuple):
    """Stretches in which a device does nothing of some kind, as :class:`Gaps` has them.

    ``following``: what ends each, ``known``: whether it has a ``launch``; ``waits``: rows of the
    activity in which the host waited.
    """

    low: Int64s
    high: Int64s
    until: Int64s
    regained: Int64s
    following: Int64s
    known: Bools
    launch: Int64s
    waits: Int64s
    held: Intervals
    slack: Int64s


def stretches(
    line: Timeline, work: Intervals, events: Int64s, activity: HostActivity, busy: Intervals
) -> Stretches:
    """Between the ``work`` of a device, which ``events`` of it do: by start."""
    low, high = work.end[:-1], work.start[1:]
    start = line.start[events]
    following = events[np.minimum(np.searchsorted(start, high, side="left"), len(events) - 1)]
    known = line.launch[following] != MISSING
    launch = enqueued(line.launch[following], high, activity.union("loading"))
    # From a launch to the device on an idle stream; what takes longer waits for something else.
    late = known & (launch > low)
    alone = np.flatnonzero(late)[busy.covered(launch[late], high[late]) == 0]
    usual = int(np.median((high - launch)[alone])) if len(alone) else 0
    back = np.minimum(_returned(line, following, launch), high)
    until = np.where(known, np.clip(np.maximum(launch + usual, back), low, high), low)
    launch = np.where((launch <= low) & (back > low), back, launch)
    waits = _waits(line, activity)
    # A device that idles has room in its queue: what takes long meanwhile does something else.
    held = Intervals.of(activity.start[waits], activity.end[waits]) | (activity.queue_full & busy)
    lost = _lost(held, launch, known)
    ahead = _ahead(until - low, lost)
    regained = np.minimum(np.diff(ahead, prepend=0), _longest_lead(line, busy, launch, low))
    return Stretches(
        low, high, until, regained, following, known, launch, waits, held, lost - ahead
    )


def held_compute(
    line: Timeline, occupancy: Occupancy, activity: HostActivity, waits: Int64s
) -> Intervals:
    """When no compute ran that would have, had no call waited for the device.

    ``waits``: see :func:`stream_waits`. What a stream was told to wait for may be what it waits
    for, however early it is launched; where no record says what streams wait for, nothing is known.
    """
    compute = np.flatnonzero(line.kind == COMPUTE)
    if not len(waits) or len(occupancy.compute) < 2:
        return Intervals.empty()
    found = stretches(line, occupancy.compute, compute, activity, occupancy.busy)
    known = np.flatnonzero((line.launch != MISSING) & np.isin(line.kind, (COMPUTE, COMM)))
    order = known[np.argsort(line.launch[known], kind="stable")]
    told = np.ones(len(line), dtype=bool)
    told[order] = told_to_wait(line, order, waits)
    free = found.known & ~told[found.following]
    return Intervals.of(found.low[free], (found.low + found.regained)[free])


def kept_alone(exposed: Intervals, held: Intervals, transfers: Intervals | None) -> Intervals:
    """Exposed communication that held compute would have run beside: what moved data, where that
    is known (``transfers``), as who waits for a peer waits whatever runs beside it."""
    return exposed & held if transfers is None else exposed & held & transfers


def enqueued(launch: Int64s, start: Int64s, loading: Intervals) -> Int64s:
    """When the device got each launch: a call that loads the kernel first hands it over last."""
    if not len(loading):
        return launch
    place = np.maximum(np.searchsorted(loading.start, launch, side="right") - 1, 0)
    inside = (launch >= loading.start[place]) & (launch < loading.end[place])
    return np.where(inside, np.minimum(loading.end[place], start), launch)


def _returned(line: Timeline, following: Int64s, launch: Int64s) -> Int64s:
    """When each kernel's launching call ended: it may load it first, and hands it over last.

    A copy's call waits for the copy, and a graph's nodes are handed over with the first of them.
    """
    if line.returned is None:
        return launch
    kernel = np.isin(line.kind[following], (COMPUTE, COMM)) & (launch != MISSING)
    if line.in_graph is not None:
        kernel &= ~line.in_graph[following]
    return np.where(kernel, line.returned[following], launch)


def _waits(line: Timeline, activity: HostActivity) -> Int64s:
    """Rows of the activity in which a thread that launches waited for its device, by their ends."""
    numbers = [place for place, (name, _) in enumerate(KINDS) if name in WAITS]
    threads = np.unique(line.thread)
    chosen = np.isin(activity.kind, numbers) & np.isin(activity.thread, threads)
    found = np.flatnonzero(chosen)
    return found[np.lexsort((-activity.start[found], activity.end[found]))]


def _lost(held: Intervals, launch: Int64s, known: Bools) -> Int64s:
    """How long the host had waited in all before each launch, ns; never falling."""
    if not len(held):
        return np.zeros(len(launch), dtype=np.int64)
    before = held.covered(np.full(len(launch), held.start[0]), launch)
    return np.maximum.accumulate(np.where(known, before, 0))


def _ahead(late: Int64s, lost: Int64s) -> Int64s:
    """How much earlier the device would be after each stretch had the host never waited, ns.

    ahead(i) = min(ahead(i-1) + late(i), lost(i)): a stretch closes as far as the launch that ends
    it comes earlier.
    """
    total = np.cumsum(late)
    return total + np.minimum(0, np.minimum.accumulate(lost - total))


def _longest_lead(line: Timeline, busy: Intervals, launch: Int64s, low: Int64s) -> Int64s:
    """What the device does of a full queue before each stretch, ns: a host that never waits is
    ahead by that at most, so that no pause of it is hidden for longer."""
    launches, first = np.unique(line.launch, return_index=True)
    oldest = np.searchsorted(launches, launch) - _QUEUED
    begun = np.where(oldest >= 0, line.start[first[np.maximum(oldest, 0)]], line.start[0])
    return busy.covered(np.minimum(begun, low), low)
