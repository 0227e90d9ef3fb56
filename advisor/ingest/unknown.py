"""Why a file is nothing that is read, as far as its content tells, and what to do about it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pyarrow as pa

from advisor.ingest.source import HEAD_BYTES, Source

KNOWN = (
    "what is read: PyTorch profiler traces (.json, gzip or zstd), Nsight Systems exports (sqlite), "
    "NCCL logs, NCCL's XML dumps, nccl-tests output, NCCL Inspector JSON, flight-recorder dumps, "
    "op tables (Parquet): advisor diagnose --help"
)
NOT_READ = "not a format that is read"
"""Of a file in a folder that is no trace and looks whole: nothing to worry about."""
_AGAIN = "copy it again if it was cut in transfer; else record again and let the job end"
_KEYS_SHOWN = 5


@dataclass(frozen=True)
class Unknown:
    """What a file is that no reader takes. ``damaged``: it may have been of use once."""

    reason: str
    hint: str = KNOWN
    damaged: bool = False


def why_unknown(source: Source) -> Unknown:
    """What is wrong with a file that no reader takes, and what to do."""
    head = source.head
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1"):
        return _parquet(source)
    if head.startswith(b"SQLite format 3\x00"):
        return Unknown(
            "is a sqlite database without the tables of Nsight Systems",
            "make one: nsys export --type sqlite REPORT.nsys-rep",
        )
    if text.startswith(b"<"):
        return _xml(text)
    if text[:1] in (b"{", b"["):
        return _json(source, text)
    if not text and source.compression != "none":
        return _empty_container(source)
    if not text:
        hint = "the job was killed before it wrote, or the disk is full: record again"
        return Unknown("is blank", hint, damaged=True)
    return Unknown("is no trace or log that this tool knows")


def _empty_container(source: Source) -> Unknown:
    """A compressed file that gives nothing: damaged at its beginning, or nothing is in it."""
    stream, raw = source.open_raw()
    with stream:
        stream.read(1)
    reason = f"gives no data: {raw.damage}" if raw.damage else "is compressed, and empty inside"
    return Unknown(reason, _AGAIN, damaged=True)


def _parquet(source: Source) -> Unknown:
    import pyarrow.parquet as pq  # late: every start would wait for it

    try:
        names = pq.read_schema(source.path).names
    except (pa.ArrowException, OSError):
        reason = "is a Parquet file whose end, which describes it, is missing or damaged"
        return Unknown(reason, _AGAIN, damaged=True)
    return Unknown(
        f"is a Parquet file, but no op table: its columns are {_some(names)}",
        "an op table has the columns rank, dp_rank, stage, step, optype, start_ts, duration",
    )


def _xml(text: bytes) -> Unknown:
    if re.search(rb"<!(?:DOCTYPE|ENTITY)", text):
        return Unknown(
            "is XML with a document type or entities, which NCCL's dumps never have: refused",
            "dump it again: NCCL_TOPO_DUMP_FILE=topo.xml",
        )
    root = re.search(rb"<([A-Za-z_][\w.\-]{0,80})", text)
    name = root[1].decode(errors="replace") if root else "?"
    if name in ("system", "graphs"):
        reason = "is an XML dump of NCCL that breaks off before its first device or graph"
        return Unknown(reason, _AGAIN, damaged=True)
    return Unknown(
        f"is XML, but no dump of NCCL: its outermost element is <{name}>",
        "make one: NCCL_TOPO_DUMP_FILE=topo.xml or NCCL_GRAPH_DUMP_FILE=graph.xml",
    )


def _json(source: Source, text: bytes) -> Unknown:
    """A large file is judged by its head alone, and cannot be told to be whole."""
    whole = len(source.head) < HEAD_BYTES
    try:
        found = json.loads(text) if whole else None
    except (ValueError, RecursionError) as error:
        place = getattr(error, "pos", None)
        at = f" (at byte {place:,})" if place is not None else ""
        reason = f"is JSON that is cut or damaged{at}, of no format that can be told"
        return Unknown(reason, _AGAIN, damaged=True)
    if isinstance(found, dict):
        keys = f": its keys are {_some(list(found))}" if found else ": it is empty"
        return Unknown(f"is JSON, but of no format that is read{keys}")
    return Unknown("is JSON, but of no format that is read")


def _some(names: list[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:_KEYS_SHOWN])
    return shown + (", ..." if len(names) > _KEYS_SHOWN else "")
