"""How each slow location would stagger the ends of a group's rings, and how likely that makes them.

NCCL's schedule (rings/nccl.py) says when each rank leaves by when all came; how long a slice takes,
which rings there are, and who writes over NVLink is not known: all of it is averaged over. Who
leaves when by who came late needs no common clock, and tells the sender of a slow edge where the
usual order could be clocks that are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from advisor.metrics.links.locations import Location
from advisor.metrics.links.ring_lags import Block, Lags
from advisor.metrics.links.ring_orders import Orders
from advisor.metrics.links.unexplained import Left, joined, left_of, widened
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import LOW_LATENCY, MOST_LOOPS, PASSES, SIMPLE, Protocol, paths
from advisor.metrics.timeline.intervals import Bools, Int64s
from advisor.metrics.timeline.statistics import Floats

FACTORS: Floats = np.array([1.25, 2.0, 4.0])
"""How many times as long the slow edge takes: its pattern depends on that but little."""
_IN_LOOP: Floats = np.exp2(np.arange(19.0, 26.0))
"""Bytes of a rank that one loop takes: 2 MiB a channel by Simple, 0.3 by LL128, 2 to 32 channels
(src/include/collectives.h, src/graph/search.cc). The more, the longer a slice."""
_INSIDE = (0.1, 0.3, 0.7)
"""How long NVLink takes a slice, in a NIC's time: with one NIC a host (12.5 of an A100's 300 GB/s)
and with one a GPU, which share it (25 of 300 / 8, 50 of 450 / 8)."""

_HEALTHY = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
"""The same if nothing is slow: what finer steps explain is not to be called a slow link. They go
down to where a rail that is slow everywhere would be: a machine with one NIC has no more."""

ADDED_NS: Floats = np.geomspace(2e4, 2e7, 36)
"""By what a distant host may lengthen each pass of a call over it: from what some km of cable add
to what TCP's retransmissions do."""
_PROTOCOLS = {SIMPLE: 0.75, LOW_LATENCY: 0.25}
"""What calls large enough to be looked at use: LL128 is for those up to some MB."""
_DELAYS: Floats = np.append(0.0, np.exp2(np.arange(-3.0, 12.0)))
"""Of an edge, in times of a slice, between which is interpolated."""
_MOST_ROUNDS = 4
"""Until starts and ends agree on the clocks: each moves what is left by what paths leave open."""


