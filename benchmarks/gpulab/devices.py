"""Devices: streams in order, events between them, kernels at a pace set by what runs beside."""

from __future__ import annotations

from typing import Any

from benchmarks.gpulab import program as p
from benchmarks.gpulab.hosts import QUEUE_LIMIT, Hosts
from benchmarks.gpulab.state import RankState, Running, Stream

LAUNCH_TO_START_NS = 2_500.0
"""From the end of the launch to the kernel's start on an idle stream."""
BETWEEN_KERNELS_NS = 900.0
"""Gap between kernels that were already queued."""
SPIN_SLOWDOWN = 0.03
"""How much longer compute runs beside a communication kernel that only waits: it holds its SMs."""


class Devices(Hosts):
    """The part of the simulation that runs device work."""

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
        period = self.job.throttle_period_ns
        if kernel.scales and (not period or 3 * (now % period) < period):
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
