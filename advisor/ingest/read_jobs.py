"""Reads the recordings of several jobs into one store, and says of every file what became of it."""

import os
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.jobs import SeveralJobsError
from advisor.ingest.pipeline import forget, ingest, refuse_nothing
from advisor.ingest.source import Progress, shown
from advisor.ingest.unknown import NOT_READ
from advisor.store.notes import OTHER_FORMAT, READ_APART
from advisor.store.store import Store


def read_jobs(
    several: SeveralJobsError, store: Store, *, lean: bool = False, progress: Progress | None = None
) -> None:
    """Read every job of ``several`` as a run of its own; each says what it was told apart by.

    Files in folders of their own become runs too, and so does each job of files that are of
    several in their turn. What is not read at all has its row among the
    sources of the job whose folder holds it, else of the first. Raises AdvisorError where a job
    cannot be read.
    """
    left_out = dict(several.left_out)
    runs: dict[str, list[Path]] = {}
    apart: dict[str, list[Path]] = {}
    how: dict[str, Any] = {"found": several.found, "lean": lean, "progress": progress}
    for name, files in several.jobs.items():
        read, unread = _read(name, files, store, must=True, **how)
        runs |= read
        left_out |= unread
    for name, files in several.apart.items():
        read, unread = _read(name, files, store, must=False, **how)
        apart |= read
        left_out |= unread
    for name in runs:
        others = ", ".join(other for other in [*runs, *apart] if other != name)
        _note(store.con, name, f"read apart from {others}: {several.evidence}")
    for name in apart:
        _note(store.con, name, f"read apart from {', '.join(runs)}: a folder of its own")
    runs |= apart
    for path, reason in left_out.items():
        _leave_out(store.con, _owner(path, runs), path, reason)


def _read(
    name: str, files: list[Path], store: Store, *, must: bool, **how: Any
) -> tuple[dict[str, list[Path]], dict[Path, str]]:
    """(the runs that ``files`` became, why others of them are not read).

    Raises AdvisorError where they ``must`` be readable and are not.
    """
    try:
        ingest(files, store, run=name, **how)
        refuse_nothing(store, name)
    except SeveralJobsError as deeper:
        read: dict[str, list[Path]] = {}
        unread = dict(deeper.left_out)
        for inner, mine in (deeper.jobs | deeper.apart).items():
            needed = must and inner in deeper.jobs
            more, less = _read(f"{name}-{inner}", mine, store, must=needed, **how)
            read |= more
            unread |= less
        return read, unread
    except AdvisorError as error:
        if must:
            raise
        forget(store.con, name)
        return {}, dict.fromkeys(files, error.message)
    return {name: files}, {}


def _note(con: Any, run: str, note: str) -> None:
    con.execute(
        "UPDATE source SET note = concat_ws('; ', note, $note), "
        "codes = list_append(coalesce(codes, []), $code) WHERE run = $run AND source_id ="
        " (SELECT min(source_id) FROM source WHERE run = $run AND format <> 'unknown')",
        {"run": run, "note": note, "code": READ_APART},
    )


def _owner(path: Path, runs: dict[str, list[Path]]) -> str:
    """The run whose files are nearest to ``path``, by the folders they share; else the first."""
    here = path.absolute().parent

    def shared(name: str) -> int:
        folders = [file.absolute().parent for file in runs[name]]
        return max(len(Path(os.path.commonpath([here, folder])).parts) for folder in folders)

    return max(runs, key=shared)


def _leave_out(con: Any, run: str, path: Path, reason: str) -> None:
    con.execute(
        "INSERT INTO source BY NAME SELECT $run AS run, (SELECT coalesce(max(source_id), -1) + 1"
        " FROM source WHERE run = $run) AS source_id, $path AS path, 'unknown' AS format,"
        " $size AS bytes, 0 AS events_read, 0 AS events_dropped, '{}' AS drop_reasons,"
        " $note AS note, $codes AS codes",
        {
            "run": run,
            "path": shown(path),
            "size": path.stat().st_size if path.exists() else 0,
            "note": shown(reason),
            "codes": [OTHER_FORMAT] if reason == NOT_READ else None,
        },
    )
