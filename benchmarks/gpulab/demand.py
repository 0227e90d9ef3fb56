"""What one collective asks of the fabric: latency, bytes on each link, its ceiling, and how far
apart its ranks end. Nothing here knows of time: the same call always has the same demand.

Only the ends of a ring depend on when its ranks came: who comes early has sent what the buffers
hold. What the call takes after the last of them does not.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from advisor.model.nccl.version import parse_version
from benchmarks.gpulab.fabric import Fabric, ring_orders
from benchmarks.gpulab.hardware import Chosen, choose
from benchmarks.gpulab.job import Job, Link
from benchmarks.gpulab.rings import Slices, added_ns, loops_of, ring_ends

PEER_LATENCY_NS = {"nvlink": 4_000.0, "network": 14_000.0}
"""Ring Simple's latency of a hop by NCCL's tables (src/graph/tuning.cc: 3.4 and 14 us), rounded."""
SMALL_CALL_NS = 6_000.0
"""What a kernel takes beyond the model: start, flags, end; nccl-tests at 8 bytes shows 8-20 us."""


_MOST_RANKS = 64
"""Of a ring whose late starts are followed: that takes as long as the square of their number."""


@dataclass(frozen=True, eq=False)
class Rings:
    """What the ends of a ring call's ranks follow from; a row per pattern, a column per place."""

    op: str
    orders: tuple[tuple[int, ...], ...]
    slice_ns: Slices
    network: NDArray[np.bool_]
    delays: Slices
    loops: int

    @property
    def added_ns(self) -> float:
        """What added latency of hosts makes of the call."""
        if not self.delays.any():
            return 0.0
        return added_ns(self.slice_ns, self.network, self.op, self.loops, self.delays)

    @lru_cache(maxsize=256)  # noqa: B019 - one per kind of call, gone with its job
    def ends(self, starts_us: tuple[int, ...] = ()) -> dict[int, float]:
        """ns after the first rank's end; ``starts_us`` by rank in ascending order, or at once."""
        count = len(self.orders[0])
        starts: Slices | float = 0.0
        if starts_us and count <= _MOST_RANKS:
            place = {rank: number for number, rank in enumerate(sorted(self.orders[0]))}
            starts = np.array([[1e3 * starts_us[place[r]] for r in own] for own in self.orders])
        sends = 2 * (count - 1) if self.op == "all_reduce" else count - 1
        offsets = ring_ends(self.slice_ns, self.network, self.op, self.loops, starts, self.delays)
        whole = self.slice_ns.max(axis=1) * sends * self.loops * 2
        # A kernel ends with its last channel: patterns that are done earlier add nothing.
        at = whole[:, None] - offsets.max(axis=1, keepdims=True) + offsets
        ends: dict[int, float] = {}
        for order, own in zip(self.orders, at.tolist(), strict=True):
            for rank, end in zip(order, own, strict=True):
                ends[rank] = max(ends.get(rank, -math.inf), end)
        first = min(ends.values())
        return {rank: end - first for rank, end in ends.items()}


@dataclass(frozen=True)
class Demand:
    """Of one call. ``pace``: highest share per ns; ``still_ends``: ns after the first rank's end,
    where no ``rings`` tell it."""

    latency_ns: float
    loads: dict[Link, float]
    pace: float
    still_ends: dict[int, float]
    crosses_hosts: bool
    algorithm: str
    rings: Rings | None = None

    def ends(self, arrived: dict[int, float]) -> dict[int, float]:
        """When each rank ends, ns after the first does, where they came at these times."""
        if self.rings is None:
            return self.still_ends
        last = max(arrived.values())
        return self.rings.ends(tuple(round((arrived[r] - last) / 1e3) for r in sorted(arrived)))


