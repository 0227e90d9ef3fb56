"""The Inspector's records into ``nccl_choice``, ``bench``, ``timed_call``, ``event`` and others."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping

from advisor.ingest.readers._rows import Row, insert, insert_events
from advisor.ingest.readers.nccl_inspector.records import Inspector, Member, Operation
from advisor.ingest.source import ReadContext
from advisor.vocabulary.bandwidth import bus_factor

# torch's spelling, which other traces use.
_COLLECTIVES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
}


def write_records(context: ReadContext, inspector: Inspector) -> Counter[str]:
    """Append all rows; what could not be kept, by reason."""
    insert(context, "nccl_choice", _choices(inspector))
    insert(context, "bench", _bench(inspector))
    ranks = global_ranks(inspector.members)
    insert(context, "timed_call", _timed(inspector, ranks))
    return _events(context, inspector, ranks)


def _choices(inspector: Inspector) -> Iterator[Row]:
    for kind, sample in inspector.durations.items():
        if kind.algorithm is not None:
            yield {
                "source": "call",
                "op": kind.op,
                "bytes": kind.message_bytes,
                "algorithm": kind.algorithm,
                "protocol": kind.protocol,
                "time_us": statistics.median(sample.values),
                "calls": sample.count,
                "ranks": kind.ranks,
            }


def _bench(inspector: Inspector) -> Iterator[Row]:
    """Medians over all calls; bandwidths from them, with the Inspector's own busbw factor.

    Where all ranks tell of a call it took as long as in the one that came last, which waits for
    none; else the medians are over all ranks.
    """
    durations: dict[tuple[str, int, int], list[float]] = {}
    for kind, sample in inspector.durations.items():
        durations.setdefault((kind.op, kind.ranks, kind.size_bytes), []).extend(sample.values)
    hosts, transfers = _hosts(inspector), _transfers(inspector)
    for (op, n, size), values in durations.items():
        time_us = statistics.median(transfers.get((op, n, size), values))
        algbw = size / time_us / 1e3 if time_us > 0 else None
        factor = inspector.factors.get((op, n), bus_factor(op, n))
        yield {
            "tool": "inspector",
            "op": op,
            "ranks": n,
            "hosts": hosts.get(n),
            "bytes": size,
            "time_us": time_us,
            "algbw_gbps": algbw,
            "busbw_gbps": algbw and factor and algbw * factor,
        }


def _transfers(inspector: Inspector) -> dict[tuple[str, int, int], list[float]]:
    """By operation, ranks and size: µs of each call of which all ranks tell, in the quickest."""
    calls: dict[tuple[object, ...], dict[int, Operation]] = {}
    for operation in inspector.operations:
        if operation.seq is not None and operation.peer is None and not operation.by_host:
            key = operation.member.comm, operation.op, operation.size_bytes, operation.seq
            calls.setdefault(key, {})[operation.member.rank] = operation
    found: dict[tuple[str, int, int], list[float]] = {}
    for of_ranks in calls.values():
        quickest = min(of_ranks.values(), key=lambda operation: operation.time_us)
        if len(of_ranks) == (n := quickest.member.ranks):
            kind = quickest.op, n, quickest.size_bytes
            found.setdefault(kind, []).append(quickest.time_us)
    return found


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


def _timed(inspector: Inspector, ranks: Mapping[tuple[str, int], int]) -> Iterator[Row]:
    for operation in inspector.operations:
        member = operation.member
        rank = ranks.get((member.host, member.pid))
        if rank is not None and operation.time_us > 0 and not operation.by_host:
            at_us = operation.end_us or operation.dumped_us
            yield {
                "rank": rank,
                "process_group": member.comm,
                "seq": operation.seq,
                "op": operation.op,
                "dur_ns": round(1000 * operation.time_us),
                "at_ns": at_us and 1000 * at_us,
            }


def _events(
    context: ReadContext, inspector: Inspector, ranks: Mapping[tuple[str, int], int]
) -> Counter[str]:
    timed = [operation for operation in inspector.operations if operation.start_us is not None]
    if not timed:
        return Counter()
    traced = context.known("rank")
    lost: Counter[str] = Counter()
    counts: Counter[int] = Counter()
    hosts: dict[int, str] = {}

    def rows() -> Iterator[Row]:
        for operation in sorted(timed, key=lambda o: o.start_us or 0):
            member = operation.member
            rank = ranks.get((member.host, member.pid))
            if rank is None:
                lost["operation of a rank that cannot be told"] += 1
            elif rank not in traced:  # else its trace tells more; the sums hold it all the same
                yield _event(rank, counts[rank], operation)
                counts[rank] += 1
                hosts[rank] = member.host

    insert_events(context, rows())
    shared = {
        "world_size": max(member.ranks for member in inspector.members),
        "backend": "nccl",
        "timeline": "device",
        "has_base_time": True,
    }
    found = sorted(counts.items())
    insert(
        context,
        "rank",
        (
            {"rank": rank, "host": hosts[rank] or None, "events_read": n, **shared}
            for rank, n in found
        ),
    )
    return lost


def _event(rank: int, number: int, operation: Operation) -> Row:
    member = operation.member
    start, end = operation.start_us or 0, operation.end_us or 0
    size, whole = operation.message_bytes, operation.size_bytes
    into = whole if operation.op == "reduce_scatter" else size
    outof = whole if operation.op == "all_gather" else size
    name = f"NCCL {operation.op} {operation.algorithm or ''} {operation.protocol or ''}".rstrip()
    return {
        "rank": rank,
        "event_id": number,
        "name": name,
        "category": "nccl_inspector",
        "class": "comm",
        "stream": 0,
        "pid": member.pid,
        "start_ns": start * 1000,
        "dur_ns": (end - start) * 1000,
        "collective": _COLLECTIVES.get(operation.op, operation.op),
        "dtype": "Byte",
        "in_elements": into,
        "out_elements": outof,
        "group_size": member.ranks,
        "process_group": member.comm,
        "group_description": member.name,
        "seq": operation.seq,
        "src_rank": operation.peer if operation.op == "recv" else None,
        "dst_rank": operation.peer if operation.op == "send" else None,
    }
