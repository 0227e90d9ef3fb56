"""How time and memory grow with each thing an input can have much of.

    python -m benchmarks.growth [--series events ...] [--limit 400] [--doublings 10]

Each series doubles one quantity, up to ten times or until one run takes more than the limit of CPU
seconds. A run reads, diagnoses and writes the HTML report in a process of its own. Printed are the
CPU seconds and megabytes of the largest run and the exponents of growth: 1 is linear. An exponent
is the slope over the last three runs, on logarithmic axes, of what they have and cost more than
the largest that costs as good as nothing more than the smallest. 1 where any exponent is above 1.2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_EXPONENT = 1.2
_LEAST_S = 0.15
"""More than the smallest run: less than that is noise."""
_LEAST_MIB = 32.0
"""The same of memory; a child also counts what its parent held when it was forked."""
_BASE_US = 1_000_000_000_000_000
_KILL_S = 400


@dataclass(frozen=True)
class Series:
    """``write`` puts an input of size n into a folder; sizes go from ``first`` to ``most``."""

    what: str
    write: Callable[[int, Path], None]
    first: int
    most: int = 1 << 62


@dataclass(frozen=True)
class Run:
    """One measured run: its size, CPU seconds, megabytes above those of an empty process."""

    n: int
    cpu_s: float
    mib: float
    ended: str


def _trace(path: Path, events: Iterator[str], **head: Any) -> None:
    with path.open("w") as file:
        file.write(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 0, **head})[:-1])
        file.write(', "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + event)
        file.write("\n]}")


def _info(rank: int, ranks: int, groups: int = 1) -> dict[str, Any]:
    members = list(range(ranks))
    config = [
        {"pg_name": str(number), "pg_desc": f"group_{number}", "backend_config": "cuda:nccl",
         "pg_size": ranks, "ranks": members}
        for number in range(groups)
    ]  # fmt: skip
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks,
                                "pg_count": groups, "pg_config": config}}  # fmt: skip


def _span(cat: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> str:
    return json.dumps(
        {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur,
         "args": args}
    )  # fmt: skip


def _call(ts: float, dur: float, seq: int, ranks: int, group: int = 0) -> str:
    return _span(
        "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", ts, dur, 20,
        **{"device": 0, "stream": 20, "correlation": 10_000_000 + seq,
           "Collective name": "allreduce",
           "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": ranks,
           "dtype": "Float", "Process Group Name": str(group), "Seq": seq,
           "Process Group Ranks": json.dumps(list(range(ranks))) if ranks < 30 else "[0, 1, ...]"},
    )  # fmt: skip


def _step(step: int, at: float, length: float) -> str:
    return _span("user_annotation", f"ProfilerStep#{step}", at, length, 9)


def _steps(
    steps: int,
    kernels: int,
    calls: int,
    *,
    rank: int = 0,
    ranks: int = 2,
    groups: int = 1,
    names: int = 1,
) -> Iterator[str]:
    """Steps of a job: each has so many kernels of so many names, and so many collectives."""
    length = 100.0 + 12.0 * kernels + 60.0 * calls
    for step in range(steps):
        at = _BASE_US + step * (length + 10)
        yield _step(step, at, length)
        for number in range(kernels):
            where = at + 5 + 12 * number
            name = f"gemm_{(step * kernels + number) % names}"
            which = 2 * (step * kernels + number) + 2
            yield _span("cuda_runtime", "cudaLaunchKernel", where, 3, 9, correlation=which)
            yield _span("kernel", name, where + 4, 9, 7, device=0, stream=7, correlation=which)
        for number in range(calls):
            late = 6 * ((step + number) % 3) * (rank == 1)
            where = at + 20 + 12 * kernels + 60 * number + late
            seq = step * calls + number
            yield _call(where, 50 - late, seq, ranks, seq % groups)


def _job(folder: Path, ranks: int, *shape: int, groups: int = 1, names: int = 1) -> None:
    for rank in range(ranks):
        events = _steps(*shape, rank=rank, ranks=ranks, groups=groups, names=names)
        _trace(folder / f"rank{rank}.json", events, **_info(rank, ranks, groups))


def _flight(n: int, folder: Path) -> None:
    """Two dumps whose n groups disagree about the size of a call each."""
    for rank in range(2):
        entries = [
            {"record_id": seq, "pg_id": seq, "process_group": [str(seq), f"g{seq}"],
             "collective_seq_id": 1, "profiling_name": "nccl:all_reduce",
             "time_created_ns": 10**18 + seq, "input_sizes": [[10 + rank]],
             "output_sizes": [[10 + rank]], "input_dtypes": ["Float"], "output_dtypes": ["Float"],
             "state": "completed", "is_p2p": False, "frames": []}
            for seq in range(n)
        ]  # fmt: skip
        config = {str(seq): {"name": str(seq), "desc": "", "ranks": "[0, 1]"} for seq in range(n)}
        dump = {"version": "2.9", "pg_config": config, "entries": entries}
        (folder / f"fr_trace_{rank}").write_text(json.dumps(dump))


def _flight_ranks(n: int, folder: Path) -> None:
    """Dumps of n ranks that wait for rank 0, each with 20 calls."""
    ranks = json.dumps(list(range(n)))
    for rank in range(n):
        entries = [
            {"record_id": seq, "pg_id": 0, "process_group": ["0", "default_pg"],
             "collective_seq_id": seq, "profiling_name": "nccl:all_reduce",
             "time_created_ns": 10**18 + seq, "input_sizes": [[10]], "output_sizes": [[10]],
             "input_dtypes": ["Float"], "output_dtypes": ["Float"], "is_p2p": False, "frames": [],
             "state": "completed" if seq < 19 else "scheduled"}
            for seq in range(20 - (rank == 0))
        ]  # fmt: skip
        dump = {"version": "2.9", "pg_config": {"0": {"name": "0", "desc": "", "ranks": ranks}}}
        (folder / f"fr_trace_{rank}").write_text(json.dumps({**dump, "entries": entries}))


def _log(n: int, folder: Path) -> None:
    with (folder / "nccl.log").open("w") as file:
        file.write("n1:11:11 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n")
        for number in range(n):
            file.write(f"n1:11:11 [0] NCCL INFO Channel {number % 32:02}/32 :    0   1\n")


def _hosts(n: int, folder: Path) -> None:
    """A log of n hosts, a rank each, in one communicator."""
    with (folder / "nccl.log").open("w") as file:
        for rank in range(n):
            head = f"node{rank}:{1000 + rank}:{1000 + rank} [0] NCCL INFO"
            file.write(f"{head} NCCL version 2.21.5+cuda12.4\n")
            file.write(
                f"{head} comm 0xaa rank {rank} nranks {n} cudaDev 0 nvmlDev 0 busId 1000 "
                "commId 0xbb - Init COMPLETE\n"
            )
            file.write(
                f"{head} Channel 00/0 : {rank}[0] -> {(rank + 1) % n}[0] [send] via NET/Socket/0\n"
            )


def _communicators(n: int, folder: Path) -> None:
    """A log of two processes that are in n communicators."""
    with (folder / "nccl.log").open("w") as file:
        for rank in range(2):
            head = f"n1:{11 + rank}:{11 + rank} [{rank}] NCCL INFO"
            file.write(f"{head} NCCL version 2.21.5+cuda12.4\n")
            for number in range(n):
                file.write(
                    f"{head} comm {number + 1:#x} rank {rank} nranks 2 cudaDev {rank} nvmlDev "
                    f"{rank} busId {rank}000 commId {number + 1:#x} - Init COMPLETE\n"
                    f"{head} Channel 00/0 : {rank}[0] -> {1 - rank}[0] [send] via P2P/CUMEM\n"
                )


def _inspector(n: int, folder: Path) -> None:
    """An Inspector's records of n communicators, each with calls of a size of its own."""
    with (folder / "host-pid100.log").open("w") as file:
        for number in range(n):
            at = 1_752_867_229_235_059 + 100_000 * number
            head = {"id": f"{number:#x}", "rank": 0, "n_ranks": 2, "nnodes": 1}
            told = {"inspector_output_format_version": "v4.0", "dump_timestamp_us": at,
                    "hostname": "node1", "pid": 100}  # fmt: skip
            call = {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 1024 + 4 * number,
                    "coll_exec_time_us": 60 + number % 7, "coll_timing_source": "kernel_gpu",
                    "coll_algobw_gbs": 2.0, "coll_busbw_gbs": 2.0,
                    "event_trace_ts": {"coll_start_ts": at, "coll_stop_ts": at + 5}}  # fmt: skip
            file.write(json.dumps({"header": head, "metadata": told, "coll_perf": call}) + "\n")