class Patterns:
    """How each location staggers the ends of a group's rings, worked out once per shape."""

    def __init__(self, home: Mapping[int, Home], slot: Mapping[int, int]) -> None:
        self.home, self.slot = home, slot
        self._known: dict[object, Floats] = {}
        self._left: dict[object, Left] = {}
        self._orders = Orders(home, slot)

    def of(self, lags: Lags, location: Location | None, roughly: bool = False) -> Left | None:
        """What a location leaves unexplained of the ends, by what is not known (the kind of ring
        order, who writes over NVLink, how fast that is, the protocol, a loop's bytes) and level.
        None where it is in none of these rings. Without a location, if nothing is slow.
        ``roughly``: for one usual NVLink only.
        """
        # How fast NVLink is beside the NICs is open anyway: all links alike show in no order.
        if location and (
            (location.kind == "all" and not location.latency)
            or not any(location.staggers(one.members, self.home) for one in lags.blocks)
        ):
            return None
        orders = max(len(self._orders.of(block)) for block in lags.blocks)
        # NICs that are slow hide who writes over NVLink.
        written = (True,) if (location and not location.inside) or roughly else (False, True)
        inside = _INSIDE[1:2] if roughly else _INSIDE if location else _HEALTHY
        some = list(product(range(orders), written, inside, _PROTOCOLS))
        rows = [[self._of_block(one, location, *each) for one in lags.blocks] for each in some]
        levels = max(one.varied.shape[1] for one in rows[0])
        found = []
        for row, (*_, protocol) in zip(rows, some, strict=True):
            alike = joined([widened(one, levels) for one in row])
            found.append(alike.weighed(len(_PROTOCOLS) * _PROTOCOLS[protocol]))
        # As likely it is no ring, but a tree, or done in the switch: then nobody's start shows.
        other = joined([widened(left_of(one.ends_ns.T[..., None, None], one.near), levels)
                         for one in lags.blocks])  # fmt: skip
        found.append(other.weighed(sum(len(one.varied) for one in found)))
        return Left(
            np.concatenate([one.usual for one in found]),
            np.concatenate([one.varied for one in found]),
        )

    def _of_block(
        self,
        block: Block,
        location: Location | None,
        order: int,
        written: bool,
        fast: float,
        protocol: Protocol,
    ) -> Left:
        """By a loop's bytes and level.

        Clocks that are off shift starts as they shift ends: they are put right, host by host, until
        both fit.
        """
        edges, inside, positions = self._orders.rings_of(block, order)
        slow = np.zeros_like(inside)
        if location is not None and location.staggers(block.members, self.home):
            nics = [(self.home[r], self.slot[r]) for r in location.ranks]
            slow = np.array([[location.slows_edge(a, b, nics) for a, b in ring] for ring in edges])
        latency = location is not None and location.latency and bool(slow.any())
        key = (id(block), slow.tobytes(), latency, order, written, fast, protocol)
        if key in self._left:
            return self._left[key]
        loops, again = np.unique(_loops(block), return_inverse=True)
        some_slow = bool(slow.any()) and not latency
        levels = len(ADDED_NS) if latency else len(FACTORS) if some_slow else 1
        channels = [
            self._reached(
                block, tuple(at), own, within, loops, latency, some_slow, written, fast, protocol
            )
            for own, within, at in zip(slow, inside, positions, strict=True)
        ]
        reached = np.stack(channels, axis=2)
        # Channels that are not slow end early.
        last = np.full((len(slow), levels), block.time_ns)
        if some_slow:
            last[~slow.any(axis=1)] /= FACTORS
        late = self._settled(block, reached, last)
        found = left_of(late, block.near)
        if latency:
            found.varied[:, PASSES[block.op] * ADDED_NS >= block.time_ns] = -np.inf
        self._left[key] = Left(found.usual[again], found.varied[again])
        return self._left[key]

    def _settled(self, block: Block, reached: Floats, last: Floats) -> Floats:
        """Ends less those of a kernel that ends with its last channel, by rank, call, a loop's
        bytes and level."""
        hosts = len(reached)
        off = np.zeros((hosts, 1, 1, 1, *reached.shape[4:]))
        measured = block.ends_ns.T[..., None, None]
        for number in range(_MOST_ROUNDS):
            left = np.maximum.reduce([own + by for own, by in zip(reached, off, strict=True)])
            left += last[:, None, None, :] - left.max(axis=0)
            late: Floats = measured - left.max(axis=1)
            late -= late.mean(axis=0)
            if hosts < 2 or number == _MOST_ROUNDS - 1:
                break
            usual = np.median(late, axis=1)
            for host in range(hosts):
                off[host] = -usual[block.hosts == host].mean(axis=0)
        return late

    def _reached(
        self,
        block: Block,
        at: tuple[int, ...],
        slow: Bools,
        within: Bools,
        loops: Floats,
        latency: bool,
        some_slow: bool,
        written: bool,
        fast: float,
        protocol: Protocol,
    ) -> Floats:
        """When each rank leaves one channel at the earliest, by host that it has to wait for, rank,
        call, loops and level."""
        key = (id(block), at, slow.tobytes(), latency, some_slow, written, fast, protocol)
        if key not in self._known:
            count = len(at)
            once = (loops > 1).astype(np.intp)
            counts = (1, MOST_LOOPS)[: int(once.max()) + 1]
            table = self._paths_of(block.op, slow, within, latency, written, fast, protocol, counts)
            slices = PASSES[block.op] * (count - 1) * protocol.slices * loops
            if latency:
                times = _delayed(block, table, once, slices)
            else:
                pace = FACTORS if some_slow else np.ones(1)
                chosen = table if slow.any() else np.repeat(table, len(pace), axis=1)
                unit_ns = block.time_ns / (slices[:, None] * pace)
                times = unit_ns[..., None, None] * chosen[once]
            left = block.starts_ns[:, None, None, None, at] + times
            result = np.empty((int(block.hosts.max()) + 1, count, *left.shape[:3]))
            own = block.hosts[list(at)]
            for host, row in enumerate(result):
                row[list(at)] = np.moveaxis(left[..., own == host].max(axis=4), 3, 0)
            self._known[key] = result
        return self._known[key]

    def _paths_of(
        self,
        op: str,
        slow: Bools,
        within: Bools,
        latency: bool,
        written: bool,
        fast: float,
        protocol: Protocol,
        loops: tuple[int, ...],
    ) -> Floats:
        """By number of loops and level, in what a slice takes over a link that is not slow."""
        key = (op, slow.tobytes(), within.tobytes(), latency, written, fast, protocol, loops)
        if key in self._known:
            return self._known[key]
        # Rings whose hosts are alike only turn with the location.
        width = len(within) // max(1, int((~within).sum()))
        turn = int(slow.argmax()) // width * width
        turned = np.roll(slow, -turn)
        if turn and (np.roll(within, -turn) == within).all():
            first = self._paths_of(op, turned, within, latency, written, fast, protocol, loops)
            found = np.roll(first, (turn, turn), axis=(2, 3))
        else:
            healthy = np.where(within & ~within.all(), fast, 1.0)
            takes, delays = healthy[None], np.zeros((1, len(slow)))
            if latency:
                delays = _DELAYS[:, None] * slow
                takes = np.repeat(takes, len(delays), axis=0)
            elif slow.any():
                takes = np.where(slow, FACTORS[:, None], healthy)
            writes = within if written else None
            found = np.array([paths(op, takes, n, writes, delays, protocol) for n in loops])
        self._known[key] = found
        return found


