"""Lines of the Inspector → records, each field checked.

Up to format v4.2 every line carries its communicator; from v4.3 on a ``dump_stats`` marker does for
the lines that follow it. The Inspector counts what its ring buffers overwrote: that is reported as
lost, too.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from advisor.ingest.readers._fields import count_unusable
from advisor.ingest.readers.nccl_log.tables import algorithm_name, protocol_name
from advisor.vocabulary.numbers import MOST_RANKS, json_integer, real, whole
from advisor.vocabulary.operations import canonical_op

MAX_LINE_BYTES = 1024 * 1024
MAX_KEPT = 1_000_000
MAX_SAMPLE = 8192
_RECORDS = (b'"coll_perf"', b'"p2p_perf"')
_NOBODY = "header"
_LONGEST_NAME = 255  # of a host, communicator or algorithm
_integer = partial(whole, most=(1 << 53) - 1)  # JSON's, and a thousand times as much fits


@dataclass(frozen=True)
class Member:
    """A rank of a communicator: the process and the place that wrote a record."""

    host: str
    pid: int
    comm: str
    rank: int
    ranks: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One completed operation. ``message_bytes`` is as the Inspector counts (per rank)."""

    member: Member
    op: str
    algorithm: str | None
    protocol: str | None
    seq: int | None
    message_bytes: int
    time_us: float
    algbw_gbps: float | None
    busbw_gbps: float | None
    peer: int | None
    start_us: int | None = None
    end_us: int | None = None
    dumped_us: int | None = None
    by_host: bool = False
    """Whether its time is that of the host's call, not of the kernel (``collective_cpu``)."""

    @property
    def size_bytes(self) -> int:
        """The size as nccl-tests counts it: all ranks' data where the Inspector counts one's.

        The Inspector's own bandwidth tells which: it is size / time.
        """
        n = self.member.ranks
        if self.algbw_gbps and self.time_us and n > 1:
            factor = self.algbw_gbps * self.time_us * 1e3 / max(1, self.message_bytes)
            return self.message_bytes * (n if abs(factor - n) < abs(factor - 1) else 1)
        whole = n if self.op in {"all_gather", "reduce_scatter"} else 1
        return self.message_bytes * whole


@dataclass
class Sample:
    """An even sample of a long series: every 1st, 2nd, 4th … value, at most 8,192 of them."""

    count: int = 0
    values: list[float] = field(default_factory=list)
    _stride: int = 1

    def add(self, value: float) -> None:
        """Take the next value."""
        if self.count % self._stride == 0:
            self.values.append(value)
            if len(self.values) > MAX_SAMPLE:
                self.values = self.values[::2]
                self._stride *= 2
        self.count += 1


@dataclass(frozen=True)
class Kind:
    """What operations are summed by."""

    op: str
    ranks: int
    message_bytes: int
    size_bytes: int
    algorithm: str | None
    protocol: str | None


@dataclass
class Inspector:
    """All records of a run, and samples of all durations (µs) by kind."""

    members: set[Member] = field(default_factory=set)
    durations: dict[Kind, Sample] = field(default_factory=dict)
    factors: dict[tuple[str, int], float] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    unusable: Counter[str] = field(default_factory=Counter)
    """Fields that kept records lack, by name."""

    def read(self, stream: BinaryIO) -> tuple[int, Counter[str]]:
        """Take one file; (records kept, losses by reason)."""
        dropped: Counter[str] = Counter()
        kept = 0
        member: Member | str = _NOBODY
        dumped_us: int | None = None
        while line := stream.readline(MAX_LINE_BYTES):
            whole = line.endswith(b"\n")
            while not whole and len(line) == MAX_LINE_BYTES and (rest := stream.readline(1 << 16)):
                whole = rest.endswith(b"\n")
            if not line.strip():
                continue
            item = _object(line)
            if item is None:
                dropped["line that is no JSON object" if whole else "last line cut"] += 1
                if not any(sign in line for sign in _RECORDS):
                    member = _NOBODY  # it may have named whose the following records are
                continue
            if "header" in item:
                member, dumped_us = _member(item, self.unusable)
            if isinstance(stats := item.get("dump_stats"), dict):
                for key in ("coll", "p2p"):
                    name = f"{key}_dropped_since_last_dump"
                    lost = _integer(stats.get(name))
                    count_unusable(stats, {name: lost}, self.unusable)
                    dropped["overwritten before the Inspector dumped it"] += max(0, lost or 0)
            if "coll_perf" not in item and "p2p_perf" not in item:
                continue
            operation = (
                member
                if isinstance(member, str)
                else _operation(item, member, dumped_us, self.unusable)
            )
            if isinstance(operation, str):
                dropped[f"record without a usable {operation}"] += 1
                continue
            self._take(operation, dropped)
            kept += 1
        return kept, dropped

    def _take(self, one: Operation, dropped: Counter[str]) -> None:
        member = one.member
        self.members.add(member)
        kind = Kind(
            one.op, member.ranks, one.message_bytes, one.size_bytes, one.algorithm, one.protocol
        )
        self.durations.setdefault(kind, Sample()).add(one.time_us)
        if one.algbw_gbps and one.busbw_gbps is not None:
            self.factors[one.op, member.ranks] = one.busbw_gbps / one.algbw_gbps
        if len(self.operations) < MAX_KEPT:
            self.operations.append(one)
        else:
            dropped["over the bound of kept records"] += 1


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        item = json.loads(line.decode("utf-8", errors="replace"), parse_int=json_integer)
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def _member(item: dict[str, Any], unusable: Counter[str]) -> tuple[Member | str, int | None]:
    """Whose the records are, or the field that does not tell; and when they were written, in us.

    Counts the other fields that cannot be used.
    """
    header, metadata = item.get("header"), item.get("metadata")
    if not isinstance(header, dict):
        return _NOBODY, None
    if not isinstance(metadata, dict):
        return "metadata", None
    rank, ranks = _integer(header.get("rank")), _integer(header.get("n_ranks"))
    comm, pid = header.get("id"), _integer(metadata.get("pid"))
    if ranks is None or not 0 < ranks <= MOST_RANKS:
        return "n_ranks", None
    if rank is None or not 0 <= rank < ranks:
        return "rank", None
    if not isinstance(comm, str):
        return "id", None
    host, label = _text(metadata, "hostname", unusable), _text(header, "comm_name", unusable)
    dumped_us = _integer(metadata.get("dump_timestamp_us"))
    count_unusable(metadata, {"pid": pid, "dump_timestamp_us": dumped_us}, unusable)
    return Member(host or "", pid or 0, comm[:64], rank, ranks, label), dumped_us


