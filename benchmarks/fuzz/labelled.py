"""A job whose culprit is known, as an export of Nsight Systems and as the Inspector's records.

Four ranks of one host do eight steps; the kernels of one rank take 1.3 times as long, and the
others wait for it in both collectives of a step. No recording with a label is public in these two
formats, so that this one is simulated: it says what damage to such files does, nothing of NCCL.
"""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RANKS, STEPS, LATE_RANK = 4, 8, 2
_SLOWER = 1.3
_KERNELS, _KERNEL_NS, _TRANSFER_NS, _HOST_NS = 6, 1_000_000, 400_000, 5_000
_EPOCH_NS = 1_779_782_330_000_000_000
_COMM = 0xABC
_REDUCE, _GATHER = "ncclAllReduce", "ncclAllGather"
_BYTES = 16 << 20


@dataclass(frozen=True)
class Work:
    """A kernel of one rank; ``call`` is NCCL's function, '' of a kernel that computes. ns."""

    rank: int
    step: int
    call: str
    launched: int
    start: int
    end: int


def job() -> list[Work]:
    """The kernels of all ranks, by step."""
    rng = random.Random(1)
    found: list[Work] = []
    begun = 1_000_000
    for step in range(STEPS):
        free = dict.fromkeys(range(RANKS), begun)
        launched = dict.fromkeys(range(RANKS), begun - 50_000)
        for half in (_GATHER, _REDUCE):
            for rank in range(RANKS):
                for _ in range(_KERNELS // 2):
                    slower = _SLOWER if rank == LATE_RANK else 1.0
                    end = free[rank] + round(_KERNEL_NS * slower * rng.uniform(0.99, 1.01))
                    found.append(Work(rank, step, "", launched[rank], free[rank], end))
                    free[rank], launched[rank] = end, launched[rank] + _HOST_NS
            done = max(free.values()) + round(_TRANSFER_NS * rng.uniform(0.98, 1.02))
            for rank in range(RANKS):
                end = done + rng.randrange(2_000)
                found.append(Work(rank, step, half, launched[rank], free[rank], end))
                free[rank], launched[rank] = end, launched[rank] + _HOST_NS
        begun = max(free.values()) + 60_000
    return found


Row = tuple[str, tuple[Any, ...]]
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
    "textId INTEGER, domainId INTEGER, binaryData BLOB",
}
_OF_ALL = """
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
    CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
    CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER,
      type INTEGER, name TEXT, offset INTEGER);
    INSERT INTO StringIds VALUES (1, 'ampere_sgemm_128x64_nn'),
      (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)'),
      (3, 'ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)'),
      (4, 'cudaLaunchKernel_v7000'), (5, 'ncclCommInitRank'), (6, 'ncclAllReduce'),
      (7, 'ncclAllGather');
    INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100'), (1, 'NVIDIA A100'),
      (2, 'NVIDIA A100'), (3, 'NVIDIA A100');
    INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'node1');
    INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
      (1, 1001, 0, 18, 'NCCL communicator ID', NULL), (1, 1001, 1, 5, 'No. of ranks', 8),
      (1, 1001, 2, 5, 'Rank', 12), (1, 1001, 3, 5, 'CUDA device', 16),
      (1, 1002, 0, 18, 'NCCL communicator ID', NULL),
      (1, 1002, 1, 22, 'Message size [bytes]', 8);
"""


def nsys_rows() -> dict[str, list[Any]]:
    """Rows of an export by rank, in the order in which they were recorded: table and values."""
    parts: dict[str, list[Any]] = {}
    work = job()
    for rank in range(RANKS):
        process = (1 << 48) | (100 + rank) << 24
        own = [one for one in work if one.rank == rank]
        parts[f"rank{rank}"] = [
            row for one in [None, *own] for row in _nsys(rank, process, own, one)
        ]
    return parts


def _nsys(rank: int, process: int, own: list[Work], one: Work | None) -> Iterator[Row]:
    thread = process | 100 + rank
    if one is None:
        comm = struct.pack("<Qiiii", _COMM, RANKS, rank, rank, 0)
        yield _nvtx(100, 200, None, thread, 5, _payload(1001, comm))
        for step in range(STEPS):
            starts = [w.launched for w in own if w.step == step]
            end = max(w.end for w in own if w.step == step)
            yield _nvtx(min(starts) - 5_000, end, f"ProfilerStep#{step}", thread, None, None)
        return
    link = own.index(one) + 1
    if one.call:
        name = 6 if one.call == _REDUCE else 7
        size = _payload(1002, struct.pack("<QQ", _COMM, _BYTES))
        yield _nvtx(one.launched - 1_000, one.launched + 4_000, None, thread, name, size)
    yield (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        (one.launched, one.launched + 3_000, thread, link, 4),
    )
    kernel = {"": 1, _REDUCE: 2, _GATHER: 3}[one.call]
    stream = 20 if one.call else 7
    yield (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        (one.start, one.end, rank, stream, link, process, kernel, kernel),
    )


def _nvtx(
    start: int, end: int, text: str | None, thread: int, name: int | None, blob: bytes | None
) -> Row:
    return "NVTX_EVENTS", (start, end, 59, text, thread, name, 1, blob)


def _payload(schema: int, payload: bytes) -> bytes:
    return struct.pack("<QQQQ", 1, schema, len(payload), 32) + payload


def write_nsys(parts: dict[str, list[Any]], place: Path) -> None:
    """The export of these rows."""
    con = sqlite3.connect(place / "node1.sqlite")
    con.executescript(_OF_ALL)
    con.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", [_EPOCH_NS])
    for table, columns in _TABLES.items():
        con.execute(f"CREATE TABLE {table} ({columns})")
    for rows in parts.values():
        for table, values in rows:
            con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    con.commit()
    con.close()


def inspector_lines() -> dict[str, list[Any]]:
    """Records of the Inspector by rank, a line each."""
    parts: dict[str, list[Any]] = {}
    for rank in range(RANKS):
        calls = [one for one in job() if one.rank == rank and one.call]
        parts[f"node1-pid{100 + rank}.log"] = [
            json.dumps(_record(rank, number, one)) for number, one in enumerate(calls, 1)
        ]
    return parts


def _record(rank: int, number: int, one: Work) -> dict[str, Any]:
    start, stop = ((_EPOCH_NS + at) // 1000 for at in (one.start, one.end))
    gbps = _BYTES / (one.end - one.start)
    return {
        "header": {"id": hex(_COMM), "comm_name": "DP", "rank": rank, "n_ranks": RANKS,
                   "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.2", "hostname": "node1",
                     "dump_timestamp_us": stop, "pid": 100 + rank},
        "coll_perf": {
            "coll": one.call.removeprefix("nccl"),
            "coll_algo": "RING",
            "coll_proto": "LL",
            "coll_sn": number,
            "coll_msg_size_bytes": _BYTES,
            "coll_exec_time_us": stop - start,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": gbps,
            "coll_busbw_gbs": gbps * 2 * (RANKS - 1) / RANKS,
            "event_trace_ts": {
                "coll_start_ts": start - 20,
                "coll_stop_ts": start - 18,
                "kernel_events": [
                    {"channel_id": 0, "kernel_start_ts": start, "kernel_stop_ts": stop}
                ],
            },
        },
    }  # fmt: skip


def write_inspector(parts: dict[str, list[Any]], place: Path) -> None:
    """The Inspector's files: one of each process."""
    for name, lines in parts.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines))
