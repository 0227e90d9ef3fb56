"""Reads the Nsight Systems exports of a run, and tells what each of them leaves out."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from advisor.errors import AdvisorError
from advisor.ingest.readers._fields import without_usable
from advisor.ingest.readers._rows import Row, insert
from advisor.ingest.readers.nsys.device_events import collect_launches, copies, kernels, syncs
from advisor.ingest.readers.nsys.loader import Loader, Outcome, text_of
from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges, read_nccl_ranges
from advisor.ingest.readers.nsys.open import Database, opened, string_column, text_column
from advisor.ingest.readers.nsys.processes import (
    Process,
    assign_ranks,
    find_processes,
    pid_column,
    pid_of,
    tid_of,
)
from advisor.ingest.source import ReadContext, Source
from advisor.store.notes import NOT_RECORDED, PARTLY_READ, lost_together

# Nsight Systems 2026.2: "Number of incomplete CUPTI events dropped: 24806. Incomplete events appear
# when GPU timestamp information have not been retrieved at the time the profiling was stopped."
_UNTIMED = re.compile(r"incomplete CUPTI events dropped: (\d{1,18})\b")


def read_exports(sources: Sequence[Source], context: ReadContext, format_name: str) -> None:
    """Read all exports of a run; ranks are counted on over the files that do not name theirs."""
    taken = context.known("rank")
    mine: set[int] = set()
    for source in sources:
        try:
            with opened(source) as database:
                nccl = read_nccl_ranges(database)
                processes = find_processes(database, source.path, nccl)
                notes = assign_ranks(processes, mine)
                twice = sorted({p.rank for p in processes if p.rank in taken})
                fresh = [p for p in processes if p.rank not in taken]
                outcome = _load(database, fresh, nccl, context)
                gaps = _gaps(database, processes) if processes else []
        except AdvisorError as error:
            context.refuse(source, format_name, str(error))
            continue
        notes += gaps
        if twice:
            notes.append(f"ranks {twice} have a trace already: their events here were not read")
        if twice and not fresh:
            context.report(source, "unknown", note="; ".join(notes))
            continue
        if not processes:
            notes.append("holds no GPU activity (was nsys run with --trace=cuda,nvtx?)")
        partly = bool(twice or database.notes or database.dropped)
        codes = [PARTLY_READ] * partly + [NOT_RECORDED] * bool(gaps)
        notes = database.notes + outcome.notes + notes
        ranks = {process.rank for process in processes}
        context.report(
            source,
            format_name,
            rank=next(iter(ranks)) if len(ranks) == 1 else None,
            events_read=outcome.read,
            drop_reasons=database.dropped,
            note="; ".join(notes),
            codes=codes,
        )


def _gaps(database: Database, processes: Sequence[Process]) -> list[str]:
    """What the export leaves out without which communication cannot be told."""
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    if not database.has(table, "start", "end", "deviceId", "streamId"):
        how = "nsys profile --trace=cuda,nvtx, and export all tables"
        return [f"kernels are not recorded: the table {table} is missing ({how})"]
    seen = {
        (pid_of(global_pid), device)
        for global_pid, device in database.rows(
            f"SELECT {pid_column(database, table)}, deviceId FROM {table} GROUP BY 1, 2"
        )
        if isinstance(global_pid, int)
    }
    without = [str(p.rank) for p in processes if (p.pid, p.device) not in seen]
    found = []
    if without:
        found.append(f"kernels of rank {', '.join(without)} are not recorded")
    if not database.has("StringIds", "id", "value"):
        found.append(
            "names of kernels are not recorded, so that communication cannot be told from compute: "
            "the table StringIds is missing (export all tables)"
        )
    return found


def _load(
    database: Database, processes: list[Process], nccl: NcclRanges, context: ReadContext
) -> Outcome:
    """Write the events of ``processes`` and their ``rank`` rows."""
    loader = Loader(database, processes, nccl, context)
    if not processes:
        return loader.outcome
    collect_launches(loader)
    for events in (kernels, copies, syncs, _api_calls, _nvtx_ranges):
        loader.insert(events(loader))
    _count_untimed(database)
    lost = _losses(processes, database, loader.outcome)
    insert(
        context,
        "rank",
        [
            {
                "rank": p.rank,
                "world_size": p.world_size,
                "host": p.host,
                "device": p.device,
                "device_name": p.device_name,
                "backend": "nccl" if p.rank in loader.outcome.with_nccl else None,
                "timeline": "device",
                "events_read": loader.outcome.by_rank[p.rank],
                "events_dropped": sum(lost[p.rank].values()),
                "drop_reasons": json.dumps(lost[p.rank], sort_keys=True),
                "complete": not database.dropped and not database.notes,
                "has_base_time": loader.has_base_time,
            }
            for p in processes
        ],
    )
    _count_names(database)
    loader.outcome.notes += without_usable("rows", database.unusable)
    return loader.outcome


def _count_untimed(database: Database) -> None:
    """Count what a device did that the recorder had no times of when it stopped, as it says."""
    if not database.has("DIAGNOSTIC_EVENT", "text"):
        return
    for (text,) in database.rows("SELECT text FROM DIAGNOSTIC_EVENT"):
        said = _UNTIMED.search(text) if isinstance(text, str) else None
        if said:
            database.drop("GPU time not retrieved before nsys stopped", int(said.group(1)))


def _count_names(database: Database) -> None:
    """Count the texts that no row can name: without an id, with one of another text, or empty."""
    if not database.has("StringIds", "id", "value"):
        return
    counts = "SELECT count(*), count(value) FROM "
    (given, _), (kept, told) = (
        next(database.rows(counts + of), (0, 0)) for of in ("main.StringIds", "StringIds")
    )
    database.unusable += Counter(
        {"id in StringIds": given - kept, "value in StringIds": kept - told}
    )


def _losses(
    processes: list[Process], database: Database, outcome: Outcome
) -> dict[int, dict[str, int]]:
    """What each rank lost. Rows of tables that ranks share are counted once, at the first of them:
    nothing tells whose they were.
    """
    ranks = sorted(process.rank for process in processes)
    lost = {rank: dict(outcome.lost.get(rank, {})) for rank in ranks}
    told = Counter[str]()
    for own in lost.values():
        told.update(own)
    whose = f"ranks {', '.join(map(str, ranks))}"
    for reason, count in database.dropped.items():
        if count > told[reason]:
            named = lost_together(reason, whose) if len(ranks) > 1 else reason
            lost[ranks[0]][named] = count - told[reason]
    return lost


# torch.autograd.profiler.emit_nvtx appends these to an operator's name.
_OP_SUFFIX = re.compile(r",\s(?:seq|op_id|sizes|input_op_ids)\s?=\s.*$", re.DOTALL)
_OPERATOR = re.compile(r"^(?:aten|c10d|prims|autograd|torch|profiler|_c10d_functional)::")
_API_VERSION = re.compile(r"_v\d+(?:_ptsz)?$")  # cudaLaunchKernel_v7000
# NvtxMark; NvtxPushPopRange, NvtxStartEndRange (ENUM_NSYS_EVENT_TYPE)
_MARK, _RANGES = 34, (59, 60)


def _api_calls(loader: Loader) -> Iterator[Row]:
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


def _nvtx_ranges(loader: Loader) -> Iterator[Row]:
    """NVTX ranges and marks: operators of emit_nvtx as ``cpu_op``, all others as annotations.

    After :func:`_api_calls`, which tells the GPU of a thread where a process drives several.
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
