"""One rank: ``python -m advisor.profile.worker RUN_DIR``, started by any torch launcher.

Reads RUN_DIR/logs/job.json, joins the process group from the usual variables (RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT), trains, writes rankN.json.gz and logs/rankN.result.json;
rank 0 sums up in profile.json.
"""

import contextlib
import datetime
import faulthandler
import json
import os
import platform
import resource
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from advisor.config.workload import Workload
from advisor.profile import environment, files, models, strategies, summary
from advisor.profile.early_stop import Race, Store
from advisor.profile.inject import Fault
from advisor.profile.loop import Loop
from advisor.profile.models.moe import SparseMlp
from advisor.profile.orphans import end_with_parent
from advisor.profile.progress import Board
from advisor.profile.ranges import LayerRanges
from advisor.profile.recording import Recording, gloo_groups, gloo_threads
from advisor.profile.snapshot import memory_snapshot
from advisor.profile.strategies.base import Job


@record
def main(folder: Path) -> None:
    """Run one rank."""
    end_with_parent()
    document = json.loads((folder / files.JOB_FILE).read_text(encoding="utf-8"))
    workload = Workload.model_validate(document["workload"])
    faults = [Fault.parse(text) for text in document["faults"]]
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    board = Board(files.board(folder, int(os.environ.get("GROUP_RANK", "0"))), local_size)

    def report(step: int, phase: str) -> None:
        board.write(local_rank, os.getpid(), step, phase)

    report(0, "start")
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGTERM, _stop)
    device = _device(workload, local_rank)
    if document.get("memory_limit_bytes") is not None:
        limit_memory(device, int(document["memory_limit_bytes"]))
    timeout = datetime.timedelta(seconds=float(document["timeout_s"]))
    if workload.world_size > 1:
        _join(device, timeout)
    try:
        job, layers = build(workload, device, rank)

        def strike(step: int) -> None:
            for fault in faults:
                fault.strike(rank, step)

        loop = Loop(job, layers, report=report, strike=strike)

        def recording() -> Recording:
            return Recording(
                files.trace(folder, rank),
                steps=workload.steps,
                device=device.type,
                metadata=lambda: metadata(job, faults),
                record_shapes=workload.record_shapes,
                record_memory=workload.record_memory,
            )

        race = _race(job, rank, document.get("stop_above_ns_per_token"))
        keeping = (
            memory_snapshot(files.snapshot(folder, rank))
            if workload.memory_snapshot
            else contextlib.nullcontext()
        )
        with keeping:
            times = loop.run(recording, race)
        report(loop.steps_done, "export")
        result = {
            "rank": rank,
            "host": platform.node(),
            "timed_ns": times.timed_ns,
            "profiled_ns": times.profiled_ns,
            "losses": times.losses,
            "stopped_early": times.stopped_early,
            "data_ranks": job.data_ranks,
            "parameters": sum(p.numel() for p in job.parameters()),
            **peak_memory(device),
            "environment": environment.variables(),
            "versions": environment.versions(),
        }
        files.write_json(files.result(folder, rank), result)
        if dist.is_initialized():
            dist.barrier()
        if rank == 0:
            summary.write(folder, job.workload)
        report(loop.steps_done, "done")
    finally:
        if dist.is_initialized():
            with contextlib.suppress(RuntimeError):  # the group may be broken by another rank's end
                dist.destroy_process_group()


def _join(device: torch.device, timeout: datetime.timedelta) -> None:
    if device.type == "cuda":
        dist.init_process_group("nccl", timeout=timeout, device_id=device)
    else:
        dist.init_process_group("gloo", timeout=timeout)


def _race(job: Job, rank: int, stop_above_ns_per_token: float | None) -> Race | None:
    """The race against the best trial so far, through the default group's store."""
    if stop_above_ns_per_token is None:
        return None
    workload = job.workload
    tokens = workload.tokens_per_rank * job.data_ranks
    store: Store = (
        dist.PrefixStore("advisor-race", dist.distributed_c10d._get_default_store())
        if dist.is_initialized()
        else dist.HashStore()
    )
    return Race(store, rank, workload.world_size, stop_above_ns_per_token * tokens)


def peak_memory(device: torch.device) -> dict[str, int]:
    """Peak memory in bytes: the process's resident set, and on a GPU what torch allocated."""
    peak = {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if device.type == "cuda":
        peak["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
        peak["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
    return peak


def limit_memory(device: torch.device, limit_bytes: int) -> None:
    """Let this process allocate no more than that: on the host, or of its GPU's memory."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
        return
    # Private writable memory: the whole address space (RLIMIT_AS) holds gigabytes of libraries.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def build(workload: Workload, device: torch.device, rank: int) -> tuple[Job, LayerRanges]:
    """The model under the workload's strategy, with ranges on its layers."""
    workload, degrees = strategies.prepare(workload)
    torch.manual_seed(workload.seed)
    with device:
        model = models.build(workload)
    layers = LayerRanges()
    for number, layer in enumerate(model.layers):
        layers.attach(number, layer)
        if isinstance(getattr(layer, "mlp", None), SparseMlp):
            # As the loss, which is a mean over the micro-batches.
            layer.mlp.balance_scale = 1 / workload.gradient_accumulation
    job = Job(
        workload=workload,
        shape=models.shape_of(workload),
        device=device,
        degrees=degrees,
        rank=rank,
        parts=[model],
    )
    strategies.apply(job)
    return job, layers


def _device(workload: Workload, local_rank: int) -> torch.device:
    if workload.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def metadata(job: Job, faults: list[Fault]) -> dict[str, Any]:
    """What the recording says of itself beside the events (see advisor.profile.recording)."""
    workload, memory = job.workload, peak_memory(job.device)
    groups = gloo_groups() if dist.is_initialized() else []
    return {
        "strategy": workload.strategy,
        "compute": workload.compute,
        "workload": workload.model_dump(mode="json"),
        "host": platform.node(),
        "rank": job.rank,
        "world_size": workload.world_size,
        "data_ranks": job.data_ranks,
        "gloo_threads": gloo_threads(groups),
        "peak_memory_bytes": memory.get("peak_allocated_bytes", memory["peak_rss_bytes"]),
        "injected_faults": [str(fault) for fault in faults],
        "environment": environment.variables(),
        "versions": environment.versions(),
        **job.details,
    }


def _stop(_signal: int, _frame: FrameType | None) -> None:
    # As an exception, so that the recording is written on the way out.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(143)


def exit_without_destructors() -> NoReturn:
    """End this process with status 0, without torch's destructors.

    On a busy machine they sometimes abort ("terminate called without an active exception") or
    wait for ever, which made a finished recording look like a crash or a hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    exit_without_destructors()