_TABLE_HEAD = """# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor)
# Using devices
#  Rank  0 Group  0 Pid 100 on node1 device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 100 on node1 device  1 [0x0b] NVIDIA H100 80GB HBM3
#
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong{more}
"""


def _table_rows(sizes: int, number: int = 0) -> Iterator[str]:
    for place in range(sizes):
        size = 4096 << (place % 16)
        time_us = 25 + place + number % 5
        half = f"{time_us} {size / time_us / 1000:.2f} {size / time_us / 1000:.2f} 0"
        yield f"{size} {size // 4} float sum -1 {half} {half}\n"


def _bench_tables(n: int, folder: Path) -> None:
    """n outputs of nccl-tests, one after another in one file."""
    with (folder / "all_reduce_perf.log").open("w") as file:
        for number in range(n):
            file.write(_TABLE_HEAD.format(more=""))
            file.writelines(_table_rows(5, number))
            file.write("# Avg bus bandwidth    : 0.3\n")


def _heading(n: int, folder: Path) -> None:
    """A table whose heading has n more words, over n rows."""
    with (folder / "all_reduce_perf.log").open("w") as file:
        file.write(_TABLE_HEAD.format(more=" a" * n))
        file.writelines(_table_rows(n))


def _named_groups(n: int, folder: Path) -> None:
    """Traces of two ranks that name n groups and have calls in one."""
    for rank in range(2):
        events = _steps(2, 4, 2, rank=rank)
        _trace(folder / f"rank{rank}.json", events, **_info(rank, 2, n))


