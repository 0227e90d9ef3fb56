"""Starts the ranks of this node through torch's elastic launcher, and watches them.

One attempt, no restarts. A rank that dies is named by the elastic agent's failure report; a rank
that hangs is the one with the least progress on the board (advisor.profile.progress): it is asked
for its stacks (SIGUSR1, into its log), then to stop (SIGTERM, so that it writes what it recorded),
then killed, which makes the agent end the others.
"""

import contextlib
import dataclasses
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import advisor
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import files, strategies
from advisor.profile.failures import (
    LaunchError,
    LaunchStoppedError,
    kept,
    kernel_kills,
    rank_that_failed,
)
from advisor.profile.progress import Board, Position, laggards
from advisor.profile.rendezvous import How, Nodes, apart, await_first
from advisor.profile.signals import own_signals, signal_behind
from advisor.vocabulary.words import named_ranks

PLAINLY = How()
_GRACE_S = 20.0  # from SIGTERM to SIGKILL: time to write a trace
# Python does not look for modules in the working folder (-P), where another `advisor` may be; the
# package that launches is the one that runs, installed or not.
_START = (
    "import runpy, sys; root = sys.argv.pop(1); root in sys.path or sys.path.insert(0, root); "
    "runpy.run_module('advisor.profile.worker', run_name='__main__', alter_sys=True)"
)


def launch(workload: Workload, folder: Path, how: How = PLAINLY) -> None:
    """Run all ranks of this node to the end; traces and results are in ``folder``.

    Raises LaunchError naming the rank that died or hung, LaunchStoppedError naming the signal that
    stopped the launch, MeetingError where the nodes do not meet; what was recorded stays.
    """
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    nodes, timeout_s = how.nodes, how.timeout_s
    workload = check(workload, nodes)
    local_size = local_ranks(workload, nodes)
    await_first(nodes, timeout_s)
    logs = folder / "logs"
    logs.mkdir(files.LOGS_MODE, parents=True, exist_ok=True)
    write_job(workload, folder, how)
    files.board(folder, nodes.rank).unlink(missing_ok=True)
    board = Board(files.board(folder, nodes.rank), local_size)
    config = LaunchConfig(
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=local_size,
        run_id=f"advisor-{uuid.uuid4().hex[:12]}" if nodes.count == 1 else "advisor",
        rdzv_backend="c10d" if nodes.count == 1 else "static",
        rdzv_endpoint=nodes.endpoint or "127.0.0.1:0",
        rdzv_configs={} if nodes.count == 1 else {"rank": nodes.rank, "timeout": int(timeout_s)},
        local_addr="127.0.0.1" if nodes.count == 1 else None,
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
        **_grace(LaunchConfig),
    )
    watch = _Watch(board, first_rank=nodes.rank * local_size, timeout_s=timeout_s)
    root = str(Path(advisor.__file__).resolve().parent.parent)
    command = [sys.executable, "-u", "-P", "-c", _START, root, str(folder)]
    killed_before = kernel_kills()
    quiet = _quiet(logs / f"launcher-{nodes.rank}.log")
    # The board is closed last: the watch reads it until it has been joined.
    with (
        own_signals(),
        contextlib.closing(board),
        quiet,
        _environment(workload, nodes, how.threads),
        watch,
    ):
        try:
            elastic_launch(config, command[0])(*command[1:])
        except ChildFailedError as error:
            hint = kept(folder, workload.world_size)
            if watch.hung:
                raise _hung(watch, hint) from error
            raise rank_that_failed(
                error.failures, logs, hint=hint, killed_before=killed_before
            ) from error
        except DistError as error:
            raise apart(nodes, timeout_s, error) from error
        except (SignalException, UnboundLocalError) as error:
            ended_by = signal_behind(error)
            raise LaunchStoppedError(
                f"stopped by {signal.Signals(ended_by.sigval).name}; all ranks were ended",
                hint=kept(folder, workload.world_size),
            ) from ended_by


def check(workload: Workload, nodes: Nodes) -> Workload:
    """Refuse what cannot run on this machine, before anything is written. Raises AdvisorError."""
    workload, _ = strategies.prepare(workload)
    ranks = local_ranks(workload, nodes)
    if workload.device == "cuda":
        _need_gpus(ranks)
    elif workload.memory_snapshot:
        raise AdvisorError(
            "memory_snapshot and device cpu: torch keeps that history for CUDA's allocator only",
            hint="leave it out; --set record_memory=true puts a CPU's allocations into the trace",
        )
    return workload


