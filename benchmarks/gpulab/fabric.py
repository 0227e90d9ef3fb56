"""Links and what runs over them: rates of overlapping calls by max-min fair sharing.

A call is a set of loads, bytes per link. Every link gives each call that crosses it the same
share; a call runs at the pace of its tightest link, and never faster than NCCL's own table says
for its algorithm and protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from benchmarks.gpulab.job import Job, Link

NIC_EFFICIENCY = 0.97
"""48.5 of 50 GB/s: NCCL's search takes 48 for a 400 Gb/s port (src/graph/search.cc)."""
NVLINK_RATE = {70: 120.0, 80: 240.0, 90: 370.8, 100: 721.8}
"""GB/s per GPU and direction as NCCL counts them: links x 20, 20, 20.6, 40.1
(src/graph/topo.h, LOCAL_BW and SM*_NVLINK_BW)."""


class Fabric:
    """The links of a job, with their rates (bytes per ns) after faults."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.nvlink = NVLINK_RATE[job.hw.capability // 10 * 10]
        if job.hw.nvlink_rate < self.nvlink:  # PCIe and cut-down machines
            self.nvlink = job.hw.nvlink_rate * 0.8
        self.nic = job.hw.nic_rate * NIC_EFFICIENCY
        self.factors = dict(job.link_factor)
        self._rates: dict[Link, float] = {}

    def rate(self, link: Link) -> float:
        """Bytes per ns that a link carries."""
        rate = self._rates.get(link)
        if rate is None:
            kind, a, _ = link
            rate = self.nic if kind.startswith("nic") else self.nvlink
            rate *= self.factors.get(link, 1.0) * self.factors.get((kind, a, -1), 1.0)
            rate *= self.factors.get((kind, -1, -1), 1.0)
            self._rates[link] = rate
        return rate

    def edge(self, a: int, b: int, rail: int) -> tuple[Link, ...]:
        """The links from rank a to rank b; between hosts through NIC ``rail`` of both."""
        ha, hb = self.job.host_of(a), self.job.host_of(b)
        if ha != hb:
            return ("nic-tx", ha, rail), ("nic-rx", hb, rail)
        links: tuple[Link, ...] = (("nvlink-out", a, 0), ("nvlink-in", b, 0))
        return (*links, ("nvlink", a, b)) if ("nvlink", a, b) in self.factors else links


@lru_cache(maxsize=2048)
def ring_orders(job: Job, ranks: tuple[int, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(rail, order of ranks) of each ring pattern that NCCL's channels take turns in.

    One per NIC that the group's ranks sit beside; the rank beside it comes first in its host, as
    the data enters there. Inside one host there is one pattern.
    """
    hosts: dict[int, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(job.host_of(rank), []).append(rank)
    if len(hosts) == 1:
        return ((0, ranks),)
    rails = sorted({job.nic_of(rank) for rank in ranks})
    patterns = []
    for rail in rails:
        order: list[int] = []
        for members in hosts.values():
            beside = [i for i, rank in enumerate(members) if job.nic_of(rank) == rail]
            at = beside[0] if beside else 0
            order += members[at:] + members[:at]
        patterns.append((rail, tuple(order)))
    return tuple(patterns)


@dataclass(eq=False)
class Flow:
    """A transfer under way. ``left`` is the share of it still to do, ``most`` its highest pace."""

    loads: dict[Link, float]
    most: float
    owner: Any = None
    left: float = 1.0
    pace: float = 0.0
    since: float = 0.0
    version: int = 0


class Traffic:
    """All flows under way; tells when one ends."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.crossing: dict[Link, dict[int, Flow]] = {}

    def start(self, flow: Flow, now: float) -> list[Flow]:
        """Add a flow; returns all whose pace changed (their ``left`` is of ``now``)."""
        flow.since = now
        for link in flow.loads:
            self.crossing.setdefault(link, {})[id(flow)] = flow
        return self._share(flow, now)

    def end(self, flow: Flow, now: float) -> list[Flow]:
        """Remove a flow; returns all others whose pace changed."""
        near = self._near(flow)
        near.pop(id(flow))
        for link in flow.loads:
            del self.crossing[link][id(flow)]
        return self._fill(near, now)

    def _near(self, flow: Flow) -> dict[int, Flow]:
        found = {id(flow): flow}
        todo = [flow]
        while todo:
            for link in todo.pop().loads:
                for key, other in self.crossing[link].items():
                    if key not in found:
                        found[key] = other
                        todo.append(other)
        return found

    def _share(self, flow: Flow, now: float) -> list[Flow]:
        return self._fill(self._near(flow), now)

    def _fill(self, flows: dict[int, Flow], now: float) -> list[Flow]:
        if not flows:
            return []
        paces = self._alone(flows) if len(flows) == 1 else self._fair(flows)
        changed = []
        for key, flow in flows.items():
            flow.left -= flow.pace * (now - flow.since)
            flow.since = now
            if abs(paces[key] - flow.pace) > 1e-9 * flow.most or flow.version == 0:
                flow.pace = paces[key]
                flow.version += 1
                changed.append(flow)
        return changed

    def _alone(self, flows: dict[int, Flow]) -> dict[int, float]:
        ((key, flow),) = flows.items()
        rate = self.fabric.rate
        pace = min((rate(link) / load for link, load in flow.loads.items()), default=flow.most)
        return {key: min(flow.most, pace)}

    def _fair(self, flows: dict[int, Flow]) -> dict[int, float]:
        """Progressive filling: the tightest link or ceiling settles its flows first."""
        room: dict[Link, float] = {}
        open_on: dict[Link, int] = {}
        for flow in flows.values():
            for link in flow.loads:
                room[link] = self.fabric.rate(link)
                open_on[link] = open_on.get(link, 0) + 1
        paces: dict[int, float] = {}
        waiting = dict(flows)
        while waiting:
            best_key, best_pace, best_tightness = -1, 0.0, float("inf")
            for key, flow in waiting.items():
                pace, tightness = flow.most, 1.0
                for link, load in flow.loads.items():
                    share = room[link] / open_on[link]
                    if share < pace * load:
                        pace = share / load
                tightness = pace / flow.most
                if tightness < best_tightness:
                    best_key, best_pace, best_tightness = key, pace, tightness
            flow = waiting.pop(best_key)
            paces[best_key] = best_pace
            for link, load in flow.loads.items():
                room[link] = max(room[link] - best_pace * load, 1e-9)
                open_on[link] -= 1
        return paces
