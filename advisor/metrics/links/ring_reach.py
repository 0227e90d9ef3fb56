"""When each rank leaves a channel's ring at the earliest, by when all came and what is slow.

Of one channel, in ns: what paths through a ring take (rings/nccl.py) is stretched to the time that
the call takes in all.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from advisor.metrics.links.ring_blocks import Block
from advisor.metrics.rings.nccl import MOST_LOOPS, PASSES, Protocol, ends_after, paths_after
from advisor.metrics.rings.schedule import paths_through
from advisor.metrics.timeline.intervals import Bools, Int64s
from advisor.statistics import Floats

FACTORS: Floats = np.array([1.25, 2.0, 4.0])
"""How many times as long the slow edge takes: its pattern depends on that but little."""
ADDED_NS: Floats = np.geomspace(2e4, 2e8, 47)
"""By what a distant host may lengthen each pass of a call over it: from what some km of cable add
to what TCP's retransmissions do."""
_SHORT = 1e-6
"""What a slice takes where only how far it goes counts."""
_DELAYS: Floats = np.append(0.0, np.exp2(np.arange(-3.0, 12.0)))
"""Of an edge, in times of a slice, between which is interpolated."""
_MOST_KEPT_BYTES = 64 << 20
"""Of tables that are needed again: beyond it they are worked out again."""
_MOST_PATHS_BYTES = 4 * _MOST_KEPT_BYTES
"""Paths take far longer to work out; those of 64 ranks on eight hosts are 120 MB."""

MOST_AT_ONCE = 200_000
"""Numbers of which the latest are taken together: what a processor's cache holds."""


class Assumed(NamedTuple):
    """What is not known of a ring: which kind of order, whether who comes early sends before all
    have come, whether kernels write over NVLink, how long that takes a slice in a NIC's time, which
    part of a call's time its messages are on their way between hosts, and the protocol."""

    order: int
    early: bool
    written: bool
    fast: float
    hop: float
    protocol: Protocol