def local_ranks(workload: Workload, nodes: Nodes) -> int:
    """Ranks on this node. Raises AdvisorError when they do not divide evenly."""
    if workload.strategy == "single" and nodes.count > 1:
        raise AdvisorError(
            f"strategy single and nnodes {nodes.count}: single runs on one rank of one machine",
            hint="leave single out, and run it alone without --nnodes",
        )
    if workload.world_size % nodes.count:
        raise AdvisorError(
            f"world_size {workload.world_size} does not divide over nnodes {nodes.count}",
            hint="every node runs the same number of ranks",
        )
    return workload.world_size // nodes.count


def _need_gpus(ranks: int) -> None:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < ranks:
        raise AdvisorError(
            f"device cuda and {ranks} ranks on this machine: it has {count} GPUs for torch",
            hint="--device cpu, or fewer ranks with --nproc",
        )


def _grace(config: Any) -> dict[str, int]:
    """The agent's own patience with ranks that it ends, where this torch lets it be set."""
    known = {field.name for field in dataclasses.fields(config)}
    return {"shutdown_timeout": int(_GRACE_S)} if "shutdown_timeout" in known else {}


class _Watch(threading.Thread):
    """Ends a rank that holds up the others for longer than the timeout."""

    def __init__(self, board: Board, *, first_rank: int, timeout_s: float) -> None:
        super().__init__(name="advisor-watch", daemon=True)
        self._board = board
        self._first_rank = first_rank
        self.timeout_s = timeout_s
        self._stopped = threading.Event()
        self._started_ns = time.monotonic_ns()
        self.hung: list[Position] = []
        self.last: list[Position] = []

    def __enter__(self) -> "_Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        """Look a few times a second."""
        while not self._stopped.wait(0.2):
            self.last = self._board.read(self._first_rank)
            running = [position for position in self.last if position.phase != "done"]
            newest_ns = max((p.changed_ns for p in running), default=time.monotonic_ns())
            late = time.monotonic_ns() - max(newest_ns, self._started_ns) > self.timeout_s * 1e9
            # Before a rank has come up there is nobody to end; one that dies then ends the launch.
            if late and any(position.pid for position in running):
                self.hung = laggards(self.last)
                known = [position for position in self.hung if position.pid]
                self._end(known or running)
                return

    def _end(self, positions: list[Position]) -> None:
        pids = [position.pid for position in positions if position.pid]
        for number in (signal.SIGUSR1, signal.SIGTERM):
            _signal_all(pids, number)
            self._stopped.wait(0.5)
        self._stopped.wait(_GRACE_S)
        if not self._stopped.is_set():
            _signal_all(pids, signal.SIGKILL)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _hung(watch: _Watch, hint: str) -> LaunchError:
    ranks = named_ranks(position.rank for position in watch.hung)
    return LaunchError(
        f"{ranks} made no progress for {watch.timeout_s:g} s, {watch.hung[0]}; all ranks ended",
        hint=f"its stacks are in its stderr.log; {hint}",
    )


def write_job(workload: Workload, folder: Path, how: How = PLAINLY) -> None:
    """Tell the ranks what to run."""
    document = {
        "workload": workload.to_json(),
        "faults": [str(fault) for fault in how.faults],
        "timeout_s": how.timeout_s,
        "stop_above_ns_per_token": how.stop_above_ns_per_token,
        "memory_limit_bytes": how.memory_limit_bytes,
    }
    files.write_json(folder / files.JOB_FILE, document)


@contextlib.contextmanager
def _environment(workload: Workload, nodes: Nodes, threads: int | None) -> Iterator[None]:
    """Defaults that a variable already set overrides; restored afterwards."""
    defaults = {"OMP_NUM_THREADS": str(threads or threads_per_rank(local_ranks(workload, nodes)))}
    if workload.device == "cpu" and nodes.count == 1:
        defaults["GLOO_SOCKET_IFNAME"] = "lo"
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def threads_per_rank(ranks: int) -> int:
    """An equal share of this machine's cores for each of ``ranks``, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)


@contextlib.contextmanager
def _quiet(path: Path) -> Iterator[None]:
    """The launcher's own messages go to a file, not to the terminal."""
    handler = logging.FileHandler(path, encoding="utf-8")
    logger = logging.getLogger("torch.distributed.elastic")
    others, propagate = logger.handlers[:], logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = others, propagate
        handler.close()
