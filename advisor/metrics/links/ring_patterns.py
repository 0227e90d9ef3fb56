"""How each slow location would stagger the ends of a group's rings, and how likely that makes them.

NCCL's schedule (rings/nccl.py) gives the pattern; how large it is, which rings there are, and who
writes over NVLink is not known: all of it is averaged over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.links.locations import SHARED, Location, Nic
from advisor.metrics.links.ring_lags import LEFT, LEFT_ERROR, Block, Lags
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import MOST_LOOPS, ring_ends
from advisor.metrics.rings.schedule import GLOO_RINGS
from advisor.metrics.timeline.statistics import Floats

FACTORS: Floats = np.array([1.25, 2.0, 4.0])
"""How many times as long the slow edge takes: its pattern depends on that but little."""
_LOOPS = (1, MOST_LOOPS)
"""Of one loop the pattern is simulated, and of those after which it repeats."""
_SHARES: Floats = np.array([1.0, 1 / 3, 1 / 9])
"""What more loops leave of it. 2 MiB per rank and channel take a loop (src/include/collectives.h):
4 MB over two ranks and 24 channels take one, 300 MB over four ranks and two channels take 19."""
_INSIDE = 0.1
"""NVLink passes a slice on in a tenth of a NIC's time (450 against 50 GB/s on an H100 machine)."""

_Channel = tuple[tuple[int, ...], int | None]
"""Ranks in ring order, and the number of the GPU beside the NIC it goes through."""
_Edges = list[list[tuple[Nic, Nic]]]
_Seen = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]


