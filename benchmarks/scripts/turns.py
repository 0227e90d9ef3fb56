"""Two jobs that step in turn, so that what a machine does meanwhile is done to both.

    python -m benchmarks.scripts.turns SOCKET JOB train.py ...

runs a script as one rank of a job. Its optimizer's steps are counted: after :data:`WARM_UP` and
after each turn it says how long the turn's steps took, and waits to be let on. Started by
:mod:`benchmarks.scripts.record`, which lets one job run at a time (:class:`Turns`).
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

WARM_UP = 5
LENGTH = 6  # steps: a multiple of how often the scripts save (every 2 or 3 steps)
COUNT = 5
STEPS = WARM_UP + COUNT * LENGTH
_TIMEOUT_S = 120.0  # for two jobs to start, or for a turn


class Turns:
    """The side that lets jobs step; closing it ends every job that waits."""

    def __init__(self, jobs: Sequence[str], ranks: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="turns")
        self._jobs, self._ranks = jobs, ranks
        self._server = socket.socket(socket.AF_UNIX)
        self._server.settimeout(_TIMEOUT_S)
        self._server.bind(f"{self._folder.name}/socket")
        self._server.listen()
        self._lines: dict[str, list[Any]] = {job: [] for job in jobs}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in [line for lines in self._lines.values() for line in lines]:
            line.close()
        self._server.close()
        self._folder.cleanup()

    def command(self, job: str) -> list[str]:
        """What stands before a script of ``job``."""
        return ["-m", "benchmarks.scripts.turns", f"{self._folder.name}/socket", job]

    def take(self) -> dict[str, list[int]]:
        """ns of each job's steps, turn after turn, each of its slowest rank.

        Afterwards all jobs wait. Raises OSError where one ends before its last turn.
        """
        for _ in range(len(self._jobs) * self._ranks):
            connection, _ = self._server.accept()
            connection.settimeout(_TIMEOUT_S)
            line = connection.makefile("rw", encoding="utf-8")
            self._lines[json.loads(line.readline())].append(line)
        for job in self._jobs:
            self._heard(job)  # warm
        taken: dict[str, list[int]] = {job: [] for job in self._jobs}
        for _ in range(COUNT):
            for job in self._jobs:
                self.let(job, "on")
                taken[job] += self._heard(job)
        return taken

    def let(self, job: str, word: str) -> None:
        """Let a job go ``on``, or ``end`` it."""
        for line in self._lines[job]:
            print(word, file=line, flush=True)

    def _heard(self, job: str) -> list[int]:
        said = [line.readline() for line in self._lines[job]]
        if not all(said):
            raise ConnectionError(f"job {job!r} ended before its last turn")
        return [max(times) for times in zip(*map(json.loads, said), strict=True)]


class _Rank:
    """One rank's side: stands still at the end of a turn's last step."""

    def __init__(self, address: str, job: str) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        self._line = connection.makefile("rw", encoding="utf-8")
        self._say(job)
        self._optimizer: int | None = None
        self._seen = 0
        self._times_ns: list[int] = []
        self._since_ns = time.perf_counter_ns()

    def stepped(self, optimizer: object, *_: object) -> None:
        """The optimizer has stepped; the first that is seen stands for the step."""
        self._optimizer = self._optimizer or id(optimizer)
        if id(optimizer) != self._optimizer or self._seen >= STEPS:
            return
        now_ns = time.perf_counter_ns()
        self._times_ns.append(now_ns - self._since_ns)
        self._seen += 1
        if self._seen >= WARM_UP and (self._seen - WARM_UP) % LENGTH == 0:
            self._say(self._times_ns)
            self._times_ns = []
            if self._line.readline().strip() != "on":
                os._exit(0)
            now_ns = time.perf_counter_ns()
        self._since_ns = now_ns

    def _say(self, what: object) -> None:
        print(json.dumps(what), file=self._line, flush=True)


def main() -> None:
    """As the header says."""
    _, address, job, script, *arguments = sys.argv
    rank = _Rank(address, job)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(rank.stepped)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
