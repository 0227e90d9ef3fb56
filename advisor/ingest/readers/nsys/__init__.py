"""Nsight Systems' sqlite exports → ``event``, ``rank``.

``open`` opens an untrusted database safely, ``processes`` finds the ranks in it, ``nccl_ranges``
ties NCCL's NVTX ranges (and their payloads) to kernels, ``load`` writes the events.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.readers.nsys.load import load
from advisor.ingest.readers.nsys.nccl_ranges import read_nccl_ranges
from advisor.ingest.readers.nsys.open import Database, opened
from advisor.ingest.readers.nsys.pages import MAGIC, Losses, Pages
from advisor.ingest.readers.nsys.processes import (
    Process,
    assign_ranks,
    find_processes,
    pid_column,
    pid_of,
)
from advisor.ingest.source import ReadContext, Source
from advisor.store.notes import NOT_RECORDED, PARTLY_READ

FORMAT = "nsys"
SUMMARY = (
    "Nsight Systems sqlite exports (nsys export --type sqlite): kernels, copies, API calls, NVTX"
)
PRIORITY = 70  # after Kineto traces: a rank that those already tell is not read twice

_TABLES = ("CUPTI_ACTIVITY_KIND", "META_DATA_EXPORT", "ENUM_NSYS_EVENT_TYPE", "NVTX_EVENTS")
_SCHEMA_PAGE = 1
# Of a compressed export so much is unpacked to look for its schema, which may lie anywhere.
_LOOKED_AT = 512 * 1024 * 1024
_PIECE = 4 * 1024 * 1024


def detect(source: Source) -> bool:
    """A sqlite database whose schema, wherever it lies in the file, has Nsight Systems' tables."""
    if not source.head.startswith(MAGIC):
        return False
    marks = tuple(table.encode() for table in _TABLES)
    if any(mark in source.head for mark in marks):
        return True
    return _in_schema(source) if source.compression == "none" else _in_stream(source, marks)


def _in_schema(source: Source) -> bool:
    try:
        with Pages(source.path) as pages:
            return any(
                str(values[1]).startswith(_TABLES)
                for _, values in pages.rows(_SCHEMA_PAGE, Losses())
                if len(values) > 1
            )
    except (OSError, ValueError):
        return False


def _in_stream(source: Source, marks: tuple[bytes, ...]) -> bool:
    longest, kept, total = max(map(len, marks)), b"", 0
    with source.open() as stream:
        while total < _LOOKED_AT and (piece := stream.read(_PIECE)):
            text = kept + piece
            if any(mark in text for mark in marks):
                return True
            kept, total = text[-longest:], total + len(piece)
    return False


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Read all exports of a run; ranks are counted on over the files that do not name theirs."""
    taken = {
        rank
        for (rank,) in context.con.execute(
            "SELECT rank FROM rank WHERE run = ?", [context.run]
        ).fetchall()
    }
    mine: set[int] = set()
    for source in sources:
        try:
            with opened(source) as database:
                nccl = read_nccl_ranges(database)
                processes = find_processes(database, source.path, nccl)
                notes = assign_ranks(processes, mine)
                twice = sorted({p.rank for p in processes if p.rank in taken})
                fresh = [p for p in processes if p.rank not in taken]
                outcome = load(database, fresh, nccl, context)
                gaps = _gaps(database, processes) if processes else []
        except AdvisorError as error:
            context.report(
                source, FORMAT, events_dropped=1, drop_reasons={"refused": 1}, note=str(error)
            )
            continue
        notes += gaps
        if twice:
            notes.append(f"ranks {twice} have a trace already: their events here were not read")
        if twice and not fresh:
            context.report(source, "unknown", note="; ".join(notes))
            continue
        if not processes:
            notes.append("holds no GPU activity (was nsys run with --trace=cuda,nvtx?)")
        partly = bool(twice or database.notes or database.dropped)
        codes = [PARTLY_READ] * partly + [NOT_RECORDED] * bool(gaps)
        notes = database.notes + notes
        ranks = {process.rank for process in processes}
        context.report(
            source,
            FORMAT,
            rank=next(iter(ranks)) if len(ranks) == 1 else None,
            events_read=outcome.read,
            events_dropped=sum(database.dropped.values()),
            drop_reasons=database.dropped,
            note="; ".join(notes) or None,
            codes=codes,
        )


def _gaps(database: Database, processes: Sequence[Process]) -> list[str]:
    """What the export leaves out without which communication cannot be told."""
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    if not database.has(kernels, "start", "end", "deviceId", "streamId"):
        how = "nsys profile --trace=cuda,nvtx, and export all tables"
        return [f"kernels are not recorded: the table {kernels} is missing ({how})"]
    seen = {
        (pid_of(global_pid), device)
        for global_pid, device in database.rows(
            f"SELECT {pid_column(database, kernels)}, deviceId FROM {kernels} GROUP BY 1, 2"
        )
        if isinstance(global_pid, int)
    }
    without = [str(p.rank) for p in processes if (p.pid, p.device) not in seen]
    found = []
    if without:
        found.append(f"kernels of rank {', '.join(without)} are not recorded")
    if not database.has("StringIds", "id", "value"):
        found.append(
            "names of kernels are not recorded, so that communication cannot be told from compute: "
            "the table StringIds is missing (export all tables)"
        )
    return found
