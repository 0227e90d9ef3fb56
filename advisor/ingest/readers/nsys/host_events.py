"""CUDA API calls and NVTX ranges of an export as ``event`` rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.ingest.readers._rows import Row
from advisor.ingest.readers.nsys.loader import Loader, text_of
from advisor.ingest.readers.nsys.open import string_column, text_column
from advisor.ingest.readers.nsys.processes import pid_of, tid_of

# torch.autograd.profiler.emit_nvtx appends these to an operator's name.
_OP_SUFFIX = re.compile(r",\s(?:seq|op_id|sizes|input_op_ids)\s?=\s.*$", re.DOTALL)
_OPERATOR = re.compile(r"^(?:aten|c10d|prims|autograd|torch|profiler|_c10d_functional)::")
_API_VERSION = re.compile(r"_v\d+(?:_ptsz)?$")  # cudaLaunchKernel_v7000
# NvtxMark; NvtxPushPopRange, NvtxStartEndRange (ENUM_NSYS_EVENT_TYPE)
_MARK, _RANGES = 34, (59, 60)


def api_calls(loader: Loader) -> Iterator[Row]:
    """CUDA runtime and driver calls; of several GPUs in a process, on the one they launch on."""
    database = loader.database
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    if not database.has(table, "start", "end", "globalTid", "correlationId"):
        return
    name, join = string_column(database, table, "nameId")
    for start, end, global_tid, link, text in database.rows(
        f"SELECT e.start, e.end, e.globalTid, e.correlationId, {name} FROM {table} e {join} "
        "ORDER BY e.start"
    ):
        pid = pid_of(loader.number(table, "globalTid", global_tid)) or 0
        device = loader.device_of_correlation.get((pid, link))
        process = loader.of_device.get((pid, device)) if device is not None else None
        if process is not None:
            loader.devices_of_thread.setdefault(global_tid, set()).add(process.device)
        process = process or loader.of_pid.get(pid)
        if process is None:
            continue
        loader.told(table, "nameId", text)
        yield from loader.row(
            process,
            "runtime",
            start,
            end,
            name=_API_VERSION.sub("", text_of(text) or ""),
            category="cuda_runtime",
            tid=tid_of(global_tid),
            correlation=loader.number(table, "correlationId", link),
        )


def nvtx_ranges(loader: Loader) -> Iterator[Row]:
    """NVTX ranges and marks: operators of emit_nvtx as ``cpu_op``, all others as annotations.

    After :func:`api_calls`, which tells the GPU of a thread where a process drives several.
    """
    database = loader.database
    table = "NVTX_EVENTS"
    if not database.has(table, "start", "end", "globalTid", "eventType"):
        return
    name, join = text_column(database)
    named = "text" if database.has(table, "text") else "textId"
    for start, end, kind, global_tid, title in database.rows(
        f"SELECT e.start, e.end, e.eventType, e.globalTid, {name} FROM {table} e {join} "
        "ORDER BY e.start"
    ):
        kind = loader.number(table, "eventType", kind)
        if kind != _MARK and kind not in _RANGES:
            continue
        process = loader.process_of_thread(loader.number(table, "globalTid", global_tid))
        title = text_of(title)
        if not loader.told(table, named, title) or process is None or title is None:
            continue
        plain = _OP_SUFFIX.sub("", title)
        operator = _OPERATOR.match(plain) is not None or plain != title
        yield from loader.row(
            process,
            "cpu_op" if operator else "annotation",
            start,
            start if kind == _MARK else end,
            name=plain,
            category="cpu_op" if operator else "user_annotation",
            tid=tid_of(global_tid),
        )
