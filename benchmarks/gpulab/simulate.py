"""The discrete-event simulation: hosts that launch, streams that run in order, calls that wait
inside their kernels for the last rank, and the fabric's shared links.

Time is ns since the job's start, as float. A host may run ahead of the device as CUDA lets it:
only synchronising calls and a full launch queue hold it back.
"""

from __future__ import annotations

import heapq
from typing import Any

from benchmarks.gpulab import program as p
from benchmarks.gpulab.devices import Devices
from benchmarks.gpulab.fabric import Flow
from benchmarks.gpulab.program import Call
from benchmarks.gpulab.state import CallState, RankState


class Simulation(Devices):
    """Runs the programs of all ranks. After :meth:`run` the ranks hold what they recorded."""

    def run(self) -> None:
        """Until nothing is left. Raises RuntimeError when ranks wait for ever."""
        for rank in self.ranks:
            rank.time = rank.random.uniform(0, 20_000)
            self.at(0.0, self.host, rank, 0.0)
        agenda = self.agenda
        while agenda:
            now, _, what, args = heapq.heappop(agenda)
            what(*args, now)
        stuck = [rank.rank for rank in self.ranks if rank.at < len(rank.code) or rank.outstanding]
        if stuck:
            raise RuntimeError(f"ranks {stuck[:8]} wait for ever in {self.job.strategy}")

    def arrive(self, rank: RankState, call: Call, state: list[Any], now: float) -> None:
        """A rank's kernel has started; the last to come starts the transfer."""
        here = self.calls.setdefault(call.key, CallState())
        here.arrived[rank.rank] = now
        here.members.append((rank, state))
        if call.sends:
            here.sends.update(call.sends)
        if len(here.arrived) < len(call.ranks):
            return
        if here.sends or call.op == "all_to_all":
            here.demand = self.demands.exchange(here.sends, call.kind)
        else:
            here.demand = self.demands.collective(call.op, call.ranks, call.total, call.kind)
        demand = here.demand
        spread = self.job.network_noise if demand.crosses_hosts else 0.01
        stretch = 1.0 + abs(self.noise.gauss(0.0, spread))
        for member, own in here.members:
            if not own[5]:
                own[5] = True
                member.moving += 1
                self.repace(member, now)
        # The last ``tail`` of the transfer is the time between the first rank's end and the last's.
        whole = 1.0 / demand.pace
        for link, load in demand.loads.items():
            whole = max(whole, load / self.fabric.rate(link))
        here.ends = demand.ends(here.arrived)
        kept = max(0.2, 1.0 - max(here.ends.values(), default=0.0) / whole)
        stretch *= kept
        loads = {link: load * stretch for link, load in demand.loads.items()}
        here.flow = Flow(loads, demand.pace / stretch, owner=here)
        latency = demand.latency_ns * self.noise.lognormvariate(0.0, 0.05)
        self.at(now + latency, self.flow_starts, here)

    def flow_starts(self, here: CallState, now: float) -> None:
        assert here.flow is not None
        for flow in self.traffic.start(here.flow, now):
            self.plan(flow, now)

    def plan(self, flow: Flow, now: float) -> None:
        """Put a flow's end on the agenda, by its pace of now."""
        end = now + max(flow.left, 0.0) / flow.pace
        self.at(end, self.flow_ends, flow, flow.version)

    def flow_ends(self, flow: Flow, version: int, now: float) -> None:
        if flow.version != version:
            return
        flow.version += 1
        here: CallState = flow.owner
        for other in self.traffic.end(flow, now):
            self.plan(other, now)
        here.done = True
        for rank, state in here.members:
            offset = here.ends.get(rank.rank, 0.0) + rank.random.expovariate(1 / 900.0)
            self.at(now + offset, self.part_done, rank, state)

    def part_done(self, rank: RankState, state: list[Any], now: float) -> None:
        """One of a kernel's calls is over for this rank; with the last the kernel ends."""
        state[3] -= 1
        if state[3]:
            return
        stream, item, start = state[0], state[1], state[2]
        rank.spinning -= 1
        rank.moving -= 1
        self.repace(rank, now)
        kind = p.COPY if item[2].name.startswith("Memcpy") else p.CALL
        rank.device.append((kind, stream.number, start, now, item))
        self.release(stream, now)
