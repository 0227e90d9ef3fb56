"""Sound documents of every format, as plain values to be changed, and how each is written."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_US = 1_000_000_000_000_000
_MOST_TABLES = 1_000
"""SQLite looks at every table for each that is made: 50,000 of them take it half an hour."""


class UnwritableError(Exception):
    """The changed values cannot stand in a file of this format."""


def _text(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    return path


def _json(name: str) -> Callable[[Any, Path], Path]:
    def write(document: Any, folder: Path) -> Path:
        return _text(folder / name, json.dumps(document))

    return write


def _json_lines(document: Any, folder: Path) -> Path:
    if not isinstance(document, list):
        raise UnwritableError
    return _text(folder / "host-pid100.log", "".join(json.dumps(item) + "\n" for item in document))


def _pickled(document: Any, folder: Path) -> Path:
    path = folder / "fr_trace_0"
    path.write_bytes(pickle.dumps(document, protocol=4))
    return path


def _kineto(document: Any, folder: Path) -> Path:
    if not isinstance(document, list):
        raise UnwritableError
    for number, trace in enumerate(document):
        _text(folder / f"rank{number}.json", json.dumps(trace))
    return folder


def _parquet(document: Any, folder: Path) -> Path:
    try:
        table = pa.Table.from_pylist(document)
        pq.write_table(table, folder / "trace.parquet")
    except (
        pa.ArrowException,
        TypeError,
        OverflowError,
        AttributeError,
        UnicodeError,
        ValueError,
    ) as error:
        raise UnwritableError from error
    return folder / "trace.parquet"


def _sqlite(document: Any, folder: Path) -> Path:
    if not isinstance(document, dict) or len(document) > _MOST_TABLES:
        raise UnwritableError
    path = folder / "run.sqlite"
    con = sqlite3.connect(path)
    con.executescript("PRAGMA synchronous = off; PRAGMA journal_mode = off")
    try:
        for table, rows in document.items():
            names = list(rows[0])
            con.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            con.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})",
                [[row[name] for name in names] for row in rows],
            )
        con.commit()
    except (sqlite3.Error, OverflowError, TypeError, AttributeError, KeyError, IndexError,
            ValueError) as error:  # fmt: skip
        raise UnwritableError from error
    finally:
        con.close()
    return path


def _lines(name: str, form: str) -> Callable[[Any, Path], Path]:
    """Rows of figures as lines of text."""

    def write(document: Any, folder: Path) -> Path:
        try:
            rows = [" ".join(str(value) for value in row) for row in document["rows"]]
            text = form.format(rows="\n".join(rows), head=document["head"])
        except (TypeError, KeyError) as error:
            raise UnwritableError from error
        return _text(folder / name, text)

    return write


def kineto() -> list[Any]:
    """Two ranks of a small NCCL job, two steps."""
    return [_rank(rank) for rank in range(2)]


def _rank(rank: int) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for step in range(2):
        at = _US + step * 10_000
        place = {"pid": 0, "tid": 7}
        events += [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "pid": 9,
                "tid": 9,
                "ts": at,
                "dur": 9_900,
                "args": {},
            },
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 9,
                "tid": 9,
                "ts": at + 10,
                "dur": 5,
                "args": {"correlation": 2 * step + 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": "gemm",
                **place,
                "ts": at + 30,
                "dur": 4_000,
                "args": {"device": 0, "stream": 7, "correlation": 2 * step + 1, "External id": 3},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                "pid": 0,
                "tid": 20,
                "ts": at + 4_100 + 300 * rank,
                "dur": 2_000 - 300 * rank,
                "args": {
                    "device": 0,
                    "stream": 20,
                    "correlation": 2 * step + 2,
                    "Collective name": "allreduce",
                    "In msg nelems": 1_048_576,
                    "Out msg nelems": 1_048_576,
                    "Group size": 2,
                    "dtype": "Float",
                    "Process Group Name": "0",
                    "Process Group Ranks": "[0, 1]",
                    "Rank": rank,
                    "Seq": step,
                },
            },
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": "aten::mm",
                "pid": 9,
                "tid": 9,
                "ts": at + 5,
                "dur": 20,
                "args": {
                    "External id": 3,
                    "Input Dims": [[128, 64], [64, 32]],
                    "Input type": ["float", "float"],
                    "Sequence number": 4,
                },
            },
            {
                "ph": "X",
                "cat": "gpu_memcpy",
                "name": "Memcpy HtoD (Pageable -> Device)",
                **place,
                "ts": at + 7_000,
                "dur": 100,
                "args": {"device": 0, "stream": 7, "bytes": 4096},
            },
        ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 84929347584,
                              "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1,
                            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg",
                                           "backend_config": "cuda:nccl", "pg_size": 2,
                                           "ranks": [0, 1]}], "nccl_version": "2.21.5"},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": events,
    }  # fmt: skip


def op_table() -> list[dict[str, Any]]:
    """A Megatron op table: two stages of two replicas, two steps."""
    names = ("forward-compute", "forward-send", "backward-compute", "grads-reduce-scatter")
    return [
        {"dp_rank": replica, "stage": stage, "rank": 2 * stage + replica, "step": step,
         "optype": name, "start_ts": 0.5 + 0.01 * place, "duration": 0.01}
        for step in (0, 1) for stage in (0, 1) for replica in (0, 1)
        for place, name in enumerate(names)
    ]  # fmt: skip


def flight_recorder() -> dict[str, Any]:
    """One rank's dump: two collectives and a send."""
    entries = [
        {"record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"),
         "collective_seq_id": seq, "p2p_seq_id": 0, "profiling_name": name,
         "time_created_ns": 1_758_580_155_793_872_443, "input_sizes": [[2048, 1, 5120]],
         "output_sizes": [[2048, 1, 5120]], "input_dtypes": ["BFloat16"],
         "output_dtypes": ["BFloat16"], "state": "started", "timeout_ms": 600_000,
         "time_discovered_started_ns": 1_758_580_155_793_872_999,
         "time_discovered_completed_ns": None, "is_p2p": "send" in name, "retired": False,
         "frames": [{"name": "step", "filename": "train.py", "line": 12}]}
        for seq, name in ((4, "nccl:all_reduce"), (5, "nccl:all_reduce"), (6, "nccl:send 0->1"))
    ]  # fmt: skip
    return {
        "version": "2.9",
        "nccl_version": "2.27.3",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {"0": {"last_enqueued_collective": 5, "last_started_collective": -1,
                            "last_completed_collective": 4}},
        "entries": entries,
    }  # fmt: skip


