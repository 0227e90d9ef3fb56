"""Replay programs: a discrete-event simulation of ranks, queues and a shared network.

A call may run when all its ranks issued it and it is among the first ``slots`` unfinished calls of
its channel (gloo runs two at a time per process group, NCCL one per communicator). Calls that run
at the same time and share a rank share the network where ``shared`` is set, in proportion to their
service times: rings go in rounds, and in each round every call puts one chunk of its own size into
the same queue, so that all advance by the same fraction of themselves. Work beside a transfer of
its rank goes slower by the program's ``contention``.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

from advisor.errors import AdvisorError
from advisor.whatif.program import Issue, Mark, Program, Wait, Work


@dataclass
class Replay:
    """When each rank ended its step and when each call was done, in ns from the earliest start."""

    end_ns: dict[int, float] = field(default_factory=dict)
    call_end_ns: dict[int, float] = field(default_factory=dict)
    waited_ns: dict[int, float] = field(default_factory=dict)

    @property
    def step_ns(self) -> float:
        """Length of the step: the last rank's end."""
        return max(self.end_ns.values())


class _Network:
    """The calls that are queued and running."""

    def __init__(self, program: Program) -> None:
        self.calls = program.calls
        self.slots = program.slots
        self.shared = program.shared
        self.arrivals: dict[int, int] = dict.fromkeys(program.calls, 0)
        self.queues: dict[str, deque[int]] = {}
        self.active: dict[int, float] = {}
        # How many times its own length a running call takes at present.
        self.slowdown: dict[int, float] = {}
        self.done: dict[int, float] = {}
        # Calls that ranks have asked for, by the call whose end they wait for.
        self.held: dict[int, list[int]] = {}
        self.placed: set[int] = set()
        # By rank, how many of its calls move data; and the ranks for which that has changed.
        self.moving: dict[int, int] = dict.fromkeys(program.items, 0)
        self.changed: set[int] = set()

    def issue(self, item: Issue, now: float) -> None:
        """A rank asks for a call: it has its place in the queue, also while it is held."""
        queue = self.queues.setdefault(self.calls[item.call].channel, deque())
        if item.call not in self.placed:
            self.placed.add(item.call)
            queue.append(item.call)
        if item.after in self.calls and item.after not in self.done:
            self.held.setdefault(item.after, []).append(item.call)
        else:
            self._arrive(item.call, now)

    def _arrive(self, call: int, now: float) -> None:
        self.arrivals[call] += 1
        self._admit(self.queues[self.calls[call].channel], now)

    def _admit(self, queue: deque[int], now: float) -> None:
        changed = False
        for position, call in enumerate(queue):
            if position >= self.slots:
                break
            if call not in self.active and self.arrivals[call] == len(self.calls[call].ranks):
                self.active[call] = self.calls[call].service_ns
                for rank in self.calls[call].ranks:
                    self.moving[rank] += 1
                self.changed.update(self.calls[call].ranks)
                changed = True
        if changed:
            self._reshare()

    def _reshare(self) -> None:
        if not self.shared:
            self.slowdown = dict.fromkeys(self.active, 1.0)
            return
        members = {call: set(self.calls[call].ranks) for call in self.active}
        weight = {call: max(self.calls[call].service_ns, 1.0) for call in self.active}
        self.slowdown = {
            call: sum(weight[other] for other, theirs in members.items() if ranks & theirs)
            / weight[call]
            for call, ranks in members.items()
        }

    def next_end(self, now: float) -> float:
        return now + min(left * self.slowdown[call] for call, left in self.active.items())

    def advance(self, elapsed: float) -> None:
        for call in self.active:
            self.active[call] -= elapsed / self.slowdown[call]

    def finish(self, now: float) -> list[int]:
        # Rounding of the sharing arithmetic must not leave a call with 1e-9 ns to go, nor one with
        # less than the clock resolves.
        over = [
            call
            for call, left in self.active.items()
            if left <= 1e-3 or now + left * self.slowdown[call] <= now
        ]
        for call in over:
            del self.active[call]
            self.done[call] = now
            for rank in self.calls[call].ranks:
                self.moving[rank] -= 1
            self.changed.update(self.calls[call].ranks)
            queue = self.queues[self.calls[call].channel]
            queue.remove(call)
        if over:
            self._reshare()
            for channel in {self.calls[call].channel for call in over}:
                self._admit(self.queues[channel], now)
        for call in over:
            for held in self.held.pop(call, []):
                self._arrive(held, now)
        return over


