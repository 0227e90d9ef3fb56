"""Says every N steps who comes late to the collectives and by how much, without a profiler.

torch's flight recorder keeps when each call was asked for, in C++ and for gloo and NCCL alike.
Every N steps each rank puts its latest calls into the job's own store; rank 0 compares them N steps
later, when they are surely there, so that nobody waits for anybody.
"""

import json
import math
import pickle
import socket
import statistics
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

FILE_NAME = "lateness.jsonl"
_CALLS_IN_ALL = 8192  # of all ranks together: what rank 0 reads through the store
_LEAST_CALLS = 8
# A rank is named where it comes last in this share of the steps, by this share of a step, and so
# often by chance in one of a hundred lines at most.
_MOSTLY, _NOTICEABLE, _CHANCE = 0.7, 0.02, 0.01


@dataclass(frozen=True)
class Window:
    """What one rank has seen of N steps: ends of steps and calls by key, epoch ns of its host."""

    first: int
    last: int
    host: str
    ends_ns: list[int]
    calls: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Lateness:
    """One line: ``late_ns`` by rank is the median over steps of how much later than the ranks'
    median it came to the call where it was latest; ``times_last`` counts steps."""

    first: int
    last: int
    step_ns: float
    slow_step_ns: float
    steps: int
    hosts: int
    late_ns: dict[int, float]
    times_last: dict[int, int]

    @property
    def named(self) -> int | None:
        """The rank that is late in most steps, or None."""
        if not self.steps:
            return None
        rank = max(self.times_last, key=lambda r: self.times_last[r])
        often = self.times_last[rank] >= _MOSTLY * self.steps and self._is_rare(
            self.times_last[rank]
        )
        return rank if often and self.late_ns[rank] >= _NOTICEABLE * self.step_ns else None

    def _is_rare(self, times: int) -> bool:
        """Whether, all ranks being alike, one is hardly ever last in so many steps.

        By Chernoff's bound of the binomial: P(X >= t) <= exp(-n KL(t/n, 1/ranks)).
        """
        ranks, share = len(self.times_last), times / self.steps
        divergence = share * math.log(share * ranks)
        if share < 1:
            divergence += (1 - share) * math.log((1 - share) * ranks / (ranks - 1))
        return ranks * math.exp(-self.steps * divergence) <= _CHANCE

    def line(self) -> str:
        """For people."""
        pace = f"steps {self.first}-{self.last}: {_ms(self.step_ns)} each"
        if self.slow_step_ns > 1.5 * self.step_ns:
            pace += f", the slowest {_ms(self.slow_step_ns)}"
        if not self.steps:
            return f"{pace}; no collective of several ranks was seen"
        if self.named is None:
            if not self._is_rare(self.steps):
                return f"{pace}; {self.steps} with collectives are too few to say who is late"
            most = _ms(max(self.late_ns.values()))
            return f"{pace}; no rank is late in most steps (medians up to {most})"
        clocks = f" by {self.hosts} hosts' clocks" if self.hosts > 1 else ""
        return (
            f"{pace}; rank {self.named} comes {_ms(self.late_ns[self.named])} late{clocks}, "
            f"last in {self.times_last[self.named]} of {self.steps} steps"
        )


class Watch:
    """One rank's side. Call :meth:`step` at the end of every step."""

    def __init__(self, folder: Path, every: int, store: Any, rank: int, world: int) -> None:
        self.folder = folder
        self.every = every
        self.store = store
        self.rank, self.world = rank, world
        self.say: Callable[[Lateness], None] = self._write
        self._ends_ns: list[int] = []
        self._before: int | None = None

    def step(self, number: int) -> None:
        """Step ``number`` has ended; the last of N puts the window into the store."""
        self._ends_ns.append(time.time_ns())
        if len(self._ends_ns) <= self.every:
            return
        window = number // self.every
        ends = self._ends_ns
        mine = Window(
            number - self.every + 1, number, socket.gethostname(), ends,
            calls_asked(since_ns=ends[0], most=max(_LEAST_CALLS, _CALLS_IN_ALL // self.world)),
        )  # fmt: skip
        self.store.set(f"late/{window}/{self.rank}", json.dumps(asdict(mine)))
        before, self._before = self._before, window
        self._ends_ns = ends[-1:]
        if before is None:
            return
        if self.rank == 0:
            self._compare(before)
        self.store.delete_key(f"late/{before - 1}/{self.rank}")

    def _compare(self, window: int) -> None:
        keys = [f"late/{window}/{rank}" for rank in range(self.world)]
        if not self.store.check(keys):
            return  # a rank is a whole window behind: the next line will show it
        found = [Window(**json.loads(text)) for text in self.store.multi_get(keys)]
        late = compare(found)
        self.say(late)

    def _write(self, late: Lateness) -> None:
        print(f"advisor: {late.line()}", file=sys.stderr, flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / FILE_NAME).open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(late)) + "\n")


