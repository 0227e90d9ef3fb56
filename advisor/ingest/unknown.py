"""Why a file is nothing that is read, as far as its content tells, and what to do about it."""

import json
import re
import shlex
from typing import NamedTuple

import pyarrow as pa

from advisor.ingest.source import HEAD_BYTES, Source
from advisor.vocabulary.numbers import json_integer

KNOWN = (
    "what is read: PyTorch profiler traces (.json, gzip or zstd), Nsight Systems exports (sqlite), "
    "NCCL logs, NCCL's XML dumps, nccl-tests output, NCCL Inspector JSON, flight-recorder dumps, "
    "op tables (Parquet): advisor diagnose --help. Pass what one of them wrote, or record the job: "
    "torchrun --nproc-per-node N -m advisor.record train.py"
)
NOT_READ = "not a format that is read"
"""Of a file in a folder that is no trace and looks whole: nothing to worry about."""
_AGAIN = "copy it again if it was cut in transfer; else record again and let the job end"
_KEYS_SHOWN = 5
_SQLITE, _SQLITE_HEADER_BYTES = b"SQLite format 3\x00", 100
_LFS = b"version https://git-lfs.github.com/spec/"  # github.com/git-lfs/git-lfs, docs/spec.md
_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_WIDE_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_WIDE_BRACKETS = {
    b"{\x00": "UTF-16LE",
    b"[\x00": "UTF-16LE",
    b"\x00{": "UTF-16BE",
    b"\x00[": "UTF-16BE",
}
# What others write, by how it begins.
_FOREIGN = (
    # pytorch/pytorch torch/csrc/profiler/standalone/execution_trace_observer.cpp; mlcommons/chakra
    (rb'^\{\s*"schema":\s*"[\d.]+-chakra', "is an execution trace (Chakra), which has no times",
     "pass the profiler's trace of the same steps (export_chrome_trace)"),
    (rb"speedscope\.app/file-format-schema", "is a speedscope profile of Python's stacks",
     "record the steps with PyTorch's profiler or Nsight Systems"),
    # ROCm/rocprofiler-sdk source/lib/output/generateJSON.cpp
    (rb'^\{\s*"rocprofiler-sdk-tool"', "is rocprofv3's JSON",
     "record the steps with PyTorch's profiler, which names their operators too"),
    (rb"^==\d+== NVPROF", "is nvprof's text", "record with Nsight Systems, nvprof's successor"),
    # pytorch/pytorch torch/autograd/profiler_util.py
    (rb"\bName +Self CPU %", "is a printed table of torch's profiler: sums, without times",
     "pass the trace of every rank: prof.export_chrome_trace(f'rank{rank}.json')"),
    # pytorch/pytorch torch/profiler/_memory_profiler.py: microseconds, then bytes by category
    (rb"^\[\[\d{15,17}, \d{15,17}, ", "is torch's memory timeline, which has no events",
     "pass the trace of the same steps: prof.export_chrome_trace('rank0.json')"),
    # deepspeedai/DeepSpeed deepspeed/utils/comms_logging.py
    (rb"^Comm\. Op +Message Size +Count", "is DeepSpeed's summary of its calls, without times",
     "record all ranks: advisor record -- deepspeed train.py"),
    # NVIDIA/nccl plugins/profiler/example/print_event.cc
    (rb'"cat": "(?:GROUP|COLL|P2P)(?:_API)?", "ph": "b"',
     "is NCCL's example profiler's: when its host enqueued calls, not when they ran",
     "record with its Inspector: NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so "
     "NCCL_INSPECTOR_ENABLE=1 NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500"),
    (rb"^\x80[\x02-\x05]", "is a Python pickle (a memory snapshot?), which is never loaded",
     "for torch's flight recorder pass the dumps of all ranks; a memory snapshot has no times"),
)  # fmt: skip
# "[W1122 10:16:08 …", "[rank0]: …", "[2026-11-22 …": a line of a log, not a list.
_LOG_LINE = re.compile(rb"\[(?!(?:true|false|null|NaN|Infinity)\b)(?:[A-Za-z_]|\d+[-:/])")
# A log may begin with Python's «<frozen importlib._bootstrap>:1297: FutureWarning».
_XML = re.compile(rb"<(?:[?!]|[A-Za-z_][\w.:\-]*(?:\s*/?>|\s+[\w.:\-]+\s*=|\s*\Z|\s+[\w.:\-]+\Z))")


class Unknown(NamedTuple):
    """What a file is that no reader takes. ``damaged``: it may have been of use once."""

    reason: str
    hint: str = KNOWN
    damaged: bool = False


NO_SIGN = Unknown("is no trace or log that this tool knows")
"""Text or bytes of nobody's form."""


