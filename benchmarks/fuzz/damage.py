"""Damages recordings whose culprit is known and looks who is accused then.

    python -m benchmarks.fuzz.damage --inputs 400 --seed 1 [--recording flight/gpu_error_2nd]

Each rank and each stretch of records of a real recording is dropped, cut, repeated or shuffled.
The accusation stays, or becomes "cannot tell"; nobody is accused whom the whole recording does
not accuse. Prints the damaged recordings, how often the accusation stayed and how often it went,
and every new accusation with how to make it again; exits 1 where there is one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from advisor.errors import AdvisorError
from advisor.findings import FindingsReport, Severity
from advisor.ingest.readers.flight_recorder.unpickle import unpickle
from benchmarks.fuzz import labelled

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared" / "data"

Parts = dict[str, list[Any]]
Accused = frozenset[tuple[str, str]]
"""(rule, whom): a rank, host or link that a finding names, or '' where it names nobody."""


@dataclass(frozen=True)
class Recording:
    """Records by rank; ``write`` puts them into files of a folder as the format wants them."""

    name: str
    parts: Parts
    write: Callable[[Parts, Path], None]
    paths: str = "*"
    """What is diagnosed of the folder that ``write`` fills."""


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
    return Recording(f"flight/{folder.name}", parts, write)


def traces(folder: Path) -> Recording:
    """Kineto traces: a rank is a file, a record is an event."""
    whole = {path.name.removesuffix(".gz"): _json(path) for path in sorted(folder.glob("*.json*"))}
    whole = {name: trace for name, trace in whole.items() if "traceEvents" in trace}

    def write(parts: Parts, place: Path) -> None:
        for name, events in parts.items():
            (place / name).write_text(json.dumps({**whole[name], "traceEvents": events}))

    parts = {name: trace["traceEvents"] for name, trace in whole.items()}
    return Recording(f"trace/{folder.name}", parts, write)


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


def known() -> dict[str, Callable[[], Recording]]:
    """Every labelled recording that is here, by name; read when it is asked for."""
    found: dict[str, Callable[[], Recording]] = {}
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


Damage = Callable[[Parts, random.Random], str]


def _drop_rank(parts: Parts, rng: random.Random) -> str:
    gone = rng.sample(sorted(parts), k=min(len(parts) - 1, rng.choice((1, 1, 2))))
    for name in gone:
        del parts[name]
    return f"without {', '.join(gone)}"


def _stretch(parts: Parts, rng: random.Random) -> tuple[str, int, int]:
    name = rng.choice(sorted(name for name, records in parts.items() if records))
    count = len(parts[name])
    size = min(count, rng.choice((1, 1, 2, 5, max(1, count // 10), max(1, count // 3))))
    start = rng.choice((0, count - size, rng.randrange(count - size + 1)))
    return name, start, start + size


def _drop_records(parts: Parts, rng: random.Random) -> str:
    name, start, end = _stretch(parts, rng)
    parts[name] = parts[name][:start] + parts[name][end:]
    return f"{name} without records {start} to {end - 1}"


def _repeat_records(parts: Parts, rng: random.Random) -> str:
    name, start, end = _stretch(parts, rng)
    at = rng.choice((end, len(parts[name])))
    parts[name] = parts[name][:at] + parts[name][start:end] + parts[name][at:]
    return f"{name} with records {start} to {end - 1} again at {at}"


def _thin_out(parts: Parts, rng: random.Random) -> str:
    share = rng.choice((0.01, 0.05, 0.2))
    name = rng.choice([*sorted(parts), ""])
    for one in [name] if name else sorted(parts):
        parts[one] = [record for record in parts[one] if rng.random() >= share]
    return f"{name or 'all'} without each record by a chance of {share:g}"


def _shuffle(parts: Parts, rng: random.Random) -> str:
    name = rng.choice(sorted(parts))
    parts[name] = rng.sample(parts[name], k=len(parts[name]))
    return f"{name} shuffled"


def _cut(place: Path, rng: random.Random) -> str:
    """Cut a written file at any byte."""
    path = rng.choice(sorted(place.iterdir()))
    data = path.read_bytes()
    at = rng.randrange(len(data))
    path.write_bytes(data[:at])
    return f"{path.name} cut at byte {at}"


def _garble(place: Path, rng: random.Random) -> str:
    """Overwrite, remove or repeat up to 64 bytes of a written file."""
    path = rng.choice(sorted(place.iterdir()))
    data = path.read_bytes()
    at, size = rng.randrange(len(data)), rng.choice((1, 8, 64))
    what = rng.choice((b"", rng.randbytes(size), data[at : at + size] * 2))
    path.write_bytes(data[:at] + what + data[at + size :])
    return f"{path.name}: {size} bytes at {at} are now {what!r}"


OF_RECORDS: tuple[Damage, ...] = (
    *(_drop_rank, _drop_records, _repeat_records, _thin_out, _shuffle),
)
OF_FILES: tuple[Callable[[Path, random.Random], str], ...] = (_cut, _garble)


def accused(place: Path) -> tuple[Accused, Accused] | None:
    """Whom the diagnosis of a folder's files accuses, and whom it names at all (severity info too).

    None where it refuses the files.
    """
    import advisor

    try:
        with advisor.load(*sorted(place.iterdir())) as run:
            report = run.report
    except AdvisorError:
        return None
    sure = frozenset(_accusations(report, hints=False))
    return sure, frozenset(_accusations(report, hints=True))


def _accusations(report: FindingsReport, *, hints: bool) -> Iterator[tuple[str, str]]:
    read = {run.run: run.ranks_read for run in report.runs}
    for finding in report.findings:
        if finding.severity == Severity.INFO and not hints:
            continue
        # Who names all ranks accuses none of them.
        ranks = finding.ranks if len(finding.ranks) < max(2, read[finding.run]) else []
        # Beside ranks a host only says where they are.
        hosts = [] if ranks else finding.hosts
        named = [*(f"rank {rank}" for rank in ranks), *hosts, *finding.links]
        for whom in named or [""]:
            yield finding.rule, whom


@cache
def of_the_whole(name: str) -> tuple[Recording, Accused, frozenset[str]]:
    """A recording, whom it accuses undamaged, and whom it names at all."""
    recording = known()[name]()
    with tempfile.TemporaryDirectory() as folder:
        recording.write(recording.parts, Path(folder))
        both = accused(Path(folder))
    assert both is not None, name
    found, named = both
    return recording, found, frozenset(whom for _, whom in named)


def damaged(recording: Recording, place: Path, seed: int, number: int) -> str:
    """Write a damaged copy into a folder; says what was done to it."""
    rng = random.Random(f"{recording.name}/{seed}/{number}")
    copy = replace(recording, parts={name: list(part) for name, part in recording.parts.items()})
    kind = rng.randrange(len(OF_RECORDS) + len(OF_FILES))
    if kind < len(OF_RECORDS):
        said = OF_RECORDS[kind](copy.parts, rng)
        copy.write(copy.parts, place)
        return said
    copy.write(copy.parts, place)
    return OF_FILES[kind - len(OF_RECORDS)](place, rng)


@dataclass(frozen=True)
class Result:
    """What became of one damaged recording: ``new`` are accusations that it alone makes."""

    kind: str
    said: str
    new: tuple[tuple[str, str], ...] = ()


def judge(name: str, seed: int, number: int) -> Result:
    """Damage a recording and compare whom it accuses."""
    recording, before, named = of_the_whole(name)
    with tempfile.TemporaryDirectory() as folder:
        said = damaged(recording, Path(folder), seed, number)
        try:
            both = accused(Path(folder))
        except Exception:  # noqa: BLE001 - whatever it is, it is the finding
            return Result("internal error", said + "\n" + traceback.format_exc())
    if both is None:
        return Result("refused", said)
    after, _ = both
    new = tuple(sorted(after - before))
    if any(one not in {*named, ""} for _, one in new):
        return Result("NEW ACCUSATION", said, new)
    if after == before:
        return Result("stayed", said)
    return Result("another cause" if new else "fewer", said, new)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20, help="of each recording")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recording", action="append", metavar="NAME or its beginning")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    arguments = parser.parse_args()
    wanted = tuple(arguments.recording or [""])
    names = [name for name in known() if name.startswith(wanted)]
    bad = 0
    for name in names:
        begun = time.process_time()
        results = [
            judge(name, arguments.seed, arguments.first + number)
            for number in range(arguments.inputs)
        ]
        counted = Counter(result.kind for result in results)
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
        print(f"{name}: {shown} ({time.process_time() - begun:.0f} CPU s)", flush=True)
        for number, result in enumerate(results, arguments.first):
            if result.kind in ("NEW ACCUSATION", "internal error"):
                bad += 1
                print(f"  input {number}: {result.said}\n    {result.new}")
    print(f"{len(names) * arguments.inputs} damaged recordings, {bad} that accuse somebody else")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
