"""The Inspector's records into ``nccl_choice``, ``bench``, ``comm_event``, ``event``, ``rank``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from advisor.ingest.readers._rows import insert, insert_events
from advisor.ingest.readers.nccl_inspector.records import Inspector, Member, Operation
from advisor.ingest.source import ReadContext
from advisor.vocabulary.bandwidth import bus_factor

_CHOICE = (*("run", "source", "op", "bytes", "algorithm", "protocol", "time_us", "calls", "ranks"),)
_BENCH = ("run", "tool", "op", "ranks", "hosts", "bytes", "time_us", "algbw_gbps", "busbw_gbps")
_EVENT = (
    *("run", "rank", "event_id", "name", "category", "class", "stream", "pid", "start_ns"),
    *("dur_ns", "collective", "dtype", "in_elements", "out_elements", "group_size"),
    *("process_group", "group_description", "seq", "src_rank", "dst_rank"),
)
_RANK = ("run", "rank", "world_size", "host", "backend", "timeline", "events_read", "has_base_time")

# torch's spelling, which other traces use.
_COLLECTIVES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
}


def write_records(context: ReadContext, inspector: Inspector) -> dict[str, int]:
    """Append all rows; what could not be kept, by reason."""
    run = context.run
    insert(
        context.con,
        "nccl_choice",
        _CHOICE,
        (
            (
                *(run, "call", kind.op, kind.message_bytes, kind.algorithm, kind.protocol),
                *(statistics.median(sample.values), sample.count, kind.ranks),
            )
            for kind, sample in inspector.durations.items()
            if kind.algorithm is not None
        ),
    )
    insert(context.con, "bench", _BENCH, _bench(run, inspector))
    return _events(context, inspector)


def _bench(run: str, inspector: Inspector) -> Iterator[tuple[Any, ...]]:
    """Medians over all ranks; bandwidths from them, with the Inspector's own busbw factor."""
    durations: dict[tuple[str, int, int], list[float]] = {}
    for kind, sample in inspector.durations.items():
        durations.setdefault((kind.op, kind.ranks, kind.size_bytes), []).extend(sample.values)
    hosts = _hosts(inspector)
    for (op, n, size), values in durations.items():
        time_us = statistics.median(values)
        algbw = size / time_us / 1e3 if time_us > 0 else None
        factor = inspector.factors.get((op, n), bus_factor(op, n))
        busbw = algbw and factor and algbw * factor
        yield (run, "inspector", op, n, hosts.get(n), size, time_us, algbw, busbw)


def _hosts(inspector: Inspector) -> dict[int, list[str]]:
    """By their ranks, the hosts of the only communicator that has so many; none where several have,
    or some of its ranks wrote nothing."""
    by_size: dict[int, list[Member]] = {}
    for member in inspector.members:
        by_size.setdefault(member.ranks, []).append(member)
    return {
        ranks: sorted({member.host for member in members})
        for ranks, members in by_size.items()
        if len(members) == ranks and len({member.comm for member in members}) == 1
    }


def global_ranks(members: set[Member]) -> dict[tuple[str, int], int]:
    """(host, process) → global rank: its rank in the communicator of all ranks.

    Empty where the largest communicators are over different processes: then none is of all ranks.
    """
    largest = max((member.ranks for member in members), default=0)
    world = [member for member in members if member.ranks == largest]
    processes = {(member.host, member.pid) for member in world}
    if len(processes) > largest:
        return {}
    ranks: dict[tuple[str, int], set[int]] = {}
    for member in world:
        ranks.setdefault((member.host, member.pid), set()).add(member.rank)
    return {process: found.pop() for process, found in ranks.items() if len(found) == 1}


def _events(context: ReadContext, inspector: Inspector) -> dict[str, int]:
    if not inspector.timed:
        return {}
    traced = {
        rank
        for (rank,) in context.con.execute(
            "SELECT rank FROM rank WHERE run = ?", [context.run]
        ).fetchall()
    }
    ranks = global_ranks(inspector.members)
    lost: dict[str, int] = {}
    counts: dict[int, int] = {}
    hosts: dict[int, str] = {}
    rows = []
    for operation in sorted(inspector.timed, key=lambda o: o.start_us or 0):
        member = operation.member
        rank = ranks.get((member.host, member.pid))
        if rank is None:
            reason = "operation of a rank that cannot be told"
            lost[reason] = lost.get(reason, 0) + 1
            continue
        if rank in traced:
            continue  # a trace tells more of it; the sums above hold it all the same
        rows.append(_event(context.run, rank, counts.get(rank, 0), operation))
        counts[rank] = counts.get(rank, 0) + 1
        hosts[rank] = member.host
    insert_events(context.con, _EVENT, rows)
    world = max(member.ranks for member in inspector.members)
    insert(
        context.con,
        "rank",
        _RANK,
        [
            (context.run, rank, world, hosts[rank] or None, "nccl", "device", count, True)
            for rank, count in sorted(counts.items())
        ],
    )
    return lost


def _event(run: str, rank: int, number: int, operation: Operation) -> tuple[Any, ...]:
    member, n = operation.member, operation.member.ranks
    start, end = operation.start_us or 0, operation.end_us or 0
    size, whole = operation.message_bytes, operation.size_bytes
    into = whole if operation.op == "reduce_scatter" else size
    outof = whole if operation.op == "all_gather" else size
    name = f"NCCL {operation.op} {operation.algorithm or ''} {operation.protocol or ''}".rstrip()
    return (
        run,
        rank,
        number,
        name,
        "nccl_inspector",
        "comm",
        0,
        member.pid,
        start * 1000,
        (end - start) * 1000,
        _COLLECTIVES.get(operation.op, operation.op),
        "Byte",
        into,
        outof,
        n,
        member.comm,
        member.name,
        operation.seq,
        operation.peer if operation.op == "recv" else None,
        operation.peer if operation.op == "send" else None,
    )