def inspector() -> list[dict[str, Any]]:
    """Records of NCCL's Inspector, of two ranks."""
    return [
        {
            "header": {"id": "0x7f8c", "comm_name": "DP", "rank": rank, "n_ranks": 2, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.2",
                         "dump_timestamp_us": 1_748_030_377_748_202 + number,
                         "hostname": "node1", "pid": 100 + rank},
            "coll_perf": {"coll": "AllReduce", "coll_algo": "RING", "coll_proto": "LL",
                          "coll_sn": 1407 + number, "coll_msg_size_bytes": 17_179_869_184,
                          "coll_exec_time_us": 61_974, "coll_timing_source": "kernel_gpu",
                          "coll_algobw_gbs": 277.2, "coll_busbw_gbs": 485.1,
                          "event_trace_ts": {"coll_start_ts": 1_752_867_229_235_059,
                                             "coll_stop_ts": 1_752_867_229_235_064}},
        }
        for rank in (0, 1) for number in range(3)
    ]  # fmt: skip


def nccl_tests() -> dict[str, Any]:
    """nccl-tests' JSON report."""
    half = {"time": 10.5, "alg_bw": 0.1, "bus_bw": 0.09, "nwrong": 0.0}
    return {
        "version": 3,
        "args": ["/opt/nccl-tests/build/reduce_scatter_perf", "-g", "8"],
        "nccl_version": 22707,
        "config": {"ngpus": 8, "devices": [{"rank": rank, "group": 0, "pid": 1, "hostname": "a",
                                            "device": rank} for rank in (0, 1)]},
        "results": [{"size": size, "count": 16, "type": "float", "redop": "sum", "root": -1,
                     "out_of_place": dict(half), "in_place": dict(half)}
                    for size in (1024, 2048)],
        "out_of_bounds": {"count": 0, "okay": "true"},
    }  # fmt: skip


