"""How each slow location would stagger the ends of a group's rings, and how likely that makes them.

NCCL's schedule (rings/nccl.py) says when each rank leaves by when all came; how long a slice takes,
which rings there are, and who writes over NVLink is not known: all of it is averaged over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.links.locations import SHARED, Location, Members, Nic
from advisor.metrics.links.ring_lags import Block, Lags
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import MOST_LOOPS, PASSES, SLICES, paths
from advisor.metrics.timeline.statistics import Floats

FACTORS: Floats = np.array([1.25, 2.0, 4.0])
"""How many times as long the slow edge takes: its pattern depends on that but little."""
_IN_LOOP: Floats = np.exp2(np.arange(19.0, 26.0))
"""Bytes of a rank that one loop takes: 2 MiB a channel by Simple, 0.3 by LL128, 2 to 32 channels
(src/include/collectives.h, src/graph/search.cc). The more, the longer a slice."""
_INSIDE = (0.1, 0.3, 0.7)
"""How long NVLink takes a slice, in a NIC's time: with one NIC a host (12.5 of an A100's 300 GB/s)
and with one a GPU, which share it (25 of 300 / 8, 50 of 450 / 8)."""

_HEALTHY = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""The same if nothing is slow: what finer steps explain is not to be called a slow link."""

_Channel = tuple[tuple[int, ...], int | None]
"""Ranks in ring order, and the number of the GPU beside the NIC it goes through."""
_Edges = list[list[tuple[Nic, Nic]]]
_Rings = tuple[_Edges, NDArray[np.bool_], NDArray[np.int64]]