@dataclass
class _Working:
    """What is left of a rank's work, ns alone, since when, and how many times as long it takes."""

    left: float
    since: float
    times: float
    version: int


class _Ranks:
    """When each rank is due: its work ends, or it goes on after a wait."""

    def __init__(self, program: Program, network: _Network) -> None:
        self.contention = program.contention
        self.moving, self.changed = network.moving, network.changed
        self.working: dict[int, _Working] = {}
        self.version = dict.fromkeys(program.items, 0)
        self.due = [(program.start_ns.get(rank, 0.0), rank, 0) for rank in sorted(program.items)]
        heapq.heapify(self.due)

    def begin(self, rank: int, ns: float, now: float) -> None:
        times = 1.0 + (self.contention if self.moving[rank] else 0.0)
        self._plan(rank, ns, times, now)

    def wake(self, rank: int, now: float) -> None:
        self._plan(rank, 0.0, 1.0, now)

    def _plan(self, rank: int, left: float, times: float, now: float) -> None:
        self.version[rank] += 1
        self.working[rank] = _Working(left, now, times, self.version[rank])
        heapq.heappush(self.due, (now + left * times, rank, self.version[rank]))

    def repace(self, now: float) -> None:
        """Work whose rank's traffic began or ended goes on at another pace."""
        for rank in sorted(self.changed) if self.contention else ():
            times = 1.0 + (self.contention if self.moving[rank] else 0.0)
            work = self.working.get(rank)
            if work is not None and times != work.times:
                left = max(work.left - (now - work.since) / work.times, 0.0)
                self._plan(rank, left, times, now)
        self.changed.clear()

    def next(self) -> float:
        """When the next rank is due; infinite where none is."""
        while self.due and self.due[0][2] != self.version[self.due[0][1]]:
            heapq.heappop(self.due)
        return self.due[0][0] if self.due else float("inf")

    def pop(self) -> int:
        rank = heapq.heappop(self.due)[1]
        self.working.pop(rank, None)
        return rank


def simulate(program: Program) -> Replay:
    """Run the program. Raises AdvisorError when it cannot end (a call some rank never issues)."""
    replay = Replay()
    network = _Network(program)
    ranks = _Ranks(program, network)
    position = dict.fromkeys(program.items, 0)
    replay.waited_ns = dict.fromkeys(program.items, 0.0)
    blocked: dict[int, list[tuple[int, float]]] = {}
    now = 0.0

    def run(rank: int) -> None:
        items = program.items[rank]
        while position[rank] < len(items):
            item = items[position[rank]]
            if isinstance(item, Wait) and item.call not in network.done:
                blocked.setdefault(item.call, []).append((rank, now))
                return
            position[rank] += 1
            if isinstance(item, Work):
                ranks.begin(rank, item.ns, now)
                return
            if isinstance(item, Issue):
                network.issue(item, now)
            elif isinstance(item, Mark):
                continue
        replay.end_ns[rank] = now

    while (due := ranks.next()) < float("inf") or network.active:
        end = network.next_end(now) if network.active else float("inf")
        moment = max(now, min(end, due))
        network.advance(moment - now)
        now = moment
        for call in network.finish(now) if end <= due else ():
            for rank, since in blocked.pop(call, []):
                replay.waited_ns[rank] += now - since
                ranks.wake(rank, now)
        ranks.repace(now)
        while ranks.next() <= now:
            run(ranks.pop())
        ranks.repace(now)
    if blocked:
        waiting = sorted(rank for those in blocked.values() for rank, _ in those)
        raise AdvisorError(
            f"the replay cannot end: ranks {waiting} wait for calls that a rank never issues",
            hint="the trace misses calls of some rank; see `unmatched`",
        )
    replay.call_end_ns = network.done
    return replay