def _operation(
    item: dict[str, Any], member: Member, dumped_us: int | None, unusable: Counter[str]
) -> Operation | str:
    """The operation of a record, or the field without which it is none; counts the others."""
    prefix = "coll" if "coll_perf" in item else "p2p"
    perf = item[f"{prefix}_perf"]
    if not isinstance(perf, dict):
        return f"{prefix}_perf"
    name, size = perf.get(prefix), _integer(perf.get(f"{prefix}_msg_size_bytes"))
    time_us = real(perf.get(f"{prefix}_exec_time_us"), 1e15)
    op = canonical_op(name) if isinstance(name, str) else None
    if op is None:
        return prefix
    if size is None or size < 0:
        return f"{prefix}_msg_size_bytes"
    if time_us is None or time_us < 0:
        return f"{prefix}_exec_time_us"
    algorithm, protocol = (_text(perf, f"coll_{of}", unusable) for of in ("algo", "proto"))
    source = _text(perf, f"{prefix}_timing_source", unusable)
    start, end = _times(perf.get("event_trace_ts"), prefix)
    seq, peer = _integer(perf.get(f"{prefix}_sn")), _integer(perf.get("p2p_peer"))
    algbw, busbw = (real(perf.get(f"{prefix}_{name}_gbs")) for name in ("algobw", "busbw"))
    told: dict[str, float | None] = {f"{prefix}_sn": seq, "p2p_peer": peer, "event_trace_ts": start}
    told |= {f"{prefix}_algobw_gbs": algbw, f"{prefix}_busbw_gbs": busbw}
    count_unusable(perf, told, unusable)
    algorithm = algorithm and algorithm_name(algorithm)
    protocol = protocol and protocol_name(protocol)
    by_host = source == "collective_cpu"
    return Operation(
        member, op, algorithm, protocol, seq, size, time_us, algbw, busbw, peer,
        start, end, dumped_us, by_host,
    )  # fmt: skip


def _times(trace: Any, prefix: str) -> tuple[int | None, int | None]:
    """First start and last stop of the kernel's channels, else of the call (µs since the epoch)."""
    if not isinstance(trace, dict):
        return None, None
    listed = trace.get("kernel_events")
    kernels = listed if isinstance(listed, list) else []
    events = [event for event in kernels if isinstance(event, dict)]
    starts = [t for event in events if (t := _integer(event.get("kernel_start_ts")))]
    stops = [t for event in events if (t := _integer(event.get("kernel_stop_ts")))]
    if starts and stops and max(stops) >= min(starts):
        return min(starts), max(stops)
    start, stop = (_integer(trace.get(f"{prefix}_{end}_ts")) for end in ("start", "stop"))
    return (start, stop) if start and stop and stop >= start else (None, None)


def _text(given: dict[str, Any], field: str, unusable: Counter[str]) -> str | None:
    """A name, None where the Inspector knows none; counted where it is none that can be."""
    value = given.get(field)
    name = value if isinstance(value, str) and len(value) <= _LONGEST_NAME else None
    count_unusable(given, {field: name}, unusable)
    return name if name and name.lower() != "unknown" else None