class _Kept:
    """Arrays that are needed again, up to so many bytes."""

    def __init__(self, most_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._arrays: dict[Hashable, Floats] = {}
        self._bytes, self._most_bytes = 0, most_bytes

    def get(self, key: Hashable) -> Floats | None:
        return self._arrays.get(key)

    def keep(self, key: Hashable, array: Floats) -> None:
        self._bytes += array.nbytes
        if self._bytes > self._most_bytes:
            self._arrays.clear()
            self._bytes = array.nbytes
        self._arrays[key] = array


class Reach:
    """When ranks leave channels, worked out once as far as there is room."""

    def __init__(self) -> None:
        self._reached, self._times, self._paths = _Kept(), _Kept(), _Kept(_MOST_PATHS_BYTES)

    def of(
        self,
        block: Block,
        at: tuple[int, ...],
        slow: Bools,
        within: Bools,
        loops: Floats,
        latency: bool,
        some_slow: bool,
        assumed: Assumed,
    ) -> Floats:
        """When each rank leaves one channel at the earliest, by host that it has to wait for, rank,
        call, loops and level; where nobody sends early, of one host and call. ``at``: the rank at
        each of the ring's positions; ``some_slow``: some edge of the block's channels is, so that
        levels are how slow."""
        # Rings whose hosts are alike only turn with the location.
        width = len(within) // max(1, int((~within).sum()))
        turn = int(slow.argmax()) // width * width
        if turn and (_turned(within, turn) == within).all():
            at, slow = (*at[turn:], *at[:turn]), _turned(slow, turn)
        shape = (slow.tobytes(), within.tobytes(), loops.tobytes())
        key = (*shape, latency, some_slow, assumed[1:])
        at_once = block.long and not block.starts_ns.any()
        own_key = (block, at_once or at, *key)
        known = self._reached.get(own_key)
        if known is None and block.long:
            known = self._simulated(block, at, slow, within, loops, some_slow, assumed)
            self._reached.keep(own_key, known)
        if known is not None:
            return known[:, np.argsort(at)] if block.long else known
        # Whichever clocks are off, and whether who comes early sends early.
        alike = (block.op, block.time_ns, block.gloo, *key[:-1], assumed[2:])
        times = self._times.get(alike)
        if times is None:
            times = self._times_of(block, slow, within, loops, latency, some_slow, assumed)
            self._times.keep(alike, times)
        starts, own = block.starts_ns[:, at].T[:, :, None, None, None], block.hosts[list(at)]
        if not assumed.early:  # one call is as another
            starts, own = np.zeros_like(starts[:, :1]), np.zeros_like(own)
        found = np.empty((int(own.max()) + 1, len(at), starts.shape[1], *times.shape[1:3]))
        place = np.argsort(at)
        together = max(1, MOST_AT_ONCE // (times[0].size * starts.shape[1]))
        for host, row in enumerate(found):
            waits = np.flatnonzero(own == host)
            latest: Floats | None = None
            for first in range(0, len(waits), together):
                some = waits[first : first + together]
                later = (starts[some] + times[some, None]).max(axis=0)
                latest = later if latest is None else np.maximum(latest, later, out=latest)
            assert latest is not None
            row[...] = latest.transpose(3, 0, 1, 2)[place]
        self._reached.keep(own_key, found)
        return found

    def _simulated(
        self,
        block: Block,
        at: tuple[int, ...],
        slow: Bools,
        within: Bools,
        loops: Floats,
        some_slow: bool,
        assumed: Assumed,
    ) -> Floats:
        """When the ring's positions leave, as its ranks came: by host (one), position, call, loops
        and level."""
        pace = FACTORS if some_slow else np.ones(1)
        healthy = np.where(within & ~within.all(), assumed.fast, 1.0)
        takes = np.where(slow, pace[:, None], healthy)
        slices = PASSES[block.op] * (len(at) - 1) * assumed.protocol.slices * loops
        unit_ns = block.time_ns / (slices[:, None] * pace)
        calls, units_ns = block.starts_ns, unit_ns
        if not calls.any():  # who comes at once leaves at the same part of any time
            calls, units_ns = calls[:1], unit_ns[:1]
        starts = calls[:, at].T[:, None, :, None] / units_ns.T[:, None]
        counts = [min(int(number), MOST_LOOPS) for number in loops]
        found = ends_after(
            block.op,
            starts.reshape(*starts.shape[:2], -1),
            takes,
            sorted(set(counts)),
            within if assumed.written else None,
            protocol=assumed.protocol,
        )
        by_count = dict(zip(sorted(set(counts)), found, strict=True))
        ends = np.empty((1, len(at), len(block.starts_ns), len(loops), len(pace)))
        for place, count in enumerate(counts):
            own = by_count[count].reshape(len(pace), len(at), len(calls), -1)
            own = own[..., min(place, len(units_ns) - 1)]
            ends[0, :, :, place] = (own * unit_ns[place][:, None, None]).transpose(1, 2, 0)
        return ends

    def _times_of(
        self,
        block: Block,
        slow: Bools,
        within: Bools,
        loops: Floats,
        latency: bool,
        some_slow: bool,
        assumed: Assumed,
    ) -> Floats:
        """From the arrival at a position to when ranks leave, by loops, level and position, ns."""
        which = np.minimum(loops, MOST_LOOPS).astype(np.intp) - 1
        table = self._paths_of(block, slow, within, latency, assumed, int(which.max()) + 1)
        slices = PASSES[block.op] * (len(slow) - 1) * assumed.protocol.slices * loops
        if latency:
            times = _delayed(block, table, which, slices)
        else:
            pace = FACTORS if some_slow else np.ones(1)
            chosen = table if slow.any() else np.repeat(table, len(pace), axis=1)
            unit_ns = block.time_ns / (slices[:, None] * pace)
            times = unit_ns[..., None, None] * chosen[which]
        return np.ascontiguousarray(np.moveaxis(times, 3, 0))

    def _paths_of(
        self,
        block: Block,
        slow: Bools,
        within: Bools,
        latency: bool,
        assumed: Assumed,
        most: int,
    ) -> Floats:
        """By number of loops (``most`` or more) and level, in what a slice takes over a link that
        is not slow."""
        op = block.op
        key = (op, block.gloo, slow.tobytes(), within.tobytes(), latency, assumed[2:])
        known = self._paths.get(key)
        if known is None or len(known) < most:
            healthy = np.where(within & ~within.all(), assumed.fast, 1.0)
            takes, delays = healthy[None], np.zeros((1, len(slow)))
            if latency:
                delays = _DELAYS[:, None] * slow
                takes = np.repeat(takes, len(delays), axis=0)
            elif slow.any():
                takes = np.where(slow, FACTORS[:, None], healthy)
                delays = np.zeros_like(takes)
            writes = within if assumed.written else None
            if block.gloo:
                known = self._through(op, takes, delays, ~within, assumed)[None]
            else:
                loops = range(1, most + 1)
                known = np.array(paths_after(op, takes, loops, writes, delays, assumed.protocol))
            self._paths.keep(key, known)
        return known

    def _through(
        self, op: str, takes: Floats, delays: Floats, between: Bools, assumed: Assumed
    ) -> Floats:
        """The same of gloo's ring, whose hosts are as far apart as assumed."""
        each, hop = assumed.protocol.slices, assumed.hop
        if not hop or not between.any():
            return paths_through(op, takes, delays, each)
        healthy = np.where(between, 1.0, assumed.fast)
        parts = np.stack([healthy, _SHORT * healthy])
        sent, held = paths_through(op, parts, np.outer([0.0, 1.0], between), each).max(axis=(1, 2))
        left, far = max(1 - hop, _SHORT), hop * sent / held * between
        scale = sent / paths_through(op, left * healthy[None], far[None], each).max()
        found = paths_through(op, scale * left * takes, delays + scale * far, each)
        if not delays.any():  # else it is what they add that is looked up
            found *= (sent * takes.max(axis=1) / found.max(axis=(1, 2)))[:, None, None]
        return found


def _turned(ring: Bools, by: int) -> Bools:
    return np.concatenate([ring[by:], ring[:by]])  # numpy's roll takes ten times as long


def _delayed(block: Block, table: Floats, which: Int64s, slices: Floats) -> Floats:
    """ns that the paths take where a call is longer by each of ``ADDED_NS`` in each pass.

    How long a delay that makes in slices is looked up: paths are piecewise linear in it.
    """
    longest = table.max(axis=(2, 3))
    factors = (longest / longest[:, :1])[which]
    left = np.maximum(block.time_ns - PASSES[block.op] * ADDED_NS, _SHORT * block.time_ns)
    times = np.empty((len(slices), len(ADDED_NS), *table.shape[2:]))
    for row, (kind, number) in enumerate(zip(which, slices, strict=True)):
        at = np.interp(block.time_ns / left, factors[row], np.arange(len(_DELAYS)))
        low = np.minimum(at.astype(np.intp), len(_DELAYS) - 2)
        part = (at - low)[:, None, None]
        own = table[kind]
        times[row] = (own[low] * (1 - part) + own[low + 1] * part) * (left / number)[:, None, None]
    return times
