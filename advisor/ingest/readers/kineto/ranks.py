"""Which file is which rank, and the rows of ``rank``, ``process_group`` and ``source``."""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.jobs import Part, split_by_process
from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.beginning import DAMAGED_HEAD
from advisor.ingest.readers.kineto.contents import Contents, Summary, most, processes
from advisor.ingest.readers.kineto.metadata import ProcessGroup, TraceInfo, as_object
from advisor.ingest.readers.kineto.overlap import why_not_one
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext, Source
from advisor.store.notes import lost_together
from advisor.vocabulary.numbers import whole
from advisor.vocabulary.words import some_ranks

EPOCH_NS = 1_000_000_000 * 1_000_000_000  # 2001: later than any uptime, earlier than any trace
_MOST_NAMED = 8
_MAX_THREAD_NAMES = 1_000
_MOST_KEPT_CHARACTERS = 32 << 20
"""Of a file's own fields, together at all its ranks: a file may hold thousands."""
_USES_DEVICE = re.compile(
    rb'"\[memory\]"[^{}]{0,400}\{[^{}]{0,400}?"Device Type"\s*:\s*[1-9]'
    rb'|"CUDA functions"|"nccl:|"aten::_?(?:cudnn|miopen)_(?!is_acc)'
)
"""A device's memory under profile_memory (pytorch torch/csrc/profiler/collection.cpp; 0 is the CPU,
c10/core/DeviceType.h), the ranges that torch timed on it before Kineto (v1.7.0
torch/autograd/profiler.py, export_chrome_trace), calls and operators that run nowhere else
(native_functions.yaml; an LSTM asks cudnn_is_acceptable on a CPU too)."""
_LOOKED_AT_BYTES = 4 << 20
"""The first of a recording without device events, of which one pass tells all that it does."""
_GROUP = ("description", "ranks", "size", "backend")


def assign_ranks(
    traces: Sequence[Trace],
    given: Mapping[Path, int],
    told: Collection[int] = (),
    *,
    several: bool | None = None,
) -> None:
    """Give every trace its rank; several files may have the same one (see check_parts).

    Files that do not say their rank get the one in ``given``, else the smallest free numbers in
    order of their paths, and their note says so. A bare number in the name of the only file is no
    rank: it may count anything. ``told`` are ranks of further files; ``several``: there is more
    than one file, where ``traces`` do not tell.
    """
    several = len(traces) > 1 if several is None else several
    for trace in traces:
        if trace.info.only_numbered and not (several or told or trace.source.path in given):
            trace.info.rank, trace.info.rank_from = None, ""
    taken = {trace.info.rank for trace in traces} | set(told)
    free = 0
    for trace in traces:
        if trace.info.rank is not None:
            trace.rank = trace.info.rank
            if trace.info.rank_from != "distributedInfo":
                trace.notes.append(f"rank {trace.rank} from {trace.info.rank_from}")
        elif not trace.merged:
            number = given.get(trace.source.path)
            if number is None:
                while free in taken:
                    free += 1
            trace.rank = free if number is None else number
            taken.add(trace.rank)
            order = " in order of the files' names" if several or number is not None else ""
            trace.guessed = (
                f"the trace says no rank that can be used: taken as rank {trace.rank}{order}"
            )


def forget_workers(traces: Sequence[Trace]) -> None:
    """Workers that are numbered as their ranks, each with a process of its own, are no hosts:
    ``worker_name=f"worker-{rank}_{os.getpid()}"``. Pods count hosts, and each its own processes.
    """
    named = [(trace.info.pod, trace) for trace in traces if trace.info.pod is not None]
    own = len({process for (_, process), _ in named}) == len(named) > 1
    if own and all(number == trace.rank for (number, _), trace in named):
        for _, trace in named:
            trace.info.host = None


