"""The discrete-event simulation: hosts that launch, streams that run in order, calls that wait
inside their kernels for the last rank, and the fabric's shared links.

Time is ns since the job's start, as float. A host may run ahead of the device as CUDA lets it:
only synchronising calls and a full launch queue hold it back.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.gpulab import program as p
from benchmarks.gpulab.demand import Demand, Demands
from benchmarks.gpulab.fabric import Fabric, Flow, Traffic
from benchmarks.gpulab.job import Job
from benchmarks.gpulab.program import Call, Kernel, Program

LAUNCH_NS = 4_200.0
"""Median of cudaLaunchKernel; 1.5 to 8 us in the real traces beside the project."""
LAUNCH_TO_START_NS = 2_500.0
"""From the end of the launch to the kernel's start on an idle stream."""
BETWEEN_KERNELS_NS = 900.0
"""Gap between kernels that were already queued."""
QUEUE_LIMIT = 1024
"""Launches that a device takes before cudaLaunchKernel blocks."""
WAKE_NS = 6_000.0
"""From the device being done to a synchronising call's return."""
SPIN_SLOWDOWN = 0.03
"""How much longer compute runs beside a communication kernel that only waits: it holds its SMs."""
_DRAWS = 4099
_API_NS = {"cudaEventRecord": 900.0, "cudaStreamWaitEvent": 1_300.0, "cudaEventQuery": 700.0}


class Stream:
    """A device stream: items in order."""

    __slots__ = ("busy", "free", "number", "queue", "rank")

    def __init__(self, rank: RankState, number: int) -> None:
        self.rank, self.number = rank, number
        self.queue: deque[tuple[Any, ...]] = deque()
        self.free = 0.0
        self.busy = False


class Running:
    """A compute kernel under way."""

    __slots__ = ("item", "left", "matters", "pace", "since", "start", "stream", "version")

    def __init__(self, stream: Stream, item: tuple[Any, ...], now: float, left: float) -> None:
        self.stream, self.item, self.start, self.since, self.left = stream, item, now, now, left
        self.pace, self.version, self.matters = 1.0, 0, item[2].matters


class CallState:
    """One collective: who has come, and its flow."""

    __slots__ = ("arrived", "demand", "done", "flow", "members", "sends")

    def __init__(self) -> None:
        self.arrived: dict[int, float] = {}
        self.members: list[tuple[RankState, list[Any]]] = []
        self.sends: dict[tuple[int, int], int] = {}
        self.demand: Demand | None = None
        self.flow: Flow | None = None
        self.done = False


class RankState:
    """One rank's host and device."""

    def __init__(self, rank: int, program: Program, job: Job) -> None:
        self.rank, self.code, self.at, self.time = rank, program.code, 0, 0.0
        self.host_factor = job.factor("host_factor", rank)
        self.compute_factor = job.factor("compute_factor", rank)
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, float] = {}
        self.event_waiters: dict[int, list[Any]] = {}
        self.outstanding = 0
        self.stalled = False
        self.running: dict[int, Running] = {}
        self.spinning = self.moving = 0
        self.in_order = job.max_connections == 1
        self.next_dispatch = self.items = 0
        self.dispatch: dict[int, Stream] = {}
        self.correlation = 1000 + rank
        self.external = 0
        self.thread = p.MAIN
        self.stack: list[tuple[int, str, str, str, float, int]] = []
        self.random = random.Random(f"{job.seed}/{rank}")
        spread = np.random.default_rng([job.seed, rank]).standard_normal(_DRAWS)
        self.draws = cycle(np.exp(0.22 * spread).tolist())
        """How long host work takes, in turn, against its median."""
        # What the recorder reads.
        self.ranges: list[tuple[Any, ...]] = []
        self.runtime: list[tuple[Any, ...]] = []
        self.device: list[tuple[Any, ...]] = []
        self.waits: list[tuple[Any, ...]] = []


