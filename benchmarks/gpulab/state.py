"""What the simulation knows of each rank, stream, running kernel and collective."""

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
from benchmarks.gpulab.program import Call, Program

_DRAWS = 4099


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

    __slots__ = ("arrived", "demand", "done", "ends", "flow", "members", "sends")

    def __init__(self) -> None:
        self.arrived: dict[int, float] = {}
        self.members: list[tuple[RankState, list[Any]]] = []
        self.sends: dict[tuple[int, int], int] = {}
        self.demand: Demand | None = None
        self.ends: dict[int, float] = {}
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


class Core:
    """The job's ranks, fabric and agenda; hosts, devices and collectives are built on it."""

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

    def put(self, rank: RankState, number: int, item: tuple[Any, ...], now: float) -> None:
        """Append to a stream (the devices do it)."""
        raise NotImplementedError

    def host(self, rank: RankState, since: float, now: float) -> None:
        """Run a host until it has to wait (the hosts do it)."""
        raise NotImplementedError

    def arrive(self, rank: RankState, call: Call, state: list[Any], now: float) -> None:
        """A rank's kernel of a collective has started (the collectives do it)."""
        raise NotImplementedError