def nccl_tests_text() -> dict[str, Any]:
    """The table that nccl-tests prints."""
    return {
        "head": "8",
        "rows": [
            [size, size // 4, "float", "sum", -1, 25.87, 0.16, 0.32, 0, 26.01, 0.16, 0.31, 0]
            for size in (4096, 8192, 16384)
        ],
    }


_TESTS_FORM = """# nThread 1 nGpus {head} minBytes 8 maxBytes 134217728 step: 2(factor)
# Using devices
#  Rank  0 Group  0 Pid 100 on node1 device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 100 on node1 device  1 [0x0b] NVIDIA H100 80GB HBM3
#
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)
{rows}
# Avg bus bandwidth    : 0.3
"""


_LOG_FORM = "node1:11:11 [0] NCCL INFO NCCL version {head}+cuda12.4\n{rows}\n"


def nccl_log() -> dict[str, Any]:
    """Lines of an NCCL_DEBUG log whose numbers are the rows' values."""
    return {
        "head": "2.21.5",
        "rows": [
            ["node1:11:11 [0] NCCL INFO comm 0xaa rank", 0, "nranks", 2, "cudaDev", 0,
             "busId 1000 - Init COMPLETE"],
            ["node1:11:11 [0] NCCL INFO Channel", 0, "/", 2, ":", 0, 1],
            ["node1:11:11 [0] NCCL INFO", 24, "coll channels,", 16, "nvls channels,", 32,
             "p2p channels,", 32, "p2p channels per peer"],
            ["node1:11:11 [0] NCCL INFO Channel", 0, "/0 :", 0, "[0] -> ", 1,
             "[1] [send] via NET/IB/0/GDRDMA"],
            ["node1:11:11 [0] NCCL INFO AllReduce:", 4096, "Bytes -> Algo", 1, "proto", 2,
             "time", 25.8],
            ["node1:11:11 [0] NCCL INFO Pattern", 4, ", crossNic", 0, ", nChannels", 2, ", bw",
             "40.0/20.0", ", type NVL/PIX, sameChannels", 1],
            ["node1:11:11 [0] NCCL INFO NCCL_ALGO set by environment to", "Ring"],
            ["node1:11:11 [0] NCCL INFO Trees [0]", "1/-1/-1->0->-1"],
            ["node1:11:12 [0] NCCL INFO NET/IB : Using [0]mlx5_0:", 1, "/IB"],
        ],
    }  # fmt: skip


def probe() -> dict[str, Any]:
    """What ``advisor probe`` writes."""
    return {
        "format": "advisor-probe",
        "world_size": 2,
        "hosts": ["a", "b"],
        "collectives": [
            {"op": "all_reduce", "ranks": 2, "bytes": size, "times_us": [10.0, 11.0, 12.0]}
            for size in (1024, 1 << 20, 1 << 24)
        ],
        "pairs": [
            {"src": src, "dst": 1 - src, "bytes": 1 << 22, "round_trip_us": 400.0} for src in (0, 1)
        ],
    }


def nsys() -> dict[str, Any]:
    """The tables of an Nsight Systems export that are read."""
    strings = ["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "cudaLaunchKernel", "step"]
    pid = 100 << 24
    return {
        "StringIds": [{"id": number, "value": text} for number, text in enumerate(strings)],
        "PROCESSES": [{"globalPid": pid, "pid": 100, "name": "python"}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            {"start": 1_000 + 10_000 * n, "end": 6_000 + 10_000 * n, "deviceId": 0,
             "contextId": 1, "streamId": 7 + n % 2, "correlationId": n, "globalPid": pid,
             "demangledName": n % 2, "shortName": n % 2, "graphNodeId": None}
            for n in range(6)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {"start": 500 + 10_000 * n, "end": 700 + 10_000 * n, "eventClass": 0,
             "globalTid": pid + 100, "correlationId": n, "nameId": 2, "returnValue": 0}
            for n in range(6)
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {"start": 7_000, "end": 7_500, "deviceId": 0, "contextId": 1, "streamId": 7,
             "correlationId": 9, "globalPid": pid, "bytes": 4096, "copyKind": 1}
        ],
        "NVTX_EVENTS": [
            {"start": 400, "end": 59_000, "eventType": 59, "text": "step", "globalTid": pid + 100,
             "textId": None, "domainId": 0}
        ],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100", "smCount": 132}],
    }  # fmt: skip


FORMATS: dict[str, tuple[Callable[[Any, Path], Path], Callable[[], Any]]] = {
    "kineto": (_kineto, kineto),
    "op_table": (_parquet, op_table),
    "flight_recorder": (_pickled, flight_recorder),
    "flight_recorder_json": (_json("fr_trace_0.json"), flight_recorder),
    "nccl_inspector": (_json_lines, inspector),
    "nccl_tests": (_json("report.json"), nccl_tests),
    "nccl_tests_text": (_lines("all_reduce_perf.log", _TESTS_FORM), nccl_tests_text),
    "nccl_log": (_lines("nccl.log", _LOG_FORM),
                 nccl_log),
    "probe": (_json("probe.json"), probe),
    "nsys": (_sqlite, nsys),
}  # fmt: skip
