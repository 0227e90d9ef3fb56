"""Which file is which rank, and the rows of ``rank``, ``process_group`` and ``source``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.metadata import ProcessGroup, as_int, as_object
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext


def assign_ranks(traces: Sequence[Trace]) -> None:
    """Give every trace its rank; files of one rank become its parts, in order of their paths.

    Files that do not say their rank get the smallest free numbers in order of their paths, and
    their note says so.
    """
    taken: Counter[int] = Counter()
    for trace in traces:
        if trace.info.rank is not None:
            trace.rank = trace.info.rank
            trace.part = taken[trace.rank]
            taken[trace.rank] += 1
            if trace.info.rank_from != "distributedInfo":
                trace.notes.append(f"rank {trace.rank} from {trace.info.rank_from}")
    free = 0
    for trace in traces:
        if trace.info.rank is None:
            while free in taken:
                free += 1
            trace.rank = free
            taken[free] += 1
            trace.notes.append(
                f"the trace does not say its rank: taken as rank {free}"
                + (" in order of the files' names" if len(traces) > 1 else "")
            )


def check_parts(traces: Sequence[Trace], context: ReadContext) -> None:
    """Several files of one rank must cover different times, else they are two runs' traces.

    Raises :class:`AdvisorError` naming both files.
    """
    by_rank: dict[int, list[Trace]] = {}
    for trace in traces:
        by_rank.setdefault(trace.rank, []).append(trace)
    several = {rank: parts for rank, parts in by_rank.items() if len(parts) > 1}
    if not several:
        return
    rows = context.con.execute(
        "SELECT rank, event_id // ?, min(start_ns), max(start_ns + dur_ns) FROM event "
        "WHERE run = ? AND class NOT LIKE '!%' AND category IS DISTINCT FROM 'Trace' "
        "AND category IS NOT NULL GROUP BY ALL",
        [sql.IDS_PER_PART, context.run],
    ).fetchall()
    windows = {(rank, part): (start, end) for rank, part, start, end in rows}
    for rank, parts in several.items():
        known = [(windows[rank, p.part], p) for p in parts if (rank, p.part) in windows]
        known.sort(key=lambda item: item[0])
        for (window, one), (following, other) in zip(known, known[1:], strict=False):
            if following[0] < window[1]:
                raise AdvisorError(
                    f"rank {rank} is in two files that cover the same time: "
                    f"{one.source.path} and {other.source.path}",
                    hint="pass the traces of one run only (see advisor ingest --help), or rename "
                    "them rank0.json, rank1.json ... if the recorded ranks are wrong",
                )
        for trace in parts:
            trace.notes.append(f"part {trace.part + 1} of {len(parts)} of rank {rank}")


def write_ranks(traces: Sequence[Trace], context: ReadContext) -> None:
    """Count, clean up markers, and write ``rank``, ``process_group`` and ``source``."""
    con = context.con
    lost = con.execute(
        "SELECT rank, event_id // ?, class, count(*) FROM event "
        "WHERE run = ? AND starts_with(class, '!') GROUP BY ALL",
        [sql.IDS_PER_PART, context.run],
    ).fetchall()
    owners = {(trace.rank, trace.part): trace for trace in traces}
    for rank, part, reason, count in lost:
        if reason != sql.METADATA:
            owners[rank, part].dropped[reason.removeprefix("!")] += count
    if lost:
        con.execute("DELETE FROM event WHERE run = ? AND starts_with(class, '!')", [context.run])
    counts = con.execute(
        "SELECT rank, event_id // ?, count(*), mode(device) FILTER (class = 'compute'), "
        "mode(device), count(*) FILTER (device IS NOT NULL AND class <> 'annotation') "
        "FROM event WHERE run = ? GROUP BY ALL",
        [sql.IDS_PER_PART, context.run],
    ).fetchall()
    per_part: dict[tuple[int, int], tuple[Any, ...]] = {
        (rank, part): tuple(rest) for rank, part, *rest in counts
    }
    by_rank: dict[int, list[Trace]] = {}
    for trace in traces:
        by_rank.setdefault(trace.rank, []).append(trace)
        events = per_part.get((trace.rank, trace.part), (0,))[0]
        context.report(
            trace.source,
            "kineto",
            rank=trace.rank,
            events_read=events,
            events_dropped=sum(trace.dropped.values()),
            drop_reasons=trace.dropped,
            note="; ".join(trace.notes) or None,
            sha256=trace.hash_file(),
        )
    for rank, parts in sorted(by_rank.items()):
        _write_rank(
            rank, parts, [per_part.get((rank, t.part), (0, None, None, 0)) for t in parts], context
        )
    _write_groups(traces, context)


def _write_rank(
    rank: int, parts: list[Trace], counts: list[tuple[Any, ...]], context: ReadContext
) -> None:
    info = parts[0].info
    dropped: Counter[str] = Counter()
    for trace in parts:
        dropped.update(trace.dropped)
    device = next(
        (row[index] for index in (1, 2) for row in counts if row[index] is not None), None
    )
    on_device = any(row[3] for row in counts)
    properties = info.devices.get(device if device is not None else -1, {})
    own = as_object(info.fields.get("advisor"))
    started = context.con.execute(
        "SELECT min(start_ns) FROM event WHERE run = ? AND rank = ?", [context.run, rank]
    ).fetchall()
    earliest = started[0][0] if started and started[0][0] is not None else 0
    context.con.execute(
        "INSERT INTO rank (run, rank, world_size, host, device, device_name, backend, nccl_version, "
        "timeline, events_read, events_dropped, drop_reasons, complete, has_base_time, "
        "peak_memory_bytes, total_memory_bytes, metadata) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            context.run,
            rank,
            info.world_size,
            info.host,
            device if on_device else None,
            str(properties["name"]) if "name" in properties else (None if on_device else "CPU"),
            info.backend,
            info.nccl_version,
            "device" if on_device else "host",
            sum(row[0] for row in counts),
            sum(dropped.values()),
            json.dumps(dict(dropped), sort_keys=True),
            all(trace.complete for trace in parts) and not dropped,
            info.base_time_ns is not None or earliest > _EPOCH_NS,
            as_int(own.get("peak_memory_bytes")),
            as_int(properties.get("totalGlobalMem")),
            json.dumps(info.kept(), default=str),
        ],
    )


_EPOCH_NS = 1_000_000_000 * 1_000_000_000  # 2001: later than any uptime, earlier than any trace


def _write_groups(traces: Sequence[Trace], context: ReadContext) -> None:
    """The union of what the ranks list; groups of one name but other members get a row each."""
    merged: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    for trace in traces:
        for group in trace.info.groups:
            merged.setdefault((group.name, tuple(group.ranks or ())), group)
    for (name, ranks), group in merged.items():
        if not ranks and any(key[0] == name and key[1] for key in merged):
            continue
        context.con.execute(
            "INSERT INTO process_group VALUES (?, ?, ?, ?, ?, ?)",
            [context.run, group.name, group.description, group.ranks, group.size, group.backend],
        )
