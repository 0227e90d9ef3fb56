"""What RCCL does with its table's choice from 2.23 on: other protocols by size, sends of its own.

Follows rcclUpdateCollectiveProtocol and rcclUseAllGatherDirect (src/rccl_wrap.cc), which look at
neither latency nor bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from advisor.model.topology import Topology

_STRETCH = 3.8  # of AllReduce's LL128 on more than two nodes


@dataclass(frozen=True)
class Rules:
    """Of one release, by function and protocol; bytes are per rank, those of AllReduce in all."""

    protocol_bytes: dict[str, dict[str, list[int]]]
    one_node_ll_bytes: dict[str, int]
    thread_bytes: dict[str, dict[str, int]]
    direct_gather_bytes: int
    direct_gather_ranks: list[int | None]

    def protocol(self, topology: Topology, function: str, total_bytes: int, chosen: str) -> str:
        """The protocol taken where the table's is ``chosen`` and NCCL_PROTO is not set."""
        own = total_bytes if function == "AllReduce" else total_bytes // topology.ranks
        if topology.nodes == 1:
            return "LL" if own <= self.one_node_ll_bytes.get(function, -1) else chosen
        ranges = self.protocol_bytes.get(function)
        if ranges is None:
            return chosen
        least, most = ranges["LL128"]
        if function == "AllReduce" and topology.nodes > 2:
            most = int(most * _STRETCH)
        if least < own <= most:
            return "LL128"
        least, most = ranges["LL"]
        return "LL" if least < own <= most else "Simple"

    def instead(self, topology: Topology, function: str, total_bytes: int) -> str:
        """What it does without asking the table; empty where it asks."""
        least, most = self.direct_gather_ranks
        of_size = function == "AllGather" and total_bytes <= self.direct_gather_bytes
        if of_size and (least or 0) <= topology.ranks <= (most or inf):
            return "each rank sends its part to every other (RCCL's direct all-gather)"
        return ""
