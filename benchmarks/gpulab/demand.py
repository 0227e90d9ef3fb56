"""What one collective asks of the fabric: latency, bytes on each link, its ceiling, and how far
apart its ranks end. Nothing here knows of time: the same call always has the same demand.

So how late ranks came changes nothing of how they end. In NCCL's own schedule a rank that comes a
chunk late finds the ring drained, and its call takes as long after any rank
(tests/metrics/nccl_rings.py): what a call takes by who came last is evidence here, and is none
there, so that no diagnosis may rest on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor.model.nccl import parse_version
from benchmarks.gpulab.fabric import Fabric, ring_orders
from benchmarks.gpulab.hardware import Chosen, choose
from benchmarks.gpulab.job import Job, Link
from benchmarks.gpulab.rings import loops_of, ring_ends

PEER_LATENCY_NS = {"nvlink": 4_000.0, "network": 14_000.0}
"""Ring Simple's latency of a hop by NCCL's tables (src/graph/tuning.cc: 3.4 and 14 us), rounded."""
SMALL_CALL_NS = 6_000.0
"""What a kernel takes beyond the model: start, flags, end; nccl-tests at 8 bytes shows 8-20 us."""


@dataclass(frozen=True)
class Demand:
    """Of one call. ``pace``: highest share per ns; ``ends``: ns after the first rank's end."""

    latency_ns: float
    loads: dict[Link, float]
    pace: float
    ends: dict[int, float]
    tail_ns: float
    """The largest of ``ends``."""
    crosses_hosts: bool
    algorithm: str


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
        return Demand(latency, loads, pace, ends, max(ends.values(), default=0.0), crosses, "P2P")

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
        return Demand(3_500.0, loads, pace, ends, 800.0, False, "direct")

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
        if nodes > 1:
            steps = 2 * (nodes - 1) if op == "all_reduce" else nodes - 1
            if chosen.algorithm != "Ring":
                steps = 2 * math.ceil(math.log2(nodes))
            latency += self._added(set(ranks)) * max(1, steps // nodes)
        pace = chosen.rate / max(total, 1)
        ends = self._ends(op, patterns, total, chosen)
        tail = max(ends.values())
        return Demand(latency, loads, pace, ends, tail, nodes > 1, chosen.algorithm)

    def _ends(
        self,
        op: str,
        patterns: tuple[tuple[int, tuple[int, ...]], ...],
        total: int,
        chosen: Chosen,
    ) -> dict[int, float]:
        first_order = patterns[0][1]
        n = len(first_order)
        if op == "broadcast":
            return {rank: 1_500.0 * i for i, rank in enumerate(first_order)}
        if chosen.algorithm != "Ring":
            # The broadcast half of a tree reaches the leaves last.
            hop = 5_000.0 if len({self.job.host_of(r) for r in first_order}) > 1 else 800.0
            return {r: hop * int(math.log2(i + 1)) for i, r in enumerate(first_order)}
        channels = max(1, chosen.channels // len(patterns))
        share = total * chosen.inflation / len(patterns)
        loops = loops_of(total / len(patterns) / channels, n, chosen.protocol)
        slice_bytes = share / (n * loops * 2)
        ends: dict[int, float] = {}
        slowest = 0.0
        finished: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = []
        for rail, order in patterns:
            costs, network = [], []
            for a, b in zip(order, order[1:] + order[:1], strict=True):
                links = self.fabric.edge(a, b, rail)
                rates = []
                for link in links:
                    rate = self.fabric.rate(link)
                    if not link[0].startswith("nic"):
                        rate /= len(patterns)
                    rates.append(rate)
                costs.append(round(slice_bytes / min(rates), 1))
                network.append(self.job.host_of(a) != self.job.host_of(b))
            sends = 2 * (n - 1) if op == "all_reduce" else n - 1
            whole = max(costs) * sends * loops * 2
            slowest = max(slowest, whole)
            finished.append((whole, order, ring_ends(tuple(costs), tuple(network), op, loops)))
        # A kernel ends with its last channel: patterns that are done earlier add nothing.
        for whole, order, offsets in finished:
            late = max(offsets)
            for rank, offset in zip(order, offsets, strict=True):
                at = slowest - (slowest - whole) - (late - offset)
                ends[rank] = max(ends.get(rank, -math.inf), at)
        first = min(ends.values())
        return {rank: end - first for rank, end in ends.items()}