def _other_files(n: int, folder: Path) -> None:
    _job(folder, 2, 2, 4, 2)
    for number in range(n):
        (folder / f"notes-{number}.txt").write_text("dear diary\n")


def _log_line(n: int, folder: Path) -> None:
    line = "n1:11:11 [0] NCCL INFO Channel 00/32 : " + "   1 2" * (n // 6)
    (folder / "nccl.log").write_text(f"n1:11:11 [0] NCCL INFO NCCL version 2.21.5\n{line}\n")


def _long_name(n: int, folder: Path) -> None:
    events = _steps(2, 4, 2)
    _trace(folder / "rank0.json", iter([*events, _span("kernel", "k" * n, _BASE_US, 3, 7)]))


def _nested(n: int, folder: Path) -> None:
    events = _steps(2, 4, 2)
    deep = '{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 0, "tid": 1, "ts": 1, "dur": 1, '
    deep += '"args": {"a": ' + "[" * n + "]" * n + "}}"
    _trace(folder / "rank0.json", iter([*events, deep]))


def _nested_spans(n: int, folder: Path) -> None:
    """Operators of one thread, each inside the one before: a deep call stack."""
    spans = (
        _span("cpu_op", f"op_{number % 50}", _BASE_US + number, 4 * n - 2 * number, 9)
        for number in range(n)
    )
    _trace(folder / "rank0.json", spans)


def _streams(n: int, folder: Path) -> None:
    """Kernels of n streams, all at once."""
    spans = (
        _span("kernel", "gemm", _BASE_US + number / 8, 1000 + n, number, device=0, stream=number)
        for number in range(n)
    )
    _trace(folder / "rank0.json", spans)


def _op_table_ranks(n: int, folder: Path) -> None:
    """Two stages of n / 2 replicas, 3 steps."""
    _op_table(3, folder, replicas=n // 2)


def _op_table(n: int, folder: Path, *, replicas: int = 2) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("forward-compute", "forward-send", "backward-compute", "grads-reduce-scatter")
    rows = [
        {"dp_rank": replica, "stage": stage, "rank": replicas * stage + replica, "step": step,
         "optype": name, "start_ts": step + 0.05 * place,
         "duration": 0.01 + 1e-7 * (7919 * (replicas * stage + replica + 31 * step) % 10007)}
        for step in range(n) for stage in (0, 1) for replica in range(replicas)
        for place, name in enumerate(names)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "trace.parquet")


SERIES: dict[str, Series] = {
    "events": Series("kernels and launches of one rank",
                     lambda n, to: _job(to, 1, 4, n // 8, 2), 2_000),
    "ranks": Series("ranks, 3 steps of 4 calls each", lambda n, to: _job(to, n, 3, 4, 4), 1, 1_024),
    "steps": Series("steps of 2 ranks, 4 kernels and 2 calls each",
                    lambda n, to: _job(to, 2, n, 4, 2), 16),
    "process groups": Series("process groups of 2 ranks, 2 calls each",
                             lambda n, to: _job(to, 2, 2, 2, n, groups=n), 10, 10_240),
    "names": Series("distinct names of kernels",
                    lambda n, to: _job(to, 1, 2, n // 2, 1, names=n), 100, 102_400),
    "calls per step": Series("collectives in each of 3 steps of 2 ranks",
                             lambda n, to: _job(to, 2, 3, 2, n), 32),
    "findings": Series("groups that disagree about a call", _flight, 16),
    "flight ranks": Series("dumps of ranks that wait for one", _flight_ranks, 2, 2_048),
    "files": Series("other files in the folder", _other_files, 10, 10_240),
    "log lines": Series("lines of an NCCL log", _log, 1_000),
    "log hosts": Series("hosts of one communicator in a log", _hosts, 64, 65_536),
    "communicators": Series("communicators of each process of a log", _communicators, 16),
    "log line": Series("characters of one line of a log", _log_line, 60_000),
    "name length": Series("characters of one name", _long_name, 15_000),
    "nesting": Series("lists inside each other", _nested, 64),
    "call stack": Series("operators inside each other", _nested_spans, 2_000),
    "streams": Series("streams with a kernel each", _streams, 250),
    "op table": Series("steps of an op table, 4 ranks", _op_table, 8),
    "op table ranks": Series("ranks of an op table, 3 steps", _op_table_ranks, 2, 2_048),
    "named groups": Series("groups that a trace names", _named_groups, 16),
    "inspector": Series("members of an Inspector's log with a kind of call each", _inspector, 64),
    "bench tables": Series("tables of nccl-tests in one file", _bench_tables, 8),
    "heading": Series("words of a heading over as many rows", _heading, 64),
}  # fmt: skip


def _work(folder: Path) -> None:
    import advisor
    from advisor.errors import AdvisorError

    try:
        with advisor.load(folder) as run:
            run.render("html")
    except AdvisorError as error:
        print(f"    refused: {error}", file=sys.stderr)
        os._exit(3)
    except BaseException as error:  # noqa: BLE001 - said by the parent
        print(f"    {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(4)
    os._exit(0)


def measure(series: Series, n: int) -> Run:
    """Write the input, diagnose it in a child, and say what that took."""
    with tempfile.TemporaryDirectory() as folder:
        series.write(n, Path(folder))
        sys.stdout.flush()
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (_KILL_S, _KILL_S))
            signal.alarm(5 * _KILL_S)  # what waits uses no processor
            _work(Path(folder))
        _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    ended = {0: "", 3: "refused", 4: "ERROR"}.get(code, f"killed by {-code}")
    return Run(n, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, ended)


def runs_of(series: Series, limit_s: float, doublings: int) -> list[Run]:
    """Runs of doubled size until one takes more than the limit."""
    found: list[Run] = []
    n = series.first
    for _ in range(doublings + 1):
        if n > series.most:
            break
        found.append(measure(series, n))
        if found[-1].cpu_s > limit_s or found[-1].ended.startswith(("killed", "ERROR")):
            break
        n *= 2
    return found


def exponent(runs: list[Run], value: Callable[[Run], float], least: float) -> float | None:
    """The slope over the last three runs that cost more than the first; None: it does not grow."""
    smallest = min(value(run) for run in runs)
    flat = [run for run in runs if value(run) - smallest <= least][-1]
    grown = [(run.n - flat.n, value(run) - value(flat)) for run in runs[runs.index(flat) + 1 :]]
    grown = [one for one in grown if one[1] > 0][-3:]
    if len(grown) < 2:
        return None
    (one, low), (other, high) = grown[0], grown[-1]
    return math.log(high / low) / math.log(other / one)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", nargs="*", choices=sorted(SERIES))
    parser.add_argument("--limit", type=float, default=4.0, help="CPU seconds of a run")
    parser.add_argument("--doublings", type=int, default=10)
    parser.add_argument("-v", "--verbose", action="store_true", help="every run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # imports, and what is made once
        SERIES["ranks"].write(2, Path(folder))
        import advisor

        with advisor.load(folder) as run:
            run.render("html")
    print("| series | n | CPU s | MiB | exponent: time | memory |\n|---|---|---|---|---|---|")
    worst = 0.0
    begun = time.process_time()
    for name in arguments.series or SERIES:
        runs = runs_of(SERIES[name], arguments.limit, arguments.doublings)
        of_time = exponent(runs, lambda run: run.cpu_s, _LEAST_S)
        of_memory = exponent(runs, lambda run: run.mib, _LEAST_MIB)
        worst = max(worst, of_time or 0.0, of_memory or 0.0)
        last = runs[-1]
        shown = ["flat" if value is None else f"{value:.2f}" for value in (of_time, of_memory)]
        ended = f" ({last.ended})" if last.ended else ""
        print(
            f"| {SERIES[name].what} | {runs[0].n:,} to {last.n:,}{ended} | {last.cpu_s:.1f} "
            f"| {last.mib:.0f} | {shown[0]} | {shown[1]} |",
            flush=True,
        )
        if arguments.verbose:
            for run in runs:
                print(f"    {run.n:>9,} {run.cpu_s:7.2f} s {run.mib:6.0f} MiB {run.ended}")
    used = time.process_time() - begun
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    used += children.ru_utime + children.ru_stime
    print(f"worst exponent {worst:.2f}, limit {MOST_EXPONENT}; {used:.0f} CPU s in all")
    return 1 if worst > MOST_EXPONENT else 0


if __name__ == "__main__":
    sys.exit(main())
