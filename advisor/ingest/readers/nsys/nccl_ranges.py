"""NCCL's NVTX ranges: which call a kernel comes from, and with which size in which communicator.

NCCL marks its API calls (``ncclAllReduce`` …) in the NVTX domain "NCCL", with a payload described
by a schema in the export (src/include/nvtx_payload_schemas.h in NCCL). A kernel belongs to the call
in whose range it was launched; calls between ncclGroupStart and ncclGroupEnd are launched in the
latter. Exports without payloads (``--include-blobs=false``) still give the operation.
"""

import bisect
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from advisor.ingest.readers.nsys.open import Database, text_column

_HEADER = struct.Struct("<QQQQ")  # domain, schema, payload size, offset of the payload
_COMM, _SIZE, _PEER = "NCCL communicator ID", "Message size [bytes]", "Peer rank"
_RANKS, _RANK, _DEVICE = "No. of ranks", "Rank", "CUDA device"

_ENTRY = ("domainId", "schemaId", "name", "type", "offset")

_MOST = 1_000_000  # ranks of a communicator: more is damage

# Names of the profiler's metadata (torch's spelling), so that all traces read alike.
_COLLECTIVES = {
    "ncclAllReduce": "allreduce", "ncclAllGather": "_allgather_base",
    "ncclReduceScatter": "_reduce_scatter_base", "ncclBroadcast": "broadcast",
    "ncclBcast": "broadcast", "ncclReduce": "reduce", "ncclAlltoAll": "all_to_all",
    "ncclGather": "gather", "ncclScatter": "scatter", "ncclSend": "send", "ncclRecv": "recv",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One NCCL call as NVTX saw it; ``size_bytes`` is count × element size (per rank)."""

    name: str
    start_ns: int
    end_ns: int
    comm: str | None = None
    size_bytes: int | None = None
    peer: int | None = None

    @property
    def collective(self) -> str:
        """The operation in torch's spelling."""
        return _COLLECTIVES[self.name]


@dataclass(frozen=True)
class Membership:
    """A rank's place in a communicator, from its initialisation."""

    comm: str
    ranks: int
    rank: int
    device: int | None


@dataclass
class _Timeline:
    calls: list[Call] = field(default_factory=list)
    groups: list[tuple[int, int, list[Call]]] = field(default_factory=list)

    def at(self, time_ns: int) -> list[Call]:
        """The calls that a launch at ``time_ns`` carries out."""
        index = bisect.bisect_right(self.calls, time_ns, key=lambda call: call.start_ns) - 1
        if index >= 0 and self.calls[index].end_ns >= time_ns:
            return [self.calls[index]]
        index = bisect.bisect_right(self.groups, time_ns, key=lambda group: group[0]) - 1
        if index >= 0 and self.groups[index][1] >= time_ns:
            return self.groups[index][2]
        return []


@dataclass
class NcclRanges:
    """All of an export: calls by thread (globalTid), memberships by process id."""

    threads: dict[int, _Timeline] = field(default_factory=dict)
    members: dict[int, list[Membership]] = field(default_factory=dict)

    def calls_at(self, global_tid: int, time_ns: int) -> list[Call]:
        """The NCCL calls that a launch on this thread at this time carries out."""
        timeline = self.threads.get(global_tid)
        return timeline.at(time_ns) if timeline is not None else []


def all_to_all_of(calls: list[Call], ranks: int | None) -> tuple[int, int] | None:
    """(bytes sent, bytes received) of a group that sends to and receives from every rank.

    That is how all-to-all is made of point-to-point calls (ncclAlltoAll exists only since 2.28).
    None when the peers do not cover the communicator or are not known.
    """
    sends = [call for call in calls if call.collective == "send"]
    receives = [call for call in calls if call.collective == "recv"]
    everyone = list(range(ranks or 0))
    if ranks is None or len(sends) + len(receives) != len(calls):
        return None
    if len({call.comm for call in calls}) != 1 or any(call.size_bytes is None for call in calls):
        return None
    for half in (sends, receives):
        if sorted(-1 if call.peer is None else call.peer for call in half) != everyone:
            return None
    return (
        sum(call.size_bytes or 0 for call in sends),
        sum(call.size_bytes or 0 for call in receives),
    )


def read_nccl_ranges(database: Database) -> NcclRanges:
    """Read the ranges whose text starts with ``nccl``."""
    out = NcclRanges()
    if not database.has("NVTX_EVENTS", "start", "end", "globalTid"):
        return out
    schemas = _schemas(database)
    pending: dict[int, list[Call]] = {}
    for start, end, text, global_tid, blob in _rows(database):
        if not isinstance(start, int) or not isinstance(global_tid, int):
            continue
        end = end if isinstance(end, int) else start
        payload = _payload(blob, schemas)
        if blob is not None and schemas and not payload:
            database.unusable["binaryData in NVTX_EVENTS"] += 1
        comm = f"{payload[_COMM]:#018x}" if _COMM in payload else None
        if text.startswith("ncclCommInit") or text.startswith("ncclCommSplit"):
            if comm is not None and 0 <= payload.get(_RANK, -1) < payload.get(_RANKS, 0) <= _MOST:
                member = Membership(comm, payload[_RANKS], payload[_RANK], payload.get(_DEVICE))
                out.members.setdefault((global_tid >> 24) & 0xFFFFFF, []).append(member)
            continue
        timeline = out.threads.setdefault(global_tid, _Timeline())
        if text in _COLLECTIVES:
            call = Call(text, start, end, comm, payload.get(_SIZE), payload.get(_PEER))
            timeline.calls.append(call)
            if global_tid in pending:
                pending[global_tid].append(call)
        elif text == "ncclGroupStart":
            pending.setdefault(global_tid, [])
        elif text == "ncclGroupEnd":
            timeline.groups.append((start, end, pending.pop(global_tid, [])))
    _outvote(out.members)
    return out


def _outvote(members: dict[int, list[Membership]]) -> None:
    """Leave out memberships that give a communicator another size than most of its ranks do."""
    sizes: dict[str, Counter[int]] = {}
    for own in members.values():
        for member in own:
            sizes.setdefault(member.comm, Counter())[member.ranks] += 1
    for own in members.values():
        own[:] = [m for m in own if 2 * sizes[m.comm][m.ranks] >= sizes[m.comm].total()]


def _rows(database: Database) -> Iterator[tuple[Any, Any, str, Any, Any]]:
    blob = database.column("NVTX_EVENTS", "binaryData")
    text, join = text_column(database)
    sql = (
        f"SELECT e.start, e.end, {text} AS name, e.globalTid, {blob} FROM NVTX_EVENTS e {join} "
        "WHERE name LIKE 'nccl%' ORDER BY e.start"
    )
    for start, end, name, global_tid, data in database.rows(sql):
        if isinstance(name, str):
            yield start, end, name, global_tid, data


def _schemas(database: Database) -> dict[tuple[int, int], list[tuple[str, int, int]]]:
    """(domain, schema) → [(field name, offset, NVTX type)] of the integer fields."""
    if not database.has("NVTX_PAYLOAD_SCHEMA_ENTRIES", *_ENTRY):
        return {}
    out: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    sql = f"SELECT {', '.join(_ENTRY)} FROM NVTX_PAYLOAD_SCHEMA_ENTRIES LIMIT 100000"
    for domain, schema, name, kind, offset in database.rows(sql):
        if not isinstance(kind or 0, int) or not isinstance(offset or 0, int):
            field = "offset" if isinstance(kind or 0, int) else "type"
            database.unusable[f"{field} in NVTX_PAYLOAD_SCHEMA_ENTRIES"] += 1
            continue
        fields = out.setdefault((domain, schema), [])
        entry = (str(name), int(offset or 0), int(kind or 0))
        if entry not in fields:
            fields.append(entry)
    return out


# Fixed widths of NVTX payload types (NVTX_PAYLOAD_ENTRY_TYPE_* in nvToolsExtPayload.h).
_INT, _UINT64, _SIZE_T = 5, 18, 22


def _payload(
    blob: Any, schemas: dict[tuple[int, int], list[tuple[str, int, int]]]
) -> dict[str, int]:
    if not isinstance(blob, (bytes, bytearray)) or len(blob) < _HEADER.size:
        return {}
    domain, schema, size, offset = _HEADER.unpack_from(blob)
    data = blob[offset : offset + size] if offset <= len(blob) else b""
    out: dict[str, int] = {}
    for name, place, kind in schemas.get((domain, schema), []):
        form = {_INT: "<i", _UINT64: "<Q", _SIZE_T: "<Q"}.get(kind)
        if form is not None and place >= 0 and place + struct.calcsize(form) <= len(data):
            out[name] = struct.unpack_from(form, data, place)[0]
    return out