class Patterns:
    """How each location staggers the ends of a group's rings, worked out once per shape."""

    def __init__(self, home: Mapping[int, Home], slot: Mapping[int, int]) -> None:
        self.home, self.slot = home, slot
        self._paths: dict[object, Floats] = {}
        self._left: dict[object, Floats] = {}
        self._orders: dict[Members, list[list[_Channel]]] = {}
        self._rings: dict[object, _Rings] = {}

    def of(self, lags: Lags, location: Location | None) -> Floats | None:
        """What a location leaves unexplained of the ends, ns: by what is not known (the kind of
        ring order, who writes over NVLink, how fast that is, whether hosts came together, a loop's
        bytes), by factor, and by block and rank. None where it is in none of these rings. Without a
        location, if nothing is slow.
        """
        # How fast NVLink is beside the NICs is open anyway: all links alike show in no order.
        if location and (
            location.kind == "all"
            or not any(location.staggers(one.members, self.home) for one in lags.blocks)
        ):
            return None
        orders = max(len(self._orders_of(block)) for block in lags.blocks)
        # NICs that are slow hide who writes over NVLink.
        written = (True,) if location and not location.inside else (False, True)
        rows = [
            np.concatenate([self._of_block(one, location, *some) for one in lags.blocks], axis=2)
            for some in product(range(orders), written, _INSIDE if location else _HEALTHY, (0, 1))
        ]
        return np.concatenate(rows)

    def _of_block(
        self,
        block: Block,
        location: Location | None,
        order: int,
        written: bool,
        fast: float,
        came_together: int,
    ) -> Floats:
        """By a loop's bytes, factor and rank: ends against those of a kernel that ends with its
        last channel."""
        edges, inside, positions = self._rings_of(block, order)
        slow = np.zeros_like(inside)
        if location is not None and location.staggers(block.members, self.home):
            nics = [(self.home[r], self.slot[r]) for r in location.ranks]
            slow = np.array([[location.slows_edge(a, b, nics) for a, b in ring] for ring in edges])
        key = (id(block), slow.tobytes(), order, written, fast, came_together)
        if key not in self._left:
            healthy = np.where(inside & ~inside.all(), fast, 1.0)
            takes = np.where(slow[:, None], FACTORS[:, None], healthy[:, None])
            longest = takes.max(axis=2).max(axis=0)
            count = len(block.members.ranks)
            loops = np.ceil(block.bytes / count / _IN_LOOP)
            slices = PASSES[block.op] * (count - 1) * SLICES * loops
            unit_ns = block.time_ns / (slices[:, None] * longest)
            ends: Floats = np.full((len(block.ends_ns), *unit_ns.shape, count), -np.inf)
            for own, within, at in zip(takes, inside, positions, strict=True):
                tables = self._paths_of(block.op, own, within, written)
                table = tables[(loops > 1).astype(np.intp)]
                came = block.starts_ns[came_together][:, None, None, None, at]
                left = (came + unit_ns[..., None, None] * table).max(axis=4)
                last = block.time_ns * (own.max(axis=1) / longest)[:, None]
                left += last - left.max(axis=3, keepdims=True)
                ends[..., at] = np.maximum(ends[..., at], left)
            late = block.ends_ns[:, None, None] - ends
            found: Floats = np.median(late - late.mean(axis=3, keepdims=True), axis=0)
            self._left[key] = found
        return self._left[key]

    def _paths_of(self, op: str, takes: Floats, within: NDArray[np.bool_], written: bool) -> Floats:
        """Of one loop and of more."""
        own = (op, takes.tobytes(), within.tobytes(), written)
        if own in self._paths:
            return self._paths[own]
        # Rings whose hosts are alike only turn with the location.
        width = len(within) // max(1, int((~within).sum()))
        turn = int(takes.argmax(axis=1)[0]) // width * width
        if not (np.roll(within, -turn) == within).all():
            turn = 0
        turned = np.roll(takes, -turn, axis=1)
        key = (op, turned.tobytes(), within.tobytes(), written)
        if key not in self._paths:
            writes = within if written else None
            self._paths[key] = np.array([paths(op, turned, n, writes) for n in (1, MOST_LOOPS)])
        self._paths[own] = np.roll(self._paths[key], (turn, turn), axis=(2, 3))
        return self._paths[own]

    def _rings_of(self, block: Block, order: int) -> _Rings:
        """The edges of each channel, which of them are within hosts, and each channel's ranks."""
        key = (block.members, order)
        if key not in self._rings:
            known = self._orders_of(block)
            channels = known[min(order, len(known) - 1)]
            edges = self._edges(channels)
            self._rings[key] = (
                edges,
                np.array([[a[0] == b[0] for a, b in ring] for ring in edges]),
                np.array([[block.members.ranks.index(r) for r in ring] for ring, _ in channels]),
            )
        return self._rings[key]

    def _orders_of(self, block: Block) -> list[list[_Channel]]:
        if block.members not in self._orders:
            self._orders[block.members] = self._find_orders(block)
        return self._orders[block.members]

    def _find_orders(self, block: Block) -> list[list[_Channel]]:
        """Per kind of order, the channels.

        Where no log has the rings: one per NIC, in at the first GPU beside it and round the host to
        the one before that or, as NCCL's logs have it (0 7 6 5 4 3 2 1 8 15 ...: NVIDIA/nccl issues
        514 and 1412), the other way, for NICs that one, two or four GPUs share; and one for all.
        """
        ranks = block.members.ranks
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


def log_likelihoods(
    lags: Lags, left: Sequence[Floats | None], nothing: Floats
) -> tuple[Floats, float]:
    """Per location and factor the logarithm of how likely the ends are, and if nothing is slow, by
    what each leaves of them unexplained. None is for what does not touch these rings."""
    healthy = float(_mean_of(_whitened(lags, nothing[:, :1]), 0)[0])
    result: Floats = np.full((len(left), len(FACTORS)), healthy)
    for number, rows in enumerate(left):
        if rows is not None:
            result[number] = _mean_of(_whitened(lags, rows), 0)
    return result, healthy


def _whitened(lags: Lags, rows: Floats) -> Floats:
    """By row and factor, over all errors of the model and the clocks."""
    logs = [
        scale - 0.5 * ((rows @ inverse.T) ** 2).sum(axis=2) for inverse, scale in lags.whitening
    ]
    return _mean_of(np.array(logs), 0)


def _mean_of(logs: Floats, axis: int) -> Floats:
    """Logarithm of the mean of what ``logs`` are the logarithms of."""
    most = logs.max(axis=axis, keepdims=True)
    result: Floats = np.squeeze(
        most + np.log(np.exp(logs - most).mean(axis=axis, keepdims=True)), axis=axis
    )
    return result