def check_parts(traces: Sequence[Trace], summary: Summary, context: ReadContext) -> None:
    """Several files of one rank must be of one process, and no event may stand in two of them.

    Else they are traces of several jobs: raises :class:`SeveralJobsError` where those can be told,
    :class:`AdvisorError` naming both files where not.
    """
    timed = [
        (part.rank, part.start_ns, part.end_ns, part.number)
        for part in summary.contents
        if part.start_ns is not None and part.end_ns is not None
    ]
    windows: dict[int, list[tuple[int, int, int]]] = {}
    for rank, start, end, number in timed:
        windows.setdefault(rank, []).append((start, end, number))
    by_number = {trace.number: trace for trace in traces}
    process: dict[tuple[int, int], int] = {}
    if len(traces) > len(windows):
        process = processes(context)
        split_by_process(
            [
                Part(by_number[number].source.path, rank, start, end, process.get((rank, number)))
                for rank, start, end, number in timed
            ]
        )
    for rank, parts in windows.items():
        for (_, end, one), (start, _, other) in combinations(sorted(parts), 2):
            if start >= end:
                continue
            pids = process.get((rank, one)), process.get((rank, other))
            reason = "nothing tells that one process recorded both"
            hosts = {by_number[number].info.host for number in (one, other)} - {None}
            if pids[0] is not None and pids[0] == pids[1] and len(hosts) < 2:
                reason = why_not_one(rank, one, other, context) or ""
            if reason:
                raise AdvisorError(
                    f"rank {rank} is in two files that cover the same time: "
                    f"{by_number[one].source.path} and {by_number[other].source.path} ({reason})",
                    hint="pass the traces of one run only; if the recorded ranks are wrong, "
                    "remove distributedInfo from the files and name them rank0.json, rank1.json",
                )
        if len(parts) > 1:
            for index, (_, _, number) in enumerate(sorted(parts), 1):
                by_number[number].notes.append(f"part {index} of {len(parts)} of rank {rank}")


@dataclass
class _Rank:
    """One rank's row in the making: the files that hold events of it.

    ``told`` are files of several ranks: nothing tells whose what they lost was, so that it is
    counted once, in ``shared`` of the first of them. Fields of files in ``elsewhere`` stand at
    another rank.
    """

    traces: list[Trace] = field(default_factory=list)
    contents: list[Contents] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    elsewhere: set[int] = field(default_factory=set)
    shared: Counter[str] = field(default_factory=Counter)


def write_ranks(traces: Sequence[Trace], summary: Summary, context: ReadContext) -> None:
    """Count and remove markers, and write ``rank``, ``process_group`` and ``source``."""
    threads = _thread_names(context) if summary.lost else {}
    _count_lost(traces, summary, context)
    by_number = {trace.number: trace for trace in traces}
    ranks: dict[int, _Rank] = {}
    for part in summary.contents:
        entry = ranks.setdefault(part.rank, _Rank())
        entry.traces.append(by_number[part.number])
        entry.contents.append(part)
    seen = {part.number for part in summary.contents}
    for trace in traces:
        if trace.number not in seen and not trace.merged and trace.is_rank:
            ranks.setdefault(trace.rank, _Rank()).traces.append(trace)
    events = Counter[int]()
    for part in summary.contents:
        events[part.number] += part.events
    for trace in traces:
        several = [part.rank for part in summary.contents if part.number == trace.number]
        if len(several) > 1:
            named = some_ranks(several)
            trace.guessed = ""
            trace.notes.append(f"holds {named}")
            for rank in several:
                ranks[rank].told.add(trace.number)
            fields = len(json.dumps(trace.info.kept[0], default=str))
            if fields * len(several) > _MOST_KEPT_CHARACTERS:
                trace.notes.append(f"what it says of the run is kept at rank {several[0]} alone")
                for rank in several[1:]:
                    ranks[rank].elsewhere.add(trace.number)
            for reason, count in trace.dropped.items():
                ranks[several[0]].shared[lost_together(reason, named)] += count
        # Behind a damaged beginning the first events' keys look like fields of the file.
        if (left := trace.info.kept[1]) and DAMAGED_HEAD not in trace.notes:
            shown = ", ".join(name[:60] for name in left[:_MOST_NAMED])
            more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
            trace.notes.append(f"fields not kept in the store: {shown}{more}")
        context.report(
            trace.source,
            "kineto",
            rank=trace.rank if len(several) <= 1 and not trace.merged and trace.is_rank else None,
            events_read=events[trace.number],
            drop_reasons=trace.dropped,
            note="; ".join(filter(None, [trace.guessed, *trace.notes])),
            codes=trace.codes,
            digest=trace.digest,
        )
    rows = (_row(rank, entry, threads.get(rank, {})) for rank, entry in sorted(ranks.items()))
    insert(context, "rank", rows)
    _write_groups(traces, context)