def why_unknown(source: Source) -> Unknown:
    """What is wrong with a file that no reader takes, and what to do."""
    head = source.head
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(_LFS):
        folder = shlex.quote(str(source.path.parent))
        hint = f"fetch the files: git -C {folder} lfs pull"
        return Unknown("is a Git LFS pointer: the file itself was not fetched", hint, damaged=True)
    if head.startswith(b"PAR1"):
        return _parquet(source)
    if head.startswith(_SQLITE):
        return _sqlite(source)
    if source.compression != "none" and head.startswith((_GZIP, _ZSTD)):
        tool = "gunzip -c" if source.compression == "gzip" else "zstd -dc"
        ending = "gz" if head.startswith(_GZIP) else "zst"
        hint = f"take one layer off: {tool} < {shlex.quote(str(source.path))} > once.{ending}"
        return Unknown("is compressed twice", hint, damaged=True)
    if wide := _wide(head):
        hint = f"convert it: iconv -f {wide} -t UTF-8 {shlex.quote(str(source.path))} > trace.json"
        return Unknown(f"is text in {wide}; only UTF-8 is read", hint, damaged=True)
    if _XML.match(text):
        return _xml(text)
    if found := foreign(text):
        return found
    if text[:1] in (b"{", b"[") and not _LOG_LINE.match(text):
        return _json(source, text)
    if not text and source.compression != "none":
        return _empty_container(source)
    if not text:
        hint = "the job was killed before it wrote, or the disk is full: record again"
        return Unknown("is blank", hint, damaged=True)
    return NO_SIGN


def foreign(text: bytes) -> Unknown | None:
    """What another tool wrote, by how it begins, and what to record in its place."""
    for begins, reason, hint in _FOREIGN:
        if re.search(begins, text[:4096]):
            return Unknown(reason, hint)
    return None


def _empty_container(source: Source) -> Unknown:
    """A compressed file that gives nothing: damaged at its beginning, or nothing is in it."""
    stream, raw = source.open_raw()
    with stream:
        stream.read(1)
    reason = f"gives no data: {raw.damage}" if raw.damage else "is compressed, and empty inside"
    return Unknown(reason, _AGAIN, damaged=True)


def _sqlite(source: Source) -> Unknown:
    """A database that is shorter than its header says was cut, and may have held the tables."""
    head = source.head
    pages = int.from_bytes(head[28:32], "big")
    page_bytes = int.from_bytes(head[16:18], "big")
    counted = head[24:28] == head[92:96]  # else an old library wrote it, and left the count
    expected = pages * (65536 if page_bytes == 1 else page_bytes) if counted else 0
    expected = max(expected, _SQLITE_HEADER_BYTES)
    size = source.size if source.compression == "none" else _unpacked_bytes(source)
    if size < expected:
        told = f"{size:,} of {expected:,} bytes are there"
        reason = f"is a sqlite database that is cut ({told}), before any table of Nsight Systems"
        return Unknown(reason, _AGAIN, damaged=True)
    return Unknown(
        "is a sqlite database without the tables of Nsight Systems",
        "make one: nsys export --type sqlite REPORT.nsys-rep",
    )


def _unpacked_bytes(source: Source) -> int:
    total = 0
    with source.open() as stream:
        while data := stream.read(HEAD_BYTES):
            total += len(data)
    return total


def _parquet(source: Source) -> Unknown:
    import pyarrow.parquet as pq  # late: every start would wait for it

    try:
        with source.path.open("rb") as file:
            names = pq.read_schema(file).names
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
    if (lines := _lines_of_objects(source, text, whole=whole)) is not None:
        return lines
    try:
        found = json.loads(text, parse_int=json_integer) if whole else None
    except (ValueError, RecursionError) as error:
        place = getattr(error, "pos", None)
        at = f" (at byte {place:,})" if place is not None else ""
        reason = f"is JSON that is cut or damaged{at}, of no format that can be told"
        return Unknown(reason, _AGAIN, damaged=True)
    if isinstance(found, dict):
        keys = f": its keys are {_some(list(found))}" if found else ": it is empty"
        return Unknown(f"is JSON, but of no format that is read{keys}")
    return Unknown("is JSON, but of no format that is read")


def _wide(head: bytes) -> str | None:
    """The encoding of text that takes two or four bytes a character."""
    for mark, name in _WIDE_MARKS.items():
        if head.startswith(mark):
            return name
    return _WIDE_BRACKETS.get(head[:2])


def _lines_of_objects(source: Source, text: bytes, *, whole: bool) -> Unknown | None:
    """What a file is with a JSON object in every line (NDJSON), judged by the first two."""
    lines = text.split(b"\n", 2)
    if len(lines) < (2 if whole else 3) or not lines[1].strip():
        return None
    try:
        first, second = (json.loads(line, parse_int=json_integer) for line in lines[:2])
    except (ValueError, RecursionError):
        return None
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return None
    if "ph" in first or "ph" in second:
        return Unknown(
            "has a trace event in every line (NDJSON), and no list around them",
            f"make a list of them: jq -s . {shlex.quote(str(source.path))} > trace.json",
            damaged=True,
        )
    return Unknown(
        f"is JSON line by line (NDJSON), of no format: its keys are {_some(list(first))}"
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:_KEYS_SHOWN])
    return shown + (", ..." if len(names) > _KEYS_SHOWN else "")
