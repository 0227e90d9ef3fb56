"""Hosts: one instruction after another, ahead of the device until a call has to wait for it."""

from __future__ import annotations

from typing import Any

from benchmarks.gpulab import program as p
from benchmarks.gpulab.program import Kernel
from benchmarks.gpulab.state import Core, RankState

LAUNCH_NS = 4_200.0
"""Median of cudaLaunchKernel; 1.5 to 8 us in the real traces beside the project."""
QUEUE_LIMIT = 1024
"""Launches that a device takes before cudaLaunchKernel blocks."""
WAKE_NS = 6_000.0
"""From the device being done to a synchronising call's return."""
_API_NS = {"cudaEventRecord": 900.0, "cudaStreamWaitEvent": 1_300.0, "cudaEventQuery": 700.0}


class Hosts(Core):
    """The part of the simulation that runs host code."""

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
        if kind == p.CALL and step[2].name.startswith("Memcpy"):
            name = "cudaMemcpyAsync"
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
