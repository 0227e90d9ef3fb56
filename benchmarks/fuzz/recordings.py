"""Recordings whose culprit is known, as records by rank that can be damaged and written again."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from advisor.ingest.readers.flight_recorder.unpickle import unpickle
from benchmarks.fuzz import labelled
from benchmarks.gpulab.make import CASE_FILE

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared" / "data"

Parts = dict[str, list[Any]]


@dataclass(frozen=True)
class Recording:
    """Records by rank; ``write`` puts them into files of a folder as the format wants them."""

    name: str
    parts: Parts
    write: Callable[[Parts, Path], None]
    one_file_each: bool = False
    """Whether each rank is a file, of the part's name."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Rank of a part, where its file says it."""
    causes: frozenset[str] = frozenset()
    """The rules that say what was done to the job, where it was simulated."""

    def called(self, part: str) -> str:
        """A part in words: its rank where that is known."""
        return f"rank {self.ranks[part]}" if part in self.ranks else part


def flight_recorder(folder: Path) -> Recording:
    """Dumps of PyTorch's flight recorder: a rank is a file, a record is an entry."""
    dumps = {
        path.name: unpickle(path.read_bytes(), where=path.name)[0]
        for path in sorted(folder.iterdir())
        if path.name.startswith(("_dump_", "fr_trace_"))
    }

    def write(parts: Parts, place: Path) -> None:
        for name, entries in parts.items():
            content: Any = {**dumps[name], "entries": entries}
            (place / name).write_bytes(pickle.dumps(content, protocol=4))

    parts = {name: list(dump["entries"]) for name, dump in dumps.items()}  # type: ignore[call-overload]
    return Recording(f"flight/{folder.name}", parts, write, one_file_each=True)


def traces(folder: Path, name: str = "") -> Recording:
    """Kineto traces: a rank is a file, a record is an event."""
    whole = {path.name.removesuffix(".gz"): _json(path) for path in sorted(folder.glob("*.json*"))}
    whole = {name: trace for name, trace in whole.items() if "traceEvents" in trace}

    def write(parts: Parts, place: Path) -> None:
        for file, events in parts.items():
            (place / file).write_text(json.dumps({**whole[file], "traceEvents": events}))

    parts = {name: trace["traceEvents"] for name, trace in whole.items()}
    ranks = {name: int(trace["distributedInfo"]["rank"]) for name, trace in whole.items()
             if "distributedInfo" in trace}  # fmt: skip
    truth = folder.parent / CASE_FILE
    causes = frozenset(_json(truth).get("rules", ()) if truth.exists() else ())
    return Recording(
        name or f"trace/{folder.name}", parts, write, one_file_each=True, ranks=ranks, causes=causes
    )


def op_table(file: Path) -> Recording:
    """A Megatron op table: a rank is its rows of the one file, a record is a row."""
    table = pq.read_table(file)
    parts: Parts = {}
    for row in table.to_pylist():
        parts.setdefault(str(row["rank"]), []).append(row)

    def write(parts: Parts, place: Path) -> None:
        rows = [row for rows in parts.values() for row in rows]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), place / file.name)

    return Recording(f"op-table/{file.stem}", parts, write)


def text(file: Path) -> Recording:
    """A log or the output of a benchmark: a rank is the lines of a process, a record is a line."""
    lines = file.read_text(errors="replace").splitlines(keepends=True)
    parts: Parts = {}
    for number, line in enumerate(lines):
        process = line.split()[0] if " NCCL " in line else ""
        parts.setdefault(process, []).append((number, line))

    def write(parts: Parts, place: Path) -> None:
        kept = (item for lines in parts.values() for item in lines)
        ordered = kept if _is_shuffled(parts) else sorted(kept, key=lambda item: item[0])
        (place / file.name).write_text("".join(line for _, line in ordered))

    return Recording(f"text/{file.parent.name}/{file.name}", parts, write)


def _is_shuffled(parts: Parts) -> bool:
    return any(lines != sorted(lines, key=lambda item: item[0]) for lines in parts.values())


def _json(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    loaded: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return loaded


def known(lab: Path | None = None) -> dict[str, Callable[[], Recording]]:
    """Every labelled recording that is here, by name; read when it is asked for.

    ``lab``: a folder that ``benchmarks.gpulab make`` or ``benchmarks.lab`` filled; its recordings
    come first.
    """
    found: dict[str, Callable[[], Recording]] = {}
    for folder in sorted(lab.glob("*/traces")) if lab else ():
        name = f"lab/{folder.parent.name}"
        found[name] = lambda folder=folder, name=name: traces(folder, name)
    dumps = [FIXTURES / "flight-gloo-desync", SHARED / "real2" / "fr_lock_gil_2nd"]
    for folder in [*dumps, *sorted((SHARED / "flight_recorder").glob("*"))]:
        if folder.is_dir():
            found[f"flight/{folder.name}"] = lambda folder=folder: flight_recorder(folder)
    for folder in [*sorted(FIXTURES.iterdir()), SHARED / "dlrm_8xV100"]:
        if any(folder.glob("*.json.gz")):
            found[f"trace/{folder.name}"] = lambda folder=folder: traces(folder)
    for file in sorted(SHARED.glob("straggler_op_table/*.parquet")):
        found[f"op-table/{file.stem}"] = lambda file=file: op_table(file)
    found["nsys/late-rank"] = lambda: Recording(
        "nsys/late-rank", labelled.nsys_rows(), labelled.write_nsys
    )
    found["inspector/late-rank"] = lambda: Recording(
        "inspector/late-rank", labelled.inspector_lines(), labelled.write_inspector
    )
    for file in [*sorted(FIXTURES.glob("nccl-logs/*.log")), *sorted(SHARED.glob("nccl_tests/*"))]:
        found[f"text/{file.parent.name}/{file.name}"] = lambda file=file: text(file)
    return found