def _count_lost(traces: Sequence[Trace], summary: Summary, context: ReadContext) -> None:
    by_number = {trace.number: trace for trace in traces}
    for number, lost in summary.lost.items():
        for reason, count in lost.items():
            if reason != event_fields.METADATA:
                by_number[number].dropped[reason.removeprefix("!")] += count
    if summary.lost:
        context.con.execute(
            "DELETE FROM event WHERE run = ? AND starts_with(class, '!')", [context.run]
        )


def _thread_names(context: ReadContext) -> dict[int, dict[str, str]]:
    """Names of threads by rank and thread id, as the traces' metadata events give them."""
    rows = context.con.execute(
        "SELECT rank, tid, category FROM event WHERE run = ? AND class = ? "
        "AND name = 'thread_name' AND tid IS NOT NULL AND category IS NOT NULL "
        "AND NOT starts_with(category, 'stream') ORDER BY event_id",
        [context.run, event_fields.METADATA],
    ).fetchall()
    names: dict[int, dict[str, str]] = {}
    for rank, tid, name in rows:
        known = names.setdefault(rank, {})
        if len(known) < _MAX_THREAD_NAMES:
            known[str(tid)] = name[:200]
    return names


def _row(rank: int, entry: _Rank, threads: dict[str, str]) -> dict[str, Any]:
    info = entry.traces[0].info if entry.traces else TraceInfo()
    dropped: Counter[str] = Counter()
    for trace in entry.traces:
        if trace.number not in entry.told:
            dropped.update(trace.dropped)
    dropped.update(entry.shared)
    parts = entry.contents
    devices = [part.compute_devices for part in parts] + [part.devices for part in parts]
    events = sum(part.device_events for part in parts)
    # Copies alone, of a host that asks for far more: what its device computes was not recorded.
    few = 2 * events < sum(part.runtime_calls for part in parts)
    on_device = events > 0 and not (few and not any(part.kernels for part in parts))
    device = next((most(found) for found in devices if found), None) if on_device else None
    properties = info.devices.get(device, {}) if device is not None else {}
    name = properties.get("name")
    own = as_object(info.fields.get("advisor"))
    is_elsewhere = bool(entry.traces) and entry.traces[0].number in entry.elsewhere
    metadata = dict(info.kept[0]) if not is_elsewhere else {}
    if threads:
        metadata["thread_names"] = threads
    if not on_device and any(_used_device(one.source) for one in entry.traces):
        metadata["device_used"] = True
    absolute = bool(parts) and min(part.first_ns for part in parts) > EPOCH_NS
    return {
        "rank": rank,
        "world_size": info.world_size,
        "host": info.host,
        "device": device,
        "device_name": str(name) if name is not None else (None if on_device else "CPU"),
        "backend": info.backend,
        "nccl_version": info.nccl_version,
        "timeline": "device" if on_device else "host",
        "events_read": sum(part.events for part in parts),
        "events_dropped": sum(dropped.values()),
        "drop_reasons": json.dumps(dict(dropped), sort_keys=True),
        "complete": any(part.events for part in parts)
        and all(trace.complete for trace in entry.traces)
        and not any(trace.dropped for trace in entry.traces),
        "has_base_time": info.base_time_ns is not None or absolute,
        "peak_memory_bytes": whole(own.get("peak_memory_bytes")),
        "total_memory_bytes": whole(properties.get("totalGlobalMem")),
        "metadata": json.dumps(metadata, default=str),
    }


def _write_groups(traces: Sequence[Trace], context: ReadContext) -> None:
    """The union of what the ranks list; groups of one name but other members get a row each."""
    merged: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    for trace in traces:
        for group in trace.info.groups:
            merged.setdefault((group.name, tuple(group.ranks or ())), group)
    told = {name for name, ranks in merged if ranks}
    rows = [
        {"process_group": name, **{column: getattr(g, column) for column in _GROUP}}
        for (name, ranks), g in merged.items()
        if ranks or name not in told
    ]
    insert(context, "process_group", rows)


def _used_device(source: Source) -> bool:
    with source.open() as stream:
        return _USES_DEVICE.search(stream.read(_LOOKED_AT_BYTES)) is not None