class Demands:
    """Works out demands and keeps them."""

    def __init__(self, job: Job, fabric: Fabric) -> None:
        self.job, self.fabric = job, fabric
        self.version = parse_version(job.nccl)
        self._known: dict[object, Demand] = {}

    def collective(self, op: str, ranks: tuple[int, ...], total: int, kind: str = "") -> Demand:
        """A ring, tree or NVLS call of ``total`` bytes (as nccl-tests counts them)."""
        key = (op, ranks, total, kind)
        if key not in self._known:
            made = self._nccl if not kind else self._direct
            self._known[key] = made(op, ranks, total)
        return self._known[key]

    def exchange(self, sends: dict[tuple[int, int], int], kind: str = "") -> Demand:
        """All-to-all or send/recv: bytes from a rank to a rank."""
        loads: dict[Link, float] = {}
        crosses = False
        per_rank: dict[int, float] = {}
        for (a, b), size in sends.items():
            if a == b or not size:
                continue
            per_rank[b] = per_rank.get(b, 0) + size
            if self.job.host_of(a) == self.job.host_of(b):
                links = self.fabric.edge(a, b, 0)
            else:
                crosses = True
                links = (
                    ("nic-tx", self.job.host_of(a), self.job.nic_of(a)),
                    ("nic-rx", self.job.host_of(b), self.job.nic_of(b)),
                )
            for link in links:
                loads[link] = loads.get(link, 0.0) + size
        hop = PEER_LATENCY_NS["network" if crosses else "nvlink"]
        latency = SMALL_CALL_NS + hop + (0.0 if kind == "deepep" else 300.0 * len(per_rank))
        latency += self._added({rank for pair in sends for rank in pair})
        # Each rank is done when its own part is there: less received, earlier end.
        pace = min((self._ceiling(link) / load for link, load in loads.items()), default=1.0 / 1000)
        members = {rank for pair in sends for rank in pair}
        most = max(per_rank.values(), default=0.0)
        ends = {
            rank: 0.0 if not most else 0.15 * per_rank.get(rank, 0.0) / most / pace * 0.5
            for rank in members
        }
        first = min(ends.values(), default=0.0)
        ends = {rank: end - first for rank, end in ends.items()}
        return Demand(latency, loads, pace, ends, crosses, "P2P")

    def _ceiling(self, link: Link) -> float:
        """Healthy rate of a kind of link."""
        return self.fabric.nic if link[0].startswith("nic") else self.fabric.nvlink

    def _added(self, ranks: set[int]) -> float:
        """Added latency of hosts that are crossed."""
        hosts = {self.job.host_of(rank) for rank in ranks}
        if len(hosts) == 1:
            return 0.0
        return float(sum(ns for host, ns in self.job.link_latency_ns if host in hosts))

    def _direct(self, op: str, ranks: tuple[int, ...], total: int) -> Demand:
        """One- and two-shot kernels over peer memory: each rank reads all others' parts."""
        n = len(ranks)
        one_shot = total < 256 << 10
        wire = total * (n - 1) if one_shot else 2 * total * (n - 1) / n
        if op != "all_reduce":
            wire = total * (n - 1) / n
        loads: dict[Link, float] = {}
        for rank in ranks:
            loads["nvlink-out", rank, 0] = loads["nvlink-in", rank, 0] = wire
        pace = self.fabric.nvlink * 0.85 / max(wire, 1.0)
        ends = {rank: 400.0 * (i % 3) for i, rank in enumerate(ranks)}
        return Demand(3_500.0, loads, pace, ends, False, "direct")

    def _nccl(self, op: str, ranks: tuple[int, ...], total: int) -> Demand:
        job, n = self.job, len(ranks)
        patterns = ring_orders(job, ranks)
        nodes = len({job.host_of(rank) for rank in ranks})
        chosen = choose(
            job.machine, nodes, max(1, n // nodes), len(patterns), op, max(total, 1), self.version
        )
        wire = (
            total
            * chosen.inflation
            * {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0}.get(op, (n - 1) / n)
        )
        loads: dict[Link, float] = {}
        for rail, order in patterns:
            for a, b in zip(order, order[1:] + order[:1], strict=True):
                for link in self.fabric.edge(a, b, rail):
                    loads[link] = loads.get(link, 0.0) + wire / len(patterns)
        latency = SMALL_CALL_NS + chosen.latency_ns
        is_ring = op != "broadcast" and chosen.algorithm == "Ring"
        rings = self._rings(op, patterns, total, chosen) if is_ring else None
        if rings is not None:
            latency += rings.added_ns
        elif nodes > 1:
            steps = 2 * math.ceil(math.log2(nodes))
            latency += self._added(set(ranks)) * max(1, steps // nodes)
        pace = chosen.rate / max(total, 1)
        ends = {} if is_ring else self._staggered(op, patterns[0][1])
        return Demand(latency, loads, pace, ends, nodes > 1, chosen.algorithm, rings)

    def _staggered(self, op: str, order: tuple[int, ...]) -> dict[int, float]:
        if op == "broadcast":
            return {rank: 1_500.0 * i for i, rank in enumerate(order)}
        # The broadcast half of a tree reaches the leaves last.
        hop = 5_000.0 if len({self.job.host_of(r) for r in order}) > 1 else 800.0
        return {r: hop * int(math.log2(i + 1)) for i, r in enumerate(order)}

    def _rings(
        self,
        op: str,
        patterns: tuple[tuple[int, tuple[int, ...]], ...],
        total: int,
        chosen: Chosen,
    ) -> Rings:
        n = len(patterns[0][1])
        channels = max(1, chosen.channels // len(patterns))
        share = total * chosen.inflation / len(patterns)
        loops = loops_of(total / len(patterns) / channels, n, chosen.protocol)
        slice_bytes = share / (n * loops * 2)
        costs, network, delays = [], [], []
        uses = Counter(
            link
            for rail, order in patterns
            for a, b in zip(order, order[1:] + order[:1], strict=True)
            for link in self.fabric.edge(a, b, rail)
        )
        for rail, order in patterns:
            edges = list(zip(order, order[1:] + order[:1], strict=True))
            rates = [
                min(self.fabric.rate(link) / uses[link] for link in self.fabric.edge(a, b, rail))
                for a, b in edges
            ]
            costs.append([round(slice_bytes / rate, 1) for rate in rates])
            network.append([self.job.host_of(a) != self.job.host_of(b) for a, b in edges])
            delays.append([self._added({a, b}) for a, b in edges])
        orders = tuple(order for _, order in patterns)
        own = (np.array(costs), np.array(network), np.array(delays))
        return Rings(op, orders, *own, loops)