class Patterns:
    """How each location staggers the ends of a group's rings, worked out once per shape."""

    def __init__(
        self, home: Mapping[int, Home], slot: Mapping[int, int], *, gloo: bool = False
    ) -> None:
        self.home, self.slot, self.gloo = home, slot, gloo
        self._known: dict[object, tuple[Floats, Floats]] = {}
        self._orders: dict[object, list[list[_Channel]]] = {}
        self._edges_of: dict[object, _Seen | None] = {}
        self._rings: dict[object, tuple[_Edges, NDArray[np.bool_], NDArray[np.int64]]] = {}

    def of(self, lags: Lags, location: Location) -> Floats | None:
        """Row per kind of ring order, number of loops, who writes over NVLink, and factor: the
        ends, ns, centred; None where it is in none of these rings."""
        if not any(location.staggers(one.members, self.home) for one in lags.blocks):
            return None
        rows = []
        orders = max(len(self._orders_of(block)) for block in lags.blocks)
        written = (False, True) if location.inside else (True,)  # NICs hide who writes over NVLink
        for order, loops, by_sender in product(range(orders), _LOOPS, written):
            shapes = [self._shape(one, location, order, loops, by_sender) for one in lags.blocks]
            rows.append(np.concatenate(shapes, axis=1))
        return np.concatenate(rows)

    def _shape(
        self, block: Block, location: Location, order: int, loops: int, written: bool
    ) -> Floats:
        count = len(block.members.ranks)
        seen = self._seen(block, location, order)
        if seen is None:
            return np.zeros((len(FACTORS), count))
        slow, inside, positions = seen
        shape: Floats = block.time_ns * self._ends(
            block.op, slow, inside, positions, loops, written=written
        )
        return shape

    def _seen(self, block: Block, location: Location, order: int) -> _Seen | None:
        """Which edges of each channel are slow and which within hosts, and each channel's ranks."""
        key = (block.members, location, order)
        if key not in self._edges_of:
            self._edges_of[key] = self._look(block, location, order)
        return self._edges_of[key]

    def _look(self, block: Block, location: Location, order: int) -> _Seen | None:
        if not location.staggers(block.members, self.home):
            return None
        rings = (block.members, order)
        if rings not in self._rings:
            known = self._orders_of(block)
            channels = known[min(order, len(known) - 1)]
            ranks = block.members.ranks
            edges = self._edges(channels)
            self._rings[rings] = (
                edges,
                np.array([[a[0] == b[0] for a, b in ring] for ring in edges]),
                np.array([[ranks.index(r) for r in ring] for ring, _ in channels]),
            )
        edges, inside, positions = self._rings[rings]
        nics = [(self.home[r], self.slot[r]) for r in location.ranks]
        slow = np.array([[location.slows_edge(a, b, nics) for a, b in ring] for ring in edges])
        return (slow, inside, positions) if slow.any() else None

    def _ends(
        self,
        op: str,
        is_slow: NDArray[np.bool_],
        within: NDArray[np.bool_],
        at: NDArray[np.int64],
        loops: int,
        *,
        written: bool,
    ) -> Floats:
        """A row per factor: ends by rank of the group, of the channel that ends last there."""
        each = [
            self._channel(op, slow, inside, loops, written=written)
            for slow, inside in zip(is_slow, within, strict=True)
        ]
        longest = np.max([length for length, _ in each], axis=0)
        rows: Floats = np.zeros((len(FACTORS), at.shape[1]))
        for (length, ends), order in zip(each, at, strict=True):
            ended = (1.0 + ends) * (length / longest)[:, None]
            rows[:, order] = np.maximum(rows[:, order], ended)
        rows -= rows.mean(axis=1, keepdims=True)
        return rows

    def _channel(
        self,
        op: str,
        is_slow: NDArray[np.bool_],
        within: NDArray[np.bool_],
        loops: int,
        *,
        written: bool,
    ) -> tuple[Floats, Floats]:
        """By factor, what the slowest edge takes; and the ends by position of one ring."""
        own = (op, is_slow.tobytes(), within.tobytes(), loops, written)
        if own in self._known:
            return self._known[own]
        # Rings whose hosts are alike only turn with the location.
        width = len(within) // max(1, int((~within).sum()))
        turn = int(is_slow.argmax()) // width * width
        turned = np.roll(is_slow, -turn)
        if not (np.roll(within, -turn) == within).all():
            turn, turned = 0, is_slow
        key = (op, turned.tobytes(), within.tobytes(), loops, written)
        if key not in self._known:
            # NVLink shows in rings between hosts only where it is slower than their NICs.
            fast = np.where(within, _INSIDE, 1.0) if not within.all() else np.ones(len(within))
            takes = np.where(turned, FACTORS[:, None], fast)
            found = ring_ends(op, takes, loops=loops, written=within if written else None)
            self._known[key] = (takes.max(axis=1), found)
        length, ends = self._known[key]
        self._known[own] = (length, np.roll(ends, turn, axis=1))
        return self._known[own]

    def _orders_of(self, block: Block) -> list[list[_Channel]]:
        key = (block.members, block.op if self.gloo else None)
        if key not in self._orders:
            self._orders[key] = self._find_orders(block)
        return self._orders[key]

    def _find_orders(self, block: Block) -> list[list[_Channel]]:
        """Per kind of order, the channels.

        Where no log has the rings: one per NIC, in at the first GPU beside it and round the host to
        the one before that or, as NCCL's logs have it (0 7 6 5 4 3 2 1 8 15 ...: NVIDIA/nccl issues
        514 and 1412), the other way, for NICs that one, two or four GPUs share; and one for all.
        """
        ranks = block.members.ranks
        if self.gloo:  # one ring, each operation its own way around
            one_ring = ranks[::-1] if GLOO_RINGS.get(block.op, (-1, 1))[0] > 0 else ranks
            return [[(one_ring, None)]]
        if block.rings:
            return [[(ring, None) for ring in block.rings]]
        hosts: dict[Home, list[int]] = defaultdict(list)
        for rank in ranks:
            hosts[self.home[rank]].append(rank)
        found: list[list[_Channel]] = []
        if len(hosts) not in (1, len(ranks)):
            for width, way in product(SHARED, (1, -1)):
                channels: list[_Channel] = []
                for nic in sorted({self.slot[rank] // width for rank in ranks}):
                    order: list[int] = []
                    for own in hosts.values():
                        beside = (
                            n for n, rank in enumerate(own) if self.slot[rank] // width == nic
                        )
                        at = next(beside, 0)
                        order += [own[(at + way * n) % len(own)] for n in range(len(own))]
                    channels.append((tuple(order), nic * width))
                if channels not in found and (len(channels) > 1 or way < 0):
                    found.append(channels)
        return [*found, [(tuple(ranks), None)]]

    def _edges(self, channels: Sequence[_Channel]) -> list[list[tuple[Nic, Nic]]]:
        found = []
        for ring, number in channels:
            edges = []
            for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
                own = self.slot[a] if number is None or self.home[a] == self.home[b] else number
                to = self.slot[b] if number is None or self.home[a] == self.home[b] else number
                edges.append(((self.home[a], own), (self.home[b], to)))
            found.append(edges)
        return found


def log_likelihoods(lags: Lags, patterns: Sequence[Floats | None]) -> tuple[Floats, float]:
    """Per location and factor the logarithm of how likely the ends are, and without any stagger.

    ``patterns``: None for what does not touch these rings.
    """
    many = [pattern for pattern in patterns if pattern is not None]
    count = len(FACTORS)
    shapes = np.concatenate(many) if many else np.zeros((0, len(lags.ends_ns)))
    nothing_by, some_by = [], []
    for inverse, log_scale in lags.whitening:
        seen = inverse @ lags.ends_ns
        nothing_by.append(log_scale - 0.5 * float(seen @ seen))
        # Each kind of call shows as much of its stagger as it does: N(LEFT, LEFT_ERROR) of it.
        parts = np.stack([shapes[:, at] @ inverse[:, at].T for at in lags.slices], axis=1)
        parts = lags.kinds @ parts
        squares = parts @ parts.transpose(0, 2, 1)
        along = parts @ seen
        by_share = []
        for share in _SHARES:
            middle, error = LEFT * share, LEFT_ERROR * share
            cross = error * (along - middle * squares.sum(axis=2))
            gram = np.eye(len(lags.kinds)) + error**2 * squares
            left = seen @ seen - 2 * middle * along.sum(axis=1)
            left += middle**2 * squares.sum(axis=(1, 2))
            square = left - (cross * np.linalg.solve(gram, cross[..., None])[..., 0]).sum(axis=1)
            by_share.append(-0.5 * square - 0.5 * np.linalg.slogdet(gram)[1])
        some_by.append(log_scale + _mean_of(np.array(by_share), 0))
    nothing = _mean_of(np.array(nothing_by), 0)
    each = _mean_of(np.array(some_by), 0)
    result: Floats = np.full((len(patterns), count), float(nothing))
    place = 0
    for number, pattern in enumerate(patterns):
        if pattern is not None:
            own = each[place : place + len(pattern)].reshape(-1, count)
            result[number] = _mean_of(own, 0)
            place += len(pattern)
    return result, float(nothing)


def _mean_of(logs: Floats, axis: int) -> Floats:
    """Logarithm of the mean of what ``logs`` are the logarithms of."""
    most = logs.max(axis=axis, keepdims=True)
    result: Floats = np.squeeze(
        most + np.log(np.exp(logs - most).mean(axis=axis, keepdims=True)), axis=axis
    )
    return result