def calls_asked(*, since_ns: int, most: int) -> dict[str, int]:
    """The latest ``most`` collectives that this rank asked for since then: key -> epoch ns.

    A key is the group's name and ranks, the operation and its number in the group.
    """
    import torch._C._distributed_c10d as c10d

    # As pickle and without stacks: 4 ms of CPU for 512 calls, where the JSON text takes 9.
    dumps = (getattr(c10d, name, None) for name in ("_dump_nccl_trace", "_dump_fr_trace"))
    found: dict[str, int] = {}
    for dump in filter(None, dumps):
        document = pickle.loads(dump(includeStackTraces=False))  # noqa: S301  # this process's own
        ranks = {
            name: str(group.get("ranks")) for name, group in document.get("pg_config", {}).items()
        }
        for entry in document.get("entries", []):
            if entry["time_created_ns"] < since_ns or entry.get("is_p2p"):
                continue
            name = str(entry["process_group"][0])
            number, what = entry["collective_seq_id"], entry["profiling_name"]
            found[f"{name} {ranks.get(name, '')} {what} {number}"] = int(entry["time_created_ns"])
    return dict(sorted(found.items(), key=lambda item: item[1])[-most:])


def compare(windows: Sequence[Window]) -> Lateness:
    """Who is late, from the windows of all ranks in order.

    Calls belong to the step of rank 0 or, where it has no part in them, of their first rank. A rank
    that was held up comes late to all calls of a step, so a step counts by its worst call alone.
    """
    by_call: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, window in enumerate(windows):
        for key, asked_ns in window.calls.items():
            by_call[key][rank] = asked_ns
    worst: dict[int, dict[int, float]] = defaultdict(dict)
    for asked in by_call.values():
        if len(asked) < 2:
            continue
        step = _step_of(min(asked), asked, windows)
        middle = statistics.median_low(list(asked.values()))
        for rank, when in asked.items():
            worst[step][rank] = max(worst[step].get(rank, 0.0), when - middle)
    worst.pop(-1, None)
    times_last = dict.fromkeys(range(len(windows)), 0)
    late: dict[int, list[float]] = defaultdict(list)
    for ranks in worst.values():
        times_last[max(ranks, key=lambda rank: ranks[rank])] += 1
        for rank, late_ns in ranks.items():
            late[rank].append(late_ns)
    ends = windows[0].ends_ns
    steps = [after - before for before, after in pairwise(ends)]
    return Lateness(
        windows[0].first, windows[0].last, statistics.median(steps), max(steps), len(worst),
        len({window.host for window in windows}),
        {rank: statistics.median(values) for rank, values in sorted(late.items())}, times_last,
    )  # fmt: skip


def _ms(ns: float) -> str:
    """Two digits, whole milliseconds from 10 on."""
    return f"{ns / 1e6:,.0f} ms" if ns >= 10e6 else f"{ns / 1e6:.2g} ms"


def _step_of(rank: int, asked: Mapping[int, int], windows: Sequence[Window]) -> int:
    """The place of the step in which ``rank`` asked for a call; -1 outside."""
    ends = windows[rank].ends_ns
    place = bisect_left(ends, asked[rank]) - 1
    return place if place < len(ends) - 1 else -1
