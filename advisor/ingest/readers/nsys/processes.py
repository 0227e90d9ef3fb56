"""Which ranks an export holds: one per process and GPU with activity.

The rank comes from, in this order: NCCL's own NVTX payload (``ncclCommInitRank``), the launcher's
environment of a single-process capture, the file's name (``rank3``), else the order of devices.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges
from advisor.ingest.readers.nsys.open import Database

DEVICE_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)
_HOST_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
STRAY = "event of a process or GPU that hardly occurs"
MOST_PROCESSES = 256
_STRAY_ROWS, _STRAY_SHARE = 10, 20
_RANK_VARIABLES = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK",
)  # fmt: skip


@dataclass
class Process:
    """One process on one GPU; ``rank`` is set by :func:`assign_ranks`."""

    pid: int
    device: int
    host: str | None = None
    device_name: str | None = None
    rank: int = -1
    world_size: int | None = None
    named_rank: int | None = None


def pid_of(global_id: Any) -> int | None:
    """The process id in a globalPid or globalTid: bits 24 to 47 (Nsight Systems' export schema).

    None where there is none, or a damaged row holds something else.
    """
    return (global_id >> 24) & 0xFFFFFF if isinstance(global_id, int) else None


def tid_of(global_id: Any) -> int | None:
    """The thread id in a globalTid: the lowest 24 bits."""
    return global_id & 0xFFFFFF if isinstance(global_id, int) else None


def pid_column(database: Database, table: str) -> str:
    """SQL for the global process id of a device event.

    Where a table has none (exports of other tools, some versions) it is that of the only process
    which calls the GPU, else 0: the GPUs then are the ranks.
    """
    if "globalPid" in database.tables.get(table, set()):
        return "globalPid"
    callers = _pids_on_the_host(database)
    own = next(iter(callers)) << 24 if len(callers) == 1 else 0
    return f"({own} + 0)"  # a bare number would be a column's place in GROUP BY


def find_processes(database: Database, path: PurePath, nccl: NcclRanges) -> list[Process]:
    """Processes with GPU activity in the order of (device, pid), with the ranks they name.

    Rows that only a damaged id can explain make no rank: they are counted as lost.
    """
    rows = Counter[tuple[int, int]]()
    for table in DEVICE_TABLES:
        if database.has(table, "deviceId"):
            pid = pid_column(database, table)
            for global_pid, device, count in database.rows(
                f'SELECT {pid}, deviceId, count(*) FROM "{table}" GROUP BY {pid}, deviceId'
            ):
                if isinstance(global_pid, int) and isinstance(device, int):
                    rows[pid_of(global_pid) or 0, device] += count
                else:
                    field = "deviceId" if isinstance(global_pid, int) else "globalPid"
                    database.drop(f"event without a usable {field}", count)
    total = rows.total()
    # The busiest: a report is of one host, which has a few processes on each GPU.
    rows = Counter(dict(rows.most_common(MOST_PROCESSES)))
    found = _believed(rows, _pids_on_the_host(database))
    database.drop(STRAY, total - sum(rows[pair] for pair in found))
    host = _host(database)
    names = _device_names(database)
    processes = [
        Process(pid, device, host, names.get(device))
        for pid, device in sorted(found, key=lambda item: (item[1], item[0]))
    ]
    for process in processes:
        _rank_from_nccl(process, nccl)
    if len(processes) == 1 and processes[0].named_rank is None:
        variable = _environment_rank(database)
        in_name = re.search(r"rank[_\-.]?(\d{1,6})(?!\d)", path.name, re.IGNORECASE)
        if variable is not None:
            processes[0].named_rank = variable
        elif in_name is not None:
            processes[0].named_rank = int(in_name[1])
    return processes


def _believed(rows: Counter[tuple[int, int]], known: set[int]) -> set[tuple[int, int]]:
    """The (process, GPU) that are there: the others have but a few rows, and one of their ids is
    of no process that calls the GPU, or belongs to a process that works on another one.
    """
    most = Counter[int]()
    for (pid, _), count in rows.items():
        most[pid] = max(most[pid], count)
    busiest = max(rows.values(), default=0)
    found = set()
    for (pid, device), count in rows.items():
        few = count <= _STRAY_ROWS and count * _STRAY_SHARE < busiest
        if not (few and (pid not in known or count < most[pid])):
            found.add((pid, device))
    return found


def _pids_on_the_host(database: Database) -> set[int]:
    """Processes that called the GPU or marked ranges."""
    found: set[int] = set()
    for table in _HOST_TABLES:
        if database.has(table, "globalTid"):
            ids = database.rows(f'SELECT globalTid FROM "{table}" GROUP BY 1')
            found |= {pid for (number,) in ids if (pid := pid_of(number)) is not None}
    return found


def _rank_from_nccl(process: Process, nccl: NcclRanges) -> None:
    """The rank in the largest communicator of the process (on its GPU, if it drives several)."""
    members = [
        member
        for member in nccl.members.get(process.pid, [])
        if member.device is None or member.device == process.device
    ]
    if members:
        largest = max(members, key=lambda member: member.ranks)
        process.named_rank, process.world_size = largest.rank, largest.ranks


def assign_ranks(processes: list[Process], mine: set[int]) -> list[str]:
    """Give every process its rank; ``mine`` collects the ranks of all exports of the run."""
    counted = False
    for process in processes:
        rank = process.named_rank
        if rank is None or rank in mine:
            counted = True
            rank = next(number for number in range(len(mine) + 1) if number not in mine)
        process.rank = rank
        mine.add(rank)
    if not counted:
        return []
    return ["ranks are counted in the order of GPUs: the file does not name them"]


def _host(database: Database) -> str | None:
    if not database.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    sql = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' LIMIT 1"
    return next((str(value)[:200] for (value,) in database.rows(sql) if value), None)


def _device_names(database: Database) -> dict[int, str]:
    if not database.has("TARGET_INFO_GPU", "id", "name"):
        return {}
    rows = [*database.rows("SELECT id, name FROM TARGET_INFO_GPU LIMIT 4096")]
    foreign = sum(not isinstance(number, int) for number, _ in rows)
    database.unusable += Counter({"id in TARGET_INFO_GPU": foreign})
    return {int(number): str(name)[:200] for number, name in rows if isinstance(number, int)}


def _environment_rank(database: Database) -> int | None:
    """``RANK`` of the captured command: only its own where nsys wrapped a single process."""
    if not database.has("META_DATA_CAPTURE", "name", "value"):
        return None
    sql = "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE' LIMIT 10000"
    values: dict[str, int] = {}
    for (text,) in database.rows(sql):
        match = re.fullmatch(r'(\w{1,40})="?(\d{1,6})"?', str(text)[:100])
        if match is not None:
            values[match[1]] = int(match[2])
    return next((values[name] for name in _RANK_VARIABLES if name in values), None)
