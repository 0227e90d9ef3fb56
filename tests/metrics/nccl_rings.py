"""Recordings of NCCL jobs whose slow links are known: rings simulated slice by slice.

Independent of the package's models: written from NCCL's device code. A ring collective passes
chunks of at most 4 steps of a 4 MiB buffer in two slices (collectives.h ALLREDUCE_CHUNKSTEPS,
SLICESTEPS; device.h NCCL_STEPS 8): a rank works through its operations in order, each waits for
the slice before it (waitPeer, prims_simple.h), and a sender runs at most 8 steps, four slices,
ahead of what its receiver has used up. all_reduce.h has 2(n-1) operations that receive, the
others n-1. Each channel goes once through every host, in at one GPU and out at the one before it,
over the NIC of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SLICE_BYTES = 1 << 20
IN_FLIGHT = 4
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
KERNEL = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
    "(ncclDevKernelArgsStorage<4096ul>)",
}
TORCH = {"all_reduce": "allreduce", "all_gather": "_allgather_base",
         "reduce_scatter": "_reduce_scatter_base"}  # fmt: skip


@dataclass
class Fabric:
    """Rates in bytes per ns (GB/s), one direction; what is slow is said by rank."""

    hosts: int
    per_host: int
    nvlink: float = 300.0
    nic: float = 25.0
    hop_ns: float = 2_000.0
    sends: dict[int, float] = field(default_factory=dict)  # rank -> its NIC's share of the rate
    receives: dict[int, float] = field(default_factory=dict)
    pairs: dict[frozenset[int], float] = field(default_factory=dict)  # NVLink pair -> share
    distant: dict[int, float] = field(default_factory=dict)  # host -> ns more, either way

    @property
    def world(self) -> int:
        return self.hosts * self.per_host

    def host(self, rank: int) -> int:
        return rank // self.per_host

    def rings(self, ranks: Sequence[int]) -> list[tuple[list[int], list[float]]]:
        """Per channel: the ranks in order, and the rate of the edge out of each."""
        by_host: dict[int, list[int]] = {}
        for rank in ranks:
            by_host.setdefault(self.host(rank), []).append(rank)
        width = min(len(own) for own in by_host.values())
        found = []
        for channel in range(width):
            order = [own[(channel + n) % len(own)] for own in by_host.values()
                     for n in range(len(own))]  # fmt: skip
            nics = {host: own[channel] for host, own in by_host.items()}
            rates = []
            for one, other in zip(order, [*order[1:], order[0]], strict=True):
                if self.host(one) == self.host(other):
                    share = self.pairs.get(frozenset((one, other)), 1.0)
                    rates.append(self.nvlink * share / width)
                else:
                    out, into = nics[self.host(one)], nics[self.host(other)]
                    share = min(self.sends.get(out, 1.0), self.receives.get(into, 1.0))
                    rates.append(self.nic * share)
            found.append((order, rates))
        return found

    def ends(self, op: str, ranks: Sequence[int], size: int, starts: Mapping[int, float]) -> dict[int, float]:  # fmt: skip  # noqa: E501
        """When each rank leaves a collective of ``size`` bytes (as nccl-tests count)."""
        result = dict.fromkeys(ranks, 0.0)
        rings = self.rings(ranks)
        for order, rates in rings:
            hosts = [self.host(rank) for rank in order]
            late = [
                self.hop_ns + sum(self.distant.get(h, 0.0) for h in pair) * (pair[0] != pair[1])
                for pair in zip(hosts, [*hosts[1:], hosts[0]], strict=True)
            ]
            left = _ring(op, size / len(rings), [starts[r] for r in order], rates, late)
            for rank, end in zip(order, left, strict=True):
                result[rank] = max(result[rank], end)
        return result


def _ring(
    op: str, size: float, starts: Sequence[float], rates: Sequence[float], late: Sequence[float]
) -> list[float]:
    """``late``: what data needs over the edge out of each rank, and the word that it was used."""
    count = len(starts)
    chunk = size / count
    loops = max(1, int(np.ceil(chunk / (2 * SLICE_BYTES))))
    piece = chunk / loops / 2
    last = PASSES[op] * (count - 1)
    now = list(starts)
    arrived: list[list[float]] = [[] for _ in range(count)]  # slices into each rank
    used: list[list[float]] = [[] for _ in range(count)]  # when it had used them up
    wire = [0.0] * count
    for _ in range(loops):
        for step in range(last + 1):
            for _half in range(2):
                done = list(now)
                for own in range(count):
                    if step:  # receives what the rank before sent a step ago
                        done[own] = max(done[own], arrived[own][len(used[own])])
                    if step < last:
                        ahead = len(arrived[(own + 1) % count])
                        if ahead >= IN_FLIGHT:
                            taken = used[(own + 1) % count]
                            done[own] = max(done[own], taken[ahead - IN_FLIGHT] + late[own])
                for own in range(count):
                    now[own] = done[own]
                    if step:
                        used[own].append(now[own])
                    if step < last:
                        wire[own] = max(wire[own], now[own]) + piece / rates[own]
                        arrived[(own + 1) % count].append(wire[own] + late[own])
    return now


@dataclass(frozen=True)
class Group:
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Ask:
    """A collective of a step: on these groups at once, after so much compute."""

    op: str
    groups: tuple[Group, ...]
    size: int
    compute_ns: float = 1e6


def world(fabric: Fabric) -> tuple[Group, ...]:
    return (Group("0", tuple(range(fabric.world))),)


def inside(fabric: Fabric) -> tuple[Group, ...]:
    """A group per host."""
    return tuple(
        Group(f"in{h}", tuple(range(h * fabric.per_host, (h + 1) * fabric.per_host)))
        for h in range(fabric.hosts)
    )


def across(fabric: Fabric) -> tuple[Group, ...]:
    """A group per GPU number, with one rank of every host."""
    return tuple(
        Group(f"x{i}", tuple(range(i, fabric.world, fabric.per_host)))
        for i in range(fabric.per_host)
    )


def recording(
    fabric: Fabric,
    asks: Sequence[Ask],
    *,
    steps: int = 8,
    seed: int = 1,
    offsets: Mapping[int, float] | None = None,
    jitter: float = 0.02,
    slow: Mapping[int, float] | None = None,
    device: str = "",
    same_host_names: bool = True,
) -> dict[int, dict[str, Any]]:
    """Traces by rank. ``offsets``: what each host's clock is ahead, ns; ``slow``: ranks whose
    compute takes so many times as long."""
    chance = np.random.default_rng(seed)
    now = dict.fromkeys(range(fabric.world), 1e9)
    events: dict[int, list[dict[str, Any]]] = {rank: [] for rank in now}
    ahead = {r: (offsets or {}).get(fabric.host(r), 0.0) for r in now}
    number = 0
    seq: dict[str, int] = {}
    for step in range(steps):
        begin = dict(now)
        for ask in asks:
            for rank in now:
                takes = ask.compute_ns * (1 + jitter * abs(chance.normal()))
                takes *= (slow or {}).get(rank, 1.0)
                number += 1
                _kernel(events[rank], "gemm", now[rank] + ahead[rank], takes, number, 7, {})
                now[rank] += takes
            for group in ask.groups:
                starts = {rank: now[rank] + 5_000 for rank in group.ranks}
                ends = fabric.ends(ask.op, group.ranks, ask.size, starts)
                seq[group.name] = seq.get(group.name, 0) + 1
                for rank in group.ranks:
                    end = ends[rank] + abs(chance.normal(0, 4_000))
                    number += 1
                    _kernel(
                        events[rank], KERNEL[ask.op], starts[rank] + ahead[rank],
                        end - starts[rank], number, 20, _said(ask, group, seq[group.name]),
                    )  # fmt: skip
                    now[rank] = end
        for rank in now:
            events[rank].append(
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1,
                 "tid": 1, "ts": (begin[rank] + ahead[rank]) / 1e3 - 20,
                 "dur": (now[rank] - begin[rank]) / 1e3, "args": {}}
            )  # fmt: skip
    groups = {g.name: g for ask in asks for g in ask.groups}
    return {
        rank: {
            "traceEvents": own,
            "deviceProperties": [{"id": rank % fabric.per_host, "name": device}] if device else [],
            "distributedInfo": {
                "backend": "nccl", "rank": rank, "world_size": fabric.world,
                "pg_config": [
                    {"pg_name": g.name, "pg_desc": g.name, "ranks": list(g.ranks),
                     "pg_size": len(g.ranks)} for g in groups.values()
                ],
            },
            **({"host_name": f"h{fabric.host(rank)}"} if same_host_names else {}),
        }
        for rank, own in events.items()
    }  # fmt: skip


def _said(ask: Ask, group: Group, seq: int) -> dict[str, Any]:
    count = len(group.ranks)
    part = ask.size // 2 // count
    ins = part if ask.op == "all_gather" else ask.size // 2
    outs = part if ask.op == "reduce_scatter" else ask.size // 2
    return {"Collective name": TORCH[ask.op], "In msg nelems": ins, "Out msg nelems": outs,
            "Group size": count, "dtype": "BFloat16", "Process Group Name": group.name,
            "Process Group Ranks": str(list(group.ranks)), "Seq": seq}  # fmt: skip


def _kernel(
    events: list[dict[str, Any]],
    name: str,
    start: float,
    takes: float,
    number: int,
    stream: int,
    said: dict[str, Any],
) -> None:
    events.append(
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
         "ts": start / 1e3 - 15, "dur": 4, "args": {"correlation": number}}
    )  # fmt: skip
    events.append(
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start / 1e3,
         "dur": takes / 1e3,
         "args": {"device": 0, "stream": stream, "correlation": number, **said}}
    )  # fmt: skip
