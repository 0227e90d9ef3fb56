"""Writes what a rank recorded as the file that torch.profiler writes: a Kineto trace.

Order, keys and number formats follow the real traces (compare.py lists what differs): host ranges
first, then device events with their launches and flows, projected annotations, names, spans.
"""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.gpulab import program as p
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.state import RankState

BASE_PERIOD_S = 7_889_238
"""Kineto counts from the last multiple of three months (libkineto/src/ChromeTraceBaseTime)."""
_START_S = 1_741_000_000
_WITHIN_S = 31_557_600
"""Jobs start within a year of that."""
_CBID = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41,
    "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165, "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147, "cudaStreamIsCapturing": 317, "cudaGraphLaunch": 311,
    "cudaEventQuery": 136, "cudaMemsetAsync": 51, "cuLaunchKernel": 307, "cuLaunchKernelEx": 652,
}  # fmt: skip
_TAPED = ', "Sequence number": '
_DRIVER = {"cuLaunchKernel", "cuLaunchKernelEx"}
FLOWS = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaGraphLaunch",
         "cuLaunchKernel", "cuLaunchKernelEx"}  # fmt: skip


class Clock:
    """Turns simulated ns into the text of a file's timestamps."""

    def __init__(self, job: Job, rank: int) -> None:
        draw = random.Random(f"{job.seed}/clock/{rank}")
        host = job.host_of(rank)
        second = _START_S + job.seed * 9_973 % _WITHIN_S
        start_ns = second * 1_000_000_000 + job.seed % 1000 * 1_003_007
        self.whole = tuple(int(x) for x in job.torch.split(".")) < (2, 4)
        self.base = (
            0
            if self.whole
            else (start_ns // 1_000_000_000 // BASE_PERIOD_S * BASE_PERIOD_S * 1_000_000_000)
        )
        offset = job.clock_ns[host % len(job.clock_ns)] if job.clock_ns else 0
        drift = job.drift_ppm[host % len(job.drift_ppm)] if job.drift_ppm else 0.0
        self.start = start_ns - self.base + offset + draw.randrange(0, 300)
        self.rate = 1.0 + drift * 1e-6
        self.device_ns = draw.uniform(-1_500, 1_500)
        """The device's clock against the host's."""

    def at(self, ns: float) -> str:
        """A timestamp in us."""
        if self.whole:
            return str((self.start + int(ns * self.rate)) // 1000)
        total = self.start + int(ns * self.rate)
        return f"{total // 1000}.{total % 1000:03d}"

    def span(self, ns: float) -> str:
        """A duration in us, by the same clock."""
        ns *= self.rate
        return f"{ns / 1000:.0f}" if self.whole else f"{ns / 1000:.3f}"


def file_name(job: Job, rank: int) -> str:
    """HOST_PID.TIME.pt.trace.json.gz as tensorboard_trace_handler names it, or rankN.json.gz."""
    if not job.names_in_files:
        return f"rank{rank}.json.gz"
    time = (_START_S + job.seed * 9_973) * 1_000_000_000 + 900_000_000 + rank * 1_313_131
    return f"{host_name(job, job.host_of(rank))}_{pid(job, rank)}.{time}.pt.trace.json.gz"


def host_name(job: Job, host: int) -> str:
    """As a cluster names its nodes."""
    return f"gpu-{job.seed % 90 + 10}-{host:02d}"


def pid(job: Job, rank: int) -> int:
    """The process of a rank."""
    return 4_000 + job.seed % 977 * 31 + job.host_of(rank) * 517 + rank % job.per_host * 3


def write(job: Job, layout: Layout, rank: RankState, path: Path) -> None:
    """One file."""
    lines = _events(job, rank)
    head = json.dumps(_header(job, layout, rank.rank))[:-1]
    tail: dict[str, Any] = {"traceName": f"/tmp/trace/{path.name}"}
    clock = Clock(job, rank.rank)
    if not clock.whole:
        tail |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": clock.base}
    text = f'{head}, "traceEvents": [\n' + ",\n".join(lines) + f"\n], {json.dumps(tail)[1:]}"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(text)


def _header(job: Job, layout: Layout, rank: int) -> dict[str, Any]:
    hw = job.hw
    device = {
        "name": hw.device_name, "totalGlobalMem": hw.memory_bytes,
        "computeMajor": hw.capability // 10, "computeMinor": hw.capability % 10,
        "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": hw.sms,
        "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 166912,
        "sharedMemPerMultiprocessor": 167936,
    }  # fmt: skip
    distributed: dict[str, Any] = {"backend": "nccl", "rank": rank, "world_size": job.ranks}
    if tuple(int(x) for x in job.torch.split(".")) >= (2, 4):
        mine = [group for group in layout.groups if rank in group.ranks]
        distributed |= {"pg_count": len(mine), "pg_config": [
            {"pg_name": group.name, "pg_desc": group.description,
             "backend_config": "cuda:nccl" if i or job.seed % 2 else "cpu:gloo,cuda:nccl",
             "pg_size": len(group.ranks), "ranks": list(group.ranks)}
            for i, group in enumerate(mine)]}  # fmt: skip
    distributed["nccl_version"] = job.nccl
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": i, **device} for i in range(job.per_host)],
        "cupti_version": 24, "cuda_runtime_version": 12060, "cuda_driver_version": 12080,
        "record_shapes": 1, "distributedInfo": distributed,
        "trace_id": f"{random.Random(f'{job.seed}/{rank}/id').getrandbits(128):032X}",
    }  # fmt: skip
    return header


def _events(job: Job, rank: RankState) -> list[str]:
    clock = Clock(job, rank.rank)
    process, device = pid(job, rank.rank), rank.rank % job.per_host
    threads = (process, process + 131)
    at, span = clock.at, clock.span
    lines: list[str] = []
    quoted = cache(json.dumps)
    spans = {}
    for index, (name, category, start, end, thread, number, args) in enumerate(rank.ranges):
        if category == "user_annotation":
            spans[number] = name
        lines.append(
            f'{{"ph": "X", "cat": "{category}", "name": {quoted(name)}, "pid": {process}, '
            f'"tid": {threads[thread]}, "ts": {at(start)}, "dur": {span(end - start)}, '
            f'"args": {{"External id": {number}, "Record function id": 0{args}, '
            f'"Ev Idx": {index}}}}}'
        )
        if args.startswith(_TAPED) and not name.startswith("autograd::"):
            flow = args[len(_TAPED) : args.index(",", 2)]
            way, bound = ("s", "") if thread == p.MAIN else ("f", ', "bp": "e"')
            lines.append(
                f'{{"ph": "{way}", "id": {flow}, "pid": {process}, "tid": {threads[thread]}, '
                f'"ts": {at(start)}, "cat": "fwdbwd", "name": "fwdbwd"{bound}}}'
            )
    lines += _device(job, rank, clock, process, threads, device)
    lines += _projected(rank, clock, spans, device)
    lines += _names(job, rank, clock, process, threads, device)
    return lines


def _device(
    job: Job, rank: RankState, clock: Clock, process: int, threads: tuple[int, int], device: int
) -> list[str]:
    at, span = clock.at, clock.span
    lines = []
    shift = clock.device_ns
    seen: set[int] = set()
    quoted = cache(json.dumps)
    for kind, stream, start, end, item in rank.device:
        kernel, correlation, owner = item[2], item[3], item[4]
        text = (
            f'{{"ph": "X", "cat": "{"gpu_memcpy" if kind == p.COPY else "kernel"}", "name": '
            f'{quoted(kernel.name)}, "pid": {device}, "tid": {stream}, "ts": '
            f'{at(start + shift)}, "dur": {span(end - start)}, "args": {{"External id": {owner}, '
        )
        if kind == p.COPY:
            size = int(kernel.args)
            text += (
                f'"device": {device}, "context": 1, "stream": {stream}, "correlation": '
                f'{correlation}, "bytes": {size}, "memory bandwidth (GB/s)": '
                f"{size / max(end - start, 1.0)}}}}}"
            )
        else:
            x, y, z = kernel.grid
            blocks = x * y * z / job.hw.sms
            warps = blocks * kernel.block[0] / 32
            text += (
                f'"queued": 0, "device": {device}, "context": 1, "stream": {stream}, '
                f'"correlation": {correlation}, "registers per thread": '
                f'{96 if kind == p.CALL else 128}, "shared memory": '
                f'{82240 if kind == p.CALL else 49152}, "blocks per SM": {blocks:.6f}, '
                f'"warps per SM": {warps:.6f}, "grid": [{x}, {y}, {z}], "block": '
                f'[{kernel.block[0]}, 1, 1], "est. achieved occupancy %": '
                f"{min(100, int(warps / 64 * 100))}{kernel.args}}}}}"
            )
        lines.append(text)
        if correlation not in seen:
            seen.add(correlation)
            lines.append(
                f'{{"ph": "f", "id": {correlation}, "pid": {device}, "tid": {stream}, "ts": '
                f'{at(start + shift)}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}'
            )
    for name, start, took, thread, correlation, owner in rank.runtime:
        category = "cuda_driver" if name in _DRIVER else "cuda_runtime"
        lines.append(
            f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": '
            f'{threads[thread]}, "ts": {at(start)}, "dur": {span(took)}, "args": '
            f'{{"External id": {owner}, "cbid": {_CBID.get(name, 0)}, "correlation": '
            f"{correlation}}}}}"
        )
        if name in FLOWS:
            lines.append(
                f'{{"ph": "s", "id": {correlation}, "pid": {process}, "tid": {threads[thread]}, '
                f'"ts": {at(start)}, "cat": "ac2g", "name": "ac2g"}}'
            )
    return lines


def _projected(rank: RankState, clock: Clock, names: dict[int, str], device: int) -> list[str]:
    """User annotations on the streams: from the first to the last kernel launched inside."""
    found: dict[tuple[int, int], list[float]] = {}
    for _, stream, start, end, item in rank.device:
        if item[5] in names:
            have = found.setdefault((item[5], stream), [start, end])
            have[0], have[1] = min(have[0], start), max(have[1], end)
    shift = clock.device_ns
    return [
        f'{{"ph": "X", "cat": "gpu_user_annotation", "name": {json.dumps(names[number])}, "pid": '
        f'{device}, "tid": {stream}, "ts": {clock.at(start + shift)}, "dur": '
        f'{clock.span(end - start)}, "args": {{"External id": {number}}}}}'
        for (number, stream), (start, end) in found.items()
    ]


def _names(
    job: Job, rank: RankState, clock: Clock, process: int, threads: tuple[int, int], device: int
) -> list[str]:
    first = min((r[2] for r in rank.ranges), default=0.0)
    last = max((d[3] for d in rank.device), default=first)
    last = max(last, max((r[3] for r in rank.ranges), default=first))
    ts = clock.at(first)
    made = []

    def name(what: str, who: int | str, thread: int, key: str, value: int | str) -> None:
        made.append(
            f'{{"name": "{what}", "ph": "M", "ts": {ts}, "pid": {json.dumps(who)}, "tid": '
            f'{thread}, "args": {{"{key}": {json.dumps(value)}}}}}'
        )

    for who, label, order in [
        (process, "CPU", process), *((i, f"GPU {i}", 16_777_216 + i) for i in range(job.per_host))
    ]:  # fmt: skip
        name("process_name", who, 0, "name", "python3.11")
        name("process_labels", who, 0, "labels", label)
        name("process_sort_index", who, 0, "sort_index", order)
    for stream in sorted(rank.streams):
        name("thread_name", device, stream, "name", f"stream {stream} ")
        name("thread_sort_index", device, stream, "sort_index", stream)
    for thread, title in zip(threads, ("pt_main_thread", "pt_autograd_0"), strict=True):
        name("thread_name", process, thread, "name", f"thread {thread} ({title})")
        name("thread_sort_index", process, thread, "sort_index", thread)
    begin = clock.at(first - 500_000)
    made.append(
        f'{{"ph": "X", "cat": "Trace", "ts": {begin}, "dur": {clock.span(last - first + 900_000)},'
        ' "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", '
        '"args": {"Op count": 0}}'
    )
    made.append(
        f'{{"name": "process_sort_index", "ph": "M", "ts": {begin}, "pid": "Spans", "tid": 0, '
        '"args": {"sort_index": 536870912}}'
    )
    made.append(
        f'{{"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", '
        f'"tid": "Trace PyTorch Profiler", "ts": {begin}}}'
    )
    made.append(
        f'{{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": '
        f"{clock.at(last + 400_000)}}}"
    )
    return made
