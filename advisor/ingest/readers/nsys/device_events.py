"""Kernels, copies and synchronisation of an export as ``event`` rows."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from advisor.ingest.classes import classify
from advisor.ingest.readers._rows import Row
from advisor.ingest.readers.nsys.loader import Loader, text_of
from advisor.ingest.readers.nsys.nccl_ranges import Call, all_to_all_of
from advisor.ingest.readers.nsys.open import Database, string_column
from advisor.ingest.readers.nsys.processes import Process, pid_column, pid_of

_NO_STREAM = 0xFFFFFFFF

# CUpti_ActivityMemcpyKind (CUPTI reference), spelled as Kineto does.
_COPIES = ["HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
_MANAGED = ("HtoD (Managed)", "DtoH (Managed)", "DtoD (Managed)")  # pages move as they are touched
_COPY_KINDS = dict(enumerate([f"Memcpy {ends}" for ends in (*_COPIES, *_MANAGED)], 1))
# As the exports list them in ENUM_CUDA_MEM_KIND, in words of Kineto (CuptiActivity.cpp).
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device", "Managed")
_MEMORY_KINDS = dict(enumerate(_MEMORIES))


_KERNELS, _CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


def collect_launches(loader: Loader) -> None:
    """Thread and time of the API call behind each kernel of a communication library."""
    database = loader.database
    wanted: set[tuple[int, int]] = set()
    for pid, device, correlation, name in _kernel_names(database):
        if pid in loader.shared:
            loader.device_of_correlation[pid, correlation] = device
        if _class_of("kernel", name) == "comm":
            wanted.add((pid, correlation))
    if not wanted or not database.has(_CALLS, "start", "globalTid", "correlationId"):
        return
    for start, global_tid, correlation in database.rows(
        f"SELECT start, globalTid, correlationId FROM {_CALLS}"
    ):
        key = (pid_of(global_tid) or 0, correlation)
        if key in wanted and isinstance(start, int):
            loader.launches[key] = (global_tid, start)


def _kernel_names(database: Database) -> Iterator[tuple[int, Any, Any, str | None]]:
    for row in _kernel_rows(database):
        yield pid_of(row[3]) or 0, row[2], row[5], text_of(row[6])


def _kernel_rows(database: Database) -> Iterator[tuple[Any, ...]]:
    """(start, end, device, globalPid, stream, correlation, name)"""
    if not database.has(_KERNELS, "start", "end", "deviceId", "streamId"):
        return
    name, join = string_column(database, _KERNELS, _name_key(database))
    correlation, pid = database.column(_KERNELS, "correlationId"), pid_column(database, _KERNELS)
    yield from database.rows(
        f"SELECT e.start, e.end, e.deviceId, {pid}, e.streamId, {correlation}, {name} "
        f"FROM {_KERNELS} e {join} ORDER BY e.start"
    )


def _name_key(database: Database) -> str:
    return "demangledName" if database.has(_KERNELS, "demangledName") else "shortName"


@lru_cache(maxsize=100_000)
def _class_of(category: str, name: str | None) -> str:
    return classify(category, name, device=category in {"kernel", "gpu_memcpy", "gpu_memset"})


def kernels(loader: Loader) -> Iterator[Row]:
    """Kernels, those of communication with what the launching NCCL call tells."""
    for start, end, device, global_pid, stream, correlation, name in _kernel_rows(loader.database):
        process = loader.of_device.get((pid_of(global_pid) or 0, device))
        if process is None:
            continue
        name = text_of(name)
        loader.told(_KERNELS, _name_key(loader.database), name)
        kind = _class_of("kernel", name)
        yield from loader.row(
            process,
            kind,
            start,
            end,
            name=name,
            category="kernel",
            device=device,
            stream=loader.number(_KERNELS, "streamId", stream),
            correlation=loader.number(_KERNELS, "correlationId", correlation),
            **(_of_call(loader, process, correlation) if kind == "comm" else {}),
        )


def _of_call(loader: Loader, process: Process, correlation: Any) -> dict[str, Any]:
    """What the NVTX range of the launching call tells. Sizes come as bytes: dtype ``Byte``."""
    loader.outcome.with_nccl.add(process.rank)
    launch = loader.launches.get((process.pid, correlation))
    calls = loader.nccl.calls_at(*launch) if launch is not None else []
    if not calls:
        return {}
    call = calls[0]
    ranks = _comm_size(loader, process, call)
    group = {"process_group": call.comm, "group_size": ranks}
    if len(calls) > 1:  # a group launch: one kernel for several calls
        total = all_to_all_of(calls, ranks)
        if total is not None:
            sizes = {"dtype": "Byte", "in_elements": total[0], "out_elements": total[1]}
            return {"collective": "all_to_all", **group, **sizes}
        same = len({call.collective for call in calls}) == 1
        return {"collective": call.collective} if same else {}
    out: dict[str, Any] = {"collective": call.collective, **group}
    if call.collective == "send":
        out["dst_rank"] = call.peer
    elif call.collective == "recv":
        out["src_rank"] = call.peer
    size = call.size_bytes
    if size is None:
        return out
    whole = size * ranks if ranks is not None else None
    into, outof = {
        "_allgather_base": (size, whole),
        "_reduce_scatter_base": (whole, size),
        "all_to_all": (whole, whole),
    }.get(call.collective, (size, size))
    return out | {"dtype": "Byte", "in_elements": into, "out_elements": outof}


def _comm_size(loader: Loader, process: Process, call: Call) -> int | None:
    members = loader.nccl.members.get(process.pid, [])
    return next((member.ranks for member in members if member.comm == call.comm), None)


def copies(loader: Loader) -> Iterator[Row]:
    """Copies and fills, with their bytes."""
    database = loader.database
    for table, category in (
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy"),
        ("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset"),
    ):
        if not database.has(table, "start", "end", "deviceId", "streamId", "bytes"):
            continue
        columns = ("correlationId", "bytes", "copyKind", "srcKind", "dstKind")
        chosen = ", ".join(database.column(table, name) for name in columns)
        for start, end, device, global_pid, stream, link, size, copy, *ends in database.rows(
            f"SELECT start, end, deviceId, {pid_column(database, table)}, streamId, {chosen} "
            f"FROM {table} ORDER BY start"
        ):
            process = loader.of_device.get((pid_of(global_pid) or 0, device))
            if process is None:
                continue
            name = "Memset"
            if category == "gpu_memcpy":
                kinds = zip(columns[2:], (copy, *ends), strict=True)
                name = _copy_name(*(loader.number(table, of, value) for of, value in kinds))
            yield from loader.row(
                process,
                "memory",
                start,
                end,
                name=name,
                category=category,
                device=device,
                stream=loader.number(table, "streamId", stream),
                correlation=loader.number(table, "correlationId", link),
                bytes=loader.number(table, "bytes", size),
            )


def _copy_name(kind: Any, source: Any, target: Any) -> str:
    """As Kineto writes it: ``Memcpy HtoD (Pinned -> Device)``."""
    name = _COPY_KINDS.get(kind, "Memcpy")
    if "(" not in name and source in _MEMORY_KINDS and target in _MEMORY_KINDS:
        return f"{name} ({_MEMORY_KINDS[source]} -> {_MEMORY_KINDS[target]})"
    return name


def syncs(loader: Loader) -> Iterator[Row]:
    """Waits of streams, events and contexts."""
    database = loader.database
    table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    if not database.has(table, "start", "end", "streamId", "syncType"):
        return
    label, join = "NULL", ""
    if database.has("ENUM_CUPTI_SYNC_TYPE", "id", "label"):
        label, join = "t.label", "LEFT JOIN ENUM_CUPTI_SYNC_TYPE t ON t.id = e.syncType"
    device, caller = database.column(table, "deviceId"), pid_column(database, table)
    correlation = database.column(table, "correlationId")
    for start, end, number, global_pid, stream, link, name in database.rows(
        f"SELECT e.start, e.end, {device}, {caller}, e.streamId, {correlation}, {label} "
        f"FROM {table} e {join} ORDER BY e.start"
    ):
        pid = pid_of(global_pid) or 0
        process = loader.of_device.get((pid, number)) or loader.of_pid.get(pid)
        if process is None:
            continue
        if join:
            loader.told(table, "syncType", name)
        yield from loader.row(
            process,
            "sync",
            start,
            end,
            name=text_of(name) or "synchronization",
            category="cuda_sync",
            device=number,
            stream=None if stream == _NO_STREAM else loader.number(table, "streamId", stream),
            correlation=loader.number(table, "correlationId", link),
        )
