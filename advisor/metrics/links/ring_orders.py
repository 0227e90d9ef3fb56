"""Which rings NCCL may have built for a group, one per NIC, and the NICs that their edges use."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from advisor.config.hardware import gpus_per_nic
from advisor.metrics.links.locations import Members, Nic
from advisor.metrics.links.ring_blocks import Block
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.schedule import ring_of
from advisor.metrics.timeline.intervals import Bools, Int64s

_Channel = tuple[tuple[int, ...], int | None]
"""Ranks in ring order, and the number of the GPU beside the NIC it goes through."""
_Rings = tuple[list[list[tuple[Nic, Nic]]], Bools, Int64s]


class Orders:
    """The rings of every group, worked out once."""

    def __init__(self, home: Mapping[int, Home], slot: Mapping[int, int]) -> None:
        self.home, self.slot = home, slot
        self._orders: dict[Members, list[list[_Channel]]] = {}
        self._rings: dict[object, _Rings] = {}

    def rings_of(self, block: Block, order: int) -> _Rings:
        """Of a kind of order: the edges of each channel, which of them are within hosts, and each
        channel's ranks."""
        key = (block.members, order)
        if key not in self._rings:
            known = self.of(block)
            channels = known[min(order, len(known) - 1)]
            edges = self._edges(channels)
            self._rings[key] = (
                edges,
                np.array([[a[0] == b[0] for a, b in ring] for ring in edges]),
                np.array([[block.members.ranks.index(r) for r in ring] for ring, _ in channels]),
            )
        return self._rings[key]

    def of(self, block: Block) -> list[list[_Channel]]:
        """Per kind of order, the channels."""
        if block.members not in self._orders:
            self._orders[block.members] = self._find_orders(block)
        return self._orders[block.members]

    def _find_orders(self, block: Block) -> list[list[_Channel]]:
        """Per kind of order, the channels.

        Where no log has the rings: one per NIC, in at the first GPU beside it and round the host to
        the one before that or, as NCCL's logs have it (0 7 6 5 4 3 2 1 8 15 ...: NVIDIA/nccl issues
        514 and 1412), the other way, for NICs that so many GPUs share; and one for all.
        """
        ranks = block.members.ranks
        if block.gloo:
            return [[(ring_of(block.op, ranks) or ranks, None)]]
        if block.rings:
            return [[(ring, None) for ring in block.rings[: 1 if block.long else None]]]
        hosts: dict[Home, list[int]] = defaultdict(list)
        for rank in ranks:
            hosts[self.home[rank]].append(rank)
        found: list[list[_Channel]] = []
        if len(hosts) not in (1, len(ranks)):
            for width, way in product(gpus_per_nic(), (1, -1)):
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
                if block.long:  # hosts stand in all of them as in the first
                    channels = channels[:1]
                if channels not in found and (len(channels) > 1 or way < 0):
                    found.append(channels)
        return [*(found[:2] if block.long else found), [(tuple(ranks), None)]]

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
