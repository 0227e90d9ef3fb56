"""One rank of a lab run: joins its host's namespace, trains, times its steps, records its trace.

Ranks are forked from a parent that has imported torch already, so that a fresh process group
costs a fraction of a second. A rank writes ``rank<r>.json`` (its step times, or its error) and,
when asked, ``rank<r>.trace.json.gz``.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

from advisor.profile.emulate import set_precise_timers
from advisor.profile.recording import CoreWaits, gloo_groups, gloo_threads
from benchmarks.lab import hosts, strategies
from benchmarks.lab.config import RunConfig

SAMPLES = 8
PROFILER_WARM_UP = 2
FIRST_IN_LINE = -20  # of nice values
WAIT_FOR_OTHERS_S = 20.0
COLLECTIVE_TIMEOUT = timedelta(seconds=60)
_KEPT: list[object] = []


@dataclass(frozen=True)
class Phase:
    """What the ranks do in one fresh process group: warm-up, timed steps, recorded steps."""

    folder: Path
    warm_up: int = 3
    timed: int = 10
    recorded: int = 0


class _Samples(Dataset[torch.Tensor]):
    """Micro-batches; a rank with a stalled loader takes its time before each step's first."""

    def __init__(self, config: RunConfig, rank: int) -> None:
        shape = (1, config.activation_elements)
        if not config.strategy.startswith("pp"):
            rows = round(SAMPLES * config.work_scale.get(rank, 1.0))
            shape = (rows, config.activation_elements // SAMPLES)
        self.sample = torch.full(shape, 0.5)
        self.micro_batches = config.micro_batches
        self.stall_s = config.loader_ms.get(rank, 0.0) / 1e3

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.stall_s and index % self.micro_batches == 0:
            time.sleep(self.stall_s)
        return self.sample


def run_rank(
    config: RunConfig, rank: int, phase: Phase, namespace: str, address: str, port: int
) -> None:
    """Body of a forked rank; never returns."""
    code = 1
    try:
        _raise_priority(config)
        _log_to(phase.folder / f"rank{rank}.log")
        hosts.enter(namespace)
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        torch.set_num_threads(1)
        set_precise_timers()
        result = _train(config, rank, phase, namespace, f"tcp://{address}:{port}")
        (phase.folder / f"rank{rank}.json").write_text(json.dumps(result))
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here; the parent reads the error
        error = traceback.format_exc()
        (phase.folder / f"rank{rank}.json").write_text(json.dumps({"error": error}))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: the parent's atexit handlers (removal of the namespaces) are not ours.
        os._exit(code)


def _raise_priority(config: RunConfig) -> None:
    """Keep other work on the machine from deciding how long a step is.

    Emulated ranks mostly sleep: under the round-robin real-time policy they run as soon as they
    wake. Ranks that compute stay under the fair scheduler, where a quota holds, but come first
    there. So do ranks that are meant to be disturbed, together with what disturbs them.
    """
    with suppress(PermissionError):
        if config.compute == "emulated" and not config.burners:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        else:
            os.setpriority(os.PRIO_PROCESS, 0, FIRST_IN_LINE)


def _log_to(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _train(
    config: RunConfig, rank: int, phase: Phase, namespace: str, rendezvous: str
) -> dict[str, Any]:
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=config.ranks,
        timeout=COLLECTIVE_TIMEOUT,
    )  # fmt: skip
    job = strategies.build(config, rank)
    steps = _Steps(config, rank, job)
    gc.collect()
    gc.freeze()
    gc.disable()
    for _ in range(phase.warm_up):
        steps.one()
    times_ns = []
    for _ in range(phase.timed):
        began = time.perf_counter_ns()
        steps.one()
        times_ns.append(time.perf_counter_ns() - began)
    recorded_ns = _record(config, rank, phase, namespace, steps) if phase.recorded else []
    dist.barrier()
    dist.destroy_process_group()
    # Never destroyed: after real arithmetic, destructors sometimes waited for a thread for good.
    _KEPT.append((steps, job))
    return {"step_ns": times_ns, "recorded_ns": recorded_ns}


class _Steps:
    """The training loop, one step at a time, with the faults that live in the loop."""

    def __init__(self, config: RunConfig, rank: int, job: strategies.Job) -> None:
        self.config = config
        self.rank = rank
        self.job = job
        loader = DataLoader(_Samples(config, rank), batch_size=None)
        self.batches: Iterator[torch.Tensor] = iter(loader)
        self.metric = torch.zeros(1)
        # The same on every rank, so that they agree on who pauses.
        self.pauses = random.Random(1234)
        self.previous = -1

    def one(self) -> None:
        config = self.config
        if config.pause_ms and self._pauses_now():
            time.sleep(config.pause_ms / 1e3)
        batch = [next(self.batches) for _ in range(config.micro_batches)]
        self.job.step(batch)
        for _ in range(config.extra_all_reduces):
            dist.all_reduce(self.metric)
        if config.barrier:
            dist.barrier()

    def _pauses_now(self) -> bool:
        chosen = self.pauses.choice([r for r in range(self.config.ranks) if r != self.previous])
        self.previous = chosen
        return chosen == self.rank


class _Profile(profile):  # type: ignore[misc]  # torch is not typed here
    """A profiler that stops only when every rank has ended its last step.

    Stopping and writing take the processor for a tenth of a second: done by the first rank while
    others still communicate, that would lengthen their last recorded step.
    """

    before_stop: Callable[[], None]

    def stop_trace(self) -> None:
        self.before_stop()
        super().stop_trace()


def _record(config: RunConfig, rank: int, phase: Phase, namespace: str, steps: _Steps) -> list[int]:
    """Trace some steps; their times in ns."""
    times_ns = []
    waits = CoreWaits()
    with _Profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=PROFILER_WARM_UP, active=phase.recorded, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(
            str(phase.folder / f"rank{rank}.trace.json.gz")
        ),
    ) as profiler:
        profiler.before_stop = lambda: _end_together(
            profiler, config, rank, phase, namespace, waits
        )
        for step in range(PROFILER_WARM_UP + phase.recorded):
            began = time.perf_counter_ns()
            steps.one()
            times_ns.append(time.perf_counter_ns() - began)
            if step >= PROFILER_WARM_UP - 1:
                waits.end_step()
            profiler.step()
    return times_ns[PROFILER_WARM_UP:]


def _end_together(
    profiler: Any, config: RunConfig, rank: int, phase: Phase, namespace: str, waits: CoreWaits
) -> None:
    _add_metadata(profiler, config, namespace, waits)
    (phase.folder / f"rank{rank}.ended").touch()
    # Not a collective: it would stand in the trace.
    deadline = time.monotonic() + WAIT_FOR_OTHERS_S
    while len(list(phase.folder.glob("rank*.ended"))) < config.ranks:
        if time.monotonic() > deadline:
            raise TimeoutError("another rank did not end its last step")
        time.sleep(0.005)


def _add_metadata(profiler: Any, config: RunConfig, namespace: str, waits: CoreWaits) -> None:
    metadata = {
        "strategy": config.strategy,
        "compute": config.compute,
        "host": namespace,
        "gloo_threads": gloo_threads(gloo_groups()),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **waits.by_step_ns(),
    }
    if config.precision != "float32":
        metadata["workload"] = {"precision": config.precision}
    profiler.add_metadata_json("advisor", json.dumps(metadata))
