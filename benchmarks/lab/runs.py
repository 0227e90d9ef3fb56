"""Running one phase of a lab run: forks the ranks, shapes the links, waits, collects step times."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from benchmarks.lab import worker
from benchmarks.lab.config import RunConfig
from benchmarks.lab.hosts import Network

PHASE_LIMIT_S = 40.0
BURST_S = (0.005, 0.05)
"""How long a noisy neighbour stays on one core: less than a step of the lab's jobs."""
_ports = itertools.count(29_500)


class PhaseError(RuntimeError):
    """A rank failed or hung; the message holds its error."""


def run_phase(network: Network, config: RunConfig, phase: worker.Phase) -> list[list[int]]:
    """Run ``config`` in fresh processes; per rank the timed steps in ns.

    Raises PhaseError when a rank fails, or when they do not end within PHASE_LIMIT_S.
    """
    phase.folder.mkdir(parents=True, exist_ok=True)
    for host in range(config.hosts):
        network.shape(host, config.link_of(host))
    port = next(_ports)
    with _burners(config.burners), _quotas(config) as quota_files:
        children = {}
        for rank in range(config.ranks):
            pid = os.fork()
            if pid == 0:
                if rank in quota_files:
                    quota_files[rank].write_text(str(os.getpid()))
                worker.run_rank(
                    config, rank, phase, network.namespace(config.host_of(rank)),
                    network.address(0), port,
                )  # fmt: skip
            children[pid] = rank
        _wait(children, phase)
    return _times(phase, "step_ns", config.ranks)


def recorded_steps(config: RunConfig, phase: worker.Phase) -> list[list[int]]:
    """Per rank the steps in ns that a phase traced, once it has run."""
    return _times(phase, "recorded_ns", config.ranks)


def _times(phase: worker.Phase, name: str, ranks: int) -> list[list[int]]:
    return [json.loads((phase.folder / f"rank{r}.json").read_text())[name] for r in range(ranks)]


def step_ns(times: list[list[int]]) -> int:
    """One number for a phase: the median over ranks of each rank's median step."""
    return round(statistics.median(statistics.median(rank) for rank in times))


def _wait(children: dict[int, int], phase: worker.Phase) -> None:
    deadline = time.monotonic() + PHASE_LIMIT_S
    failed: list[int] = []
    try:
        while children and not failed:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in children:
                rank = children.pop(pid)
                if status != 0:
                    failed.append(rank)
            elif pid == 0:
                if time.monotonic() > deadline:
                    raise PhaseError(f"no end within {PHASE_LIMIT_S:g} s: {phase.folder}")
                time.sleep(0.02)
        if failed:
            time.sleep(0.5)  # the others' errors, as far as they have one
            raise PhaseError(_errors(phase.folder, failed))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _errors(folder: Path, ranks: list[int]) -> str:
    texts = []
    for rank in ranks:
        path = folder / f"rank{rank}.json"
        error = json.loads(path.read_text()).get("error") if path.is_file() else "killed"
        texts.append(f"rank {rank}: {error}")
    return "\n".join(texts)


@contextmanager
def _burners(count: int) -> Iterator[None]:
    """Processes that spin for as long as the block lasts, on one core after another.

    They move by themselves: the kernel may leave one beside the same rank all along, and a rank
    that is always disturbed alone is a slow rank, no healthy run.
    """
    pids = []
    try:
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                _spin_about(random.Random(number))
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _spin_about(chance: random.Random) -> NoReturn:
    """Spin on a core drawn anew every ``BURST_S``, for ever."""
    cores = sorted(os.sched_getaffinity(0))
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, worker.FIRST_IN_LINE)
    while True:
        os.sched_setaffinity(0, {chance.choice(cores)})
        until = time.monotonic() + chance.uniform(*BURST_S)
        while time.monotonic() < until:
            pass


QUOTA_PERIOD_US = 20_000
# The quota alone is to hold a rank back, not other work on the machine.
MOST_SHARES = 262_144
MOST_WEIGHT = 10_000
CGROUP_V1 = Path("/sys/fs/cgroup/cpu")
CGROUP_V2 = Path("/sys/fs/cgroup")


@contextmanager
def _quotas(config: RunConfig) -> Iterator[dict[int, Path]]:
    """Control groups that hold ranks to a share of a core; where a rank writes its pid."""
    made: dict[int, Path] = {}
    try:
        for rank, share in config.cpu_quota.items():
            root = CGROUP_V1 if (CGROUP_V1 / "cpu.cfs_quota_us").exists() else CGROUP_V2
            group = root / f"advlab{os.getpid()}r{rank}"
            group.mkdir()
            made[rank] = group
            quota = str(int(QUOTA_PERIOD_US * share))
            if root == CGROUP_V1:
                (group / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(quota)
                (group / "cpu.shares").write_text(str(MOST_SHARES))
            else:
                (group / "cpu.max").write_text(f"{quota} {QUOTA_PERIOD_US}")
                (group / "cpu.weight").write_text(str(MOST_WEIGHT))
        yield {rank: group / "cgroup.procs" for rank, group in made.items()}
    finally:
        for group in made.values():
            group.rmdir()


def discard(folder: Path) -> None:
    """Remove a phase's folder when only its times were wanted."""
    shutil.rmtree(folder, ignore_errors=True)