def _loops(block: Block) -> Floats:
    loops: Floats = np.ceil(block.bytes / len(block.members.ranks) / _IN_LOOP)
    return loops


def _delayed(block: Block, table: Floats, once: Int64s, slices: Floats) -> Floats:
    """ns that the paths take where a call is longer by each of ``ADDED_NS`` in each pass.

    How long a delay that makes in slices is looked up: paths are piecewise linear in it.
    """
    longest = table.max(axis=(2, 3))
    factors = (longest / longest[:, :1])[once]
    left = np.maximum(block.time_ns - PASSES[block.op] * ADDED_NS, 0.01 * block.time_ns)
    times = np.empty((len(slices), len(ADDED_NS), *table.shape[2:]))
    for row, (kind, number) in enumerate(zip(once, slices, strict=True)):
        at = np.interp(block.time_ns / left, factors[row], np.arange(len(_DELAYS)))
        low = np.minimum(at.astype(np.intp), len(_DELAYS) - 2)
        part = (at - low)[:, None, None]
        own = table[kind]
        times[row] = (own[low] * (1 - part) + own[low + 1] * part) * (left / number)[:, None, None]
    return times


def log_likelihoods(lags: Lags, left: Left | None, nothing: Left) -> Floats:
    """By level the logarithm of how likely the ends are, less that if nothing is slow, by what each
    leaves of them unexplained. None is for what does not touch these rings."""
    healthy = _mean_of(_whitened(lags, nothing)[:, :1], 0)
    return _mean_of(_whitened(lags, left), 0) - healthy if left is not None else np.zeros(1)


def _whitened(lags: Lags, left: Left) -> Floats:
    """By row and level, over all errors of the model and the clocks."""
    logs = [
        scale - 0.5 * ((left.usual @ inverse.T) ** 2).sum(axis=2)
        for inverse, scale in lags.whitening
    ]
    return _mean_of(np.array(logs), 0) + left.varied


def _mean_of(logs: Floats, axis: int) -> Floats:
    """Logarithm of the mean of what ``logs`` are the logarithms of."""
    most = logs.max(axis=axis, keepdims=True)
    result: Floats = np.squeeze(
        most + np.log(np.exp(logs - most).mean(axis=axis, keepdims=True)), axis=axis
    )
    return result
