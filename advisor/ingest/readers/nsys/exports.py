"""Reads the Nsight Systems exports of a run, and tells what each of them leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.readers.nsys.load import load
from advisor.ingest.readers.nsys.nccl_ranges import read_nccl_ranges
from advisor.ingest.readers.nsys.open import Database, opened
from advisor.ingest.readers.nsys.processes import (
    Process,
    assign_ranks,
    find_processes,
    pid_column,
    pid_of,
)
from advisor.ingest.source import ReadContext, Source
from advisor.store.notes import NOT_RECORDED, PARTLY_READ


def read_exports(sources: Sequence[Source], context: ReadContext, format_name: str) -> None:
    """Read all exports of a run; ranks are counted on over the files that do not name theirs."""
    taken = context.known("rank")
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
            context.refuse(source, format_name, str(error))
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
        notes = database.notes + outcome.notes + notes
        ranks = {process.rank for process in processes}
        context.report(
            source,
            format_name,
            rank=next(iter(ranks)) if len(ranks) == 1 else None,
            events_read=outcome.read,
            drop_reasons=database.dropped,
            note="; ".join(notes),
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
