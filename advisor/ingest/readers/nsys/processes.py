"""Which ranks an export holds: one per process and GPU with activity.

The rank comes from, in this order: NCCL's own NVTX payload (``ncclCommInitRank``), the launcher's
environment of a single-process capture, the file's name (``rank3``), else the order of devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges
from advisor.ingest.readers.nsys.open import Database

DEVICE_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)
_RANK_VARIABLES = (
    *(
        "RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
        "MV2_COMM_WORLD_RANK",
    ),
)


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


def pid_of(global_id: int | None) -> int | None:
    """The process id in a globalPid or globalTid: bits 24 to 47 (Nsight Systems' export schema)."""
    return None if global_id is None else (global_id >> 24) & 0xFFFFFF


def tid_of(global_id: int | None) -> int | None:
    """The thread id in a globalTid: the lowest 24 bits."""
    return None if global_id is None else global_id & 0xFFFFFF


def find_processes(database: Database, path: PurePath, nccl: NcclRanges) -> list[Process]:
    """Processes with GPU activity in the order of (device, pid), with the ranks they name."""
    found: set[tuple[int, int]] = set()
    for table in DEVICE_TABLES:
        if database.has(table, "globalPid", "deviceId"):
            for global_pid, device in database.rows(
                f'SELECT globalPid, deviceId FROM "{table}" GROUP BY 1, 2'
            ):
                if isinstance(global_pid, int) and isinstance(device, int):
                    found.add((pid_of(global_pid) or 0, device))
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
        in_name = re.search(r"rank[_\-.]?(\d{1,6})", path.name, re.IGNORECASE)
        if variable is not None:
            processes[0].named_rank = variable
        elif in_name is not None:
            processes[0].named_rank = int(in_name[1])
    return processes


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
    rows = database.rows("SELECT id, name FROM TARGET_INFO_GPU LIMIT 4096")
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