class Simulation:
    """Runs the programs of all ranks. After :meth:`run` the ranks hold what they recorded."""

    def __init__(self, job: Job, programs: list[Program]) -> None:
        self.job = job
        self.fabric = Fabric(job)
        self.traffic = Traffic(self.fabric)
        self.demands = Demands(job, self.fabric)
        self.ranks = [RankState(x.rank, x, job) for x in programs]
        self.calls: dict[tuple[Any, ...], CallState] = {}
        self.agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.noise = random.Random(f"{job.seed}/network")

    def at(self, time: float, what: Callable[..., None], *args: Any) -> None:
        """Put something on the agenda."""
        self.count += 1
        heapq.heappush(self.agenda, (time, self.count, what, args))

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

    # The host.

    def host(self, rank: RankState, since: float, now: float) -> None:
        """Run instructions until one has to wait."""
        rank.time = max(rank.time, since)
        rank.stalled = False
        code, draws = rank.code, rank.draws
        while rank.at < len(code):
            step = code[rank.at]
            kind = step[0]
            if kind == p.BEGIN:
                rank.external += 1
                rank.stack.append(
                    (rank.external, step[1], step[2], step[3], rank.time, rank.thread)
                )
                rank.time += 300.0
            elif kind == p.END:
                rank.time += 200.0
                number, name, category, args, start, thread = rank.stack.pop()
                rank.ranges.append((name, category, start, rank.time, thread, number, args))
            elif kind == p.WORK:
                if step[1] > 100_000:  # a wait of the script, not host speed
                    rank.time += step[1]
                else:
                    rank.time += step[1] * rank.host_factor * next(draws)
            elif kind in (p.KERNEL, p.CALL, p.GRAPH, p.COPY):
                if rank.outstanding >= QUEUE_LIMIT:
                    rank.stalled = True
                    return
                if not self.launch(rank, step, now):
                    return
            elif kind == p.RECORD:
                self.runtime(rank, "cudaEventRecord")
                self.put(rank, step[1], (p.RECORD, rank.time, step[2]), now)
            elif kind == p.WAIT:
                self.runtime(rank, "cudaStreamWaitEvent")
                self.put(rank, step[1], (p.WAIT, rank.time, step[2]), now)
            elif kind == p.SYNC:
                rank.at += 1
                if not self.block(rank, step[1], step[2], now):
                    return
                continue
            elif kind == p.THREAD:
                rank.thread = step[1]
                rank.time += 8_000.0
            elif kind == p.API:
                self.runtime(rank, step[1])
            rank.at += 1

    def runtime(self, rank: RankState, name: str, ns: float | None = None) -> int:
        """A runtime call; returns its correlation id."""
        rank.correlation += 1
        took = _API_NS.get(name, 1_000.0) if ns is None else ns
        took *= rank.host_factor * next(rank.draws)
        owner = rank.stack[-1][0] if rank.stack else 0
        rank.runtime.append((name, rank.time, took, rank.thread, rank.correlation, owner))
        rank.time += took + 250.0
        return rank.correlation

    def launch(self, rank: RankState, step: tuple[Any, ...], now: float) -> bool:
        """Launch device work. False when the host has to wait for it."""
        kind, stream = step[0], step[1]
        owner = rank.stack[-1][0] if rank.stack else 0
        if kind == p.COPY:
            return self.launch_copy(rank, step, now, owner)
        name = {
            p.KERNEL: "cudaLaunchKernel", p.CALL: "cudaLaunchKernelExC", p.GRAPH: "cudaGraphLaunch"
        }[kind]  # fmt: skip
        cost = LAUNCH_NS if kind != p.GRAPH else 20_000.0 + 60.0 * len(step[2])
        correlation = self.runtime(rank, name, cost)
        if kind == p.GRAPH:
            for kernel in step[2]:
                rank.outstanding += 1
                replayed = (p.KERNEL, rank.time, kernel, correlation, owner, self.span(rank))
                self.put(rank, stream, replayed, now)
            return True
        rank.outstanding += 1
        item: tuple[Any, ...] = (
            kind, rank.time, step[2], correlation, owner, self.span(rank)
        )  # fmt: skip
        if kind == p.CALL:
            item = (*item, step[3])
        self.put(rank, stream, item, now)
        return True

    def span(self, rank: RankState) -> int:
        """The innermost user annotation that is open: Kineto projects it on the device."""
        for number, _, category, *_ in reversed(rank.stack):
            if category == "user_annotation":
                return number
        return 0

    def launch_copy(self, rank: RankState, step: tuple[Any, ...], now: float, owner: int) -> bool:
        _, stream, kind, size, pinned = step
        rate = self.job.hw.memory_rate / 2 if kind == "DtoD" else self.job.hw.host_link_rate * 0.8
        host_side = "Pageable" if not pinned or size <= 8 else "Pinned"
        name = {
            "HtoD": f"Memcpy HtoD ({host_side} -> Device)",
            "DtoH": f"Memcpy DtoH (Device -> {host_side})",
            "DtoD": "Memcpy DtoD (Device -> Device)",
        }[kind]
        ns = 1_500.0 + size / rate * (1.0 if pinned or kind == "DtoD" else 2.5)
        kernel = Kernel(name, ns, matters=False, scales=False, args=str(size))
        correlation = self.runtime(rank, "cudaMemcpyAsync", LAUNCH_NS)
        rank.outstanding += 1
        item = (p.COPY, rank.time, kernel, correlation, owner, self.span(rank))
        self.put(rank, stream, item, now)
        if pinned or kind == "DtoD":
            return True
        # From pageable memory the call itself returns when the copy is over.
        rank.at += 1
        return self.block(rank, stream, "", now, extends=len(rank.runtime) - 1) and self.undo(rank)

    def undo(self, rank: RankState) -> bool:
        rank.at -= 1
        return True

    def block(
        self, rank: RankState, stream: int | None, api: str, now: float, extends: int = -1
    ) -> bool:
        """Make the host wait for streams; True when they are done already."""
        numbers = list(rank.streams) if stream is None else [stream]
        start = rank.time
        pending: list[int] = []
        for number in numbers:
            event = -(1_000_000 + rank.items * 64 + len(pending))
            self.put(rank, number, (p.RECORD, rank.time, event), now)
            pending.append(event)
        if extends < 0:
            rank.correlation += 1
            owner = rank.stack[-1][0] if rank.stack else 0
            rank.runtime.append((api, start, 2_000.0, rank.thread, rank.correlation, owner))
            extends = len(rank.runtime) - 1
        return self.resume(rank, pending, start, extends, now)

    def resume(
        self, rank: RankState, pending: list[int], start: float, at: int, now: float
    ) -> bool:
        """Go on when all events are there; called again by each that comes."""
        missing = [event for event in pending if event not in rank.events]
        if missing:
            rank.event_waiters.setdefault(missing[0], []).append((pending, start, at))
            return False
        done = max(rank.events[event] for event in pending)
        rank.time = max(rank.time + 2_000.0, done + WAKE_NS * rank.random.lognormvariate(0, 0.2))
        name, begun, _, *rest = rank.runtime[at]
        rank.runtime[at] = (name, begun, rank.time - begun, *rest)
        return True

    # The device.

    def put(self, rank: RankState, number: int, item: tuple[Any, ...], now: float) -> None:
        """Append to a stream."""
        stream = rank.streams.get(number)
        if stream is None:
            stream = rank.streams[number] = Stream(rank, number)
        if rank.in_order:
            rank.dispatch[rank.items] = stream
            item = (*item, rank.items)
        rank.items += 1
        stream.queue.append(item)
        if not stream.busy:
            self.advance(stream, now)

    def dispatched(self, rank: RankState, now: float) -> None:
        """One hardware queue: the next item may go."""
        del rank.dispatch[rank.next_dispatch]
        rank.next_dispatch += 1
        stream = rank.dispatch.get(rank.next_dispatch)
        if stream is not None and not stream.busy:
            self.at(now, self._advance_later, stream)

    def _advance_later(self, stream: Stream, now: float) -> None:
        if not stream.busy:
            self.advance(stream, now)

    def advance(self, stream: Stream, now: float) -> None:
        """Run what stands first in a stream that is idle."""
        rank = stream.rank
        while stream.queue:
            item = stream.queue[0]
            if rank.in_order and item[-1] != rank.next_dispatch:
                return
            kind, available = item[0], item[1]
            if kind == p.RECORD:
                stream.queue.popleft()
                self.happened(rank, item[2], max(stream.free, available), now)
            elif kind == p.WAIT:
                done = rank.events.get(item[2])
                if done is None:
                    rank.event_waiters.setdefault(item[2], []).append(stream)
                    return
                stream.queue.popleft()
                stream.free = max(stream.free, done, available)
            else:
                start = max(stream.free + BETWEEN_KERNELS_NS, available + LAUNCH_TO_START_NS)
                if rank.in_order:
                    start = max(start, now)
                stream.busy = True
                stream.queue.popleft()
                self.at(start, self.begin, stream, item)
                return
            if rank.in_order:
                self.dispatched(rank, now)

    def happened(self, rank: RankState, event: int, time: float, now: float) -> None:
        """An event is recorded at ``time``."""
        rank.events[event] = time
        for waiter in rank.event_waiters.pop(event, ()):
            if isinstance(waiter, Stream):
                if not waiter.busy:
                    self.at(now, self._advance_later, waiter)
            else:
                pending, start, at = waiter
                if self.resume(rank, pending, start, at, now):
                    self.at(now, self.host, rank, 0.0)

    def begin(self, stream: Stream, item: tuple[Any, ...], now: float) -> None:
        """A kernel or copy starts."""
        rank, kind, kernel = stream.rank, item[0], item[2]
        if rank.in_order:
            self.dispatched(rank, now)
        if kind == p.CALL:
            rank.spinning += 1
            self.repace(rank, now)
            state = [stream, item, now, len(item[6]), now, False]
            for call in item[6]:
                self.arrive(rank, call, state, now)
            return
        ns = kernel.ns * rank.random.lognormvariate(0.0, self.job.jitter)
        if kernel.scales:
            ns *= rank.compute_factor
        running = Running(stream, item, now, ns)
        rank.running[id(running)] = running
        self.repace(rank, now)

    def repace(self, rank: RankState, now: float) -> None:
        """What runs on a device changed: every kernel there gets a new pace."""
        crowd = sum(running.matters for running in rank.running.values())
        slowdown = 1.0 + (self.job.contention if rank.moving else 0.0)
        if rank.spinning and not rank.moving:
            slowdown += SPIN_SLOWDOWN
        for running in rank.running.values():
            pace = 1.0 if not running.matters else 1.0 / (slowdown * max(1, crowd))
            if running.version and abs(pace - running.pace) < 1e-9:
                continue
            running.left -= (now - running.since) * running.pace
            running.since, running.pace = now, pace
            running.version += 1
            end = now + max(running.left, 0.0) / pace
            self.at(end, self.finish, running, running.version)

    def finish(self, running: Running, version: int, now: float) -> None:
        """A kernel or copy ends, unless its pace changed since this was planned."""
        if running.version != version:
            return
        rank, item = running.stream.rank, running.item
        del rank.running[id(running)]
        rank.device.append((item[0], running.stream.number, running.start, now, item))
        if running.matters and rank.running:
            self.repace(rank, now)
        self.release(running.stream, now)

    def release(self, stream: Stream, now: float) -> None:
        """The stream is idle again."""
        rank = stream.rank
        stream.free, stream.busy = now, False
        rank.outstanding -= 1
        if rank.stalled and rank.outstanding < QUEUE_LIMIT:
            self.at(now, self.host, rank, now)
            rank.stalled = False
        self.advance(stream, now)

    # Collectives.

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
        kept = max(0.2, 1.0 - demand.tail_ns / whole) / 1.0
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
        assert here.demand is not None
        here.done = True
        for rank, state in here.members:
            offset = here.demand.ends.get(rank.rank, 0.0) + rank.random.expovariate(1 / 900.0)
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
        rank.device.append((p.CALL, stream.number, start, now, item))
        self.release(stream, now)
