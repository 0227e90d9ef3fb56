"""Paths in, base tables out: every file goes to the reader that knows its content."""

import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from advisor import __version__
from advisor.errors import AdvisorError
from advisor.ingest.broken import ReaderFailedError, find_broken
from advisor.ingest.detect import detect, in_order
from advisor.ingest.jobs import SeveralJobsError, refuse_several, with_neighbours
from advisor.ingest.join import join_sources
from advisor.ingest.own_files import is_own, own_folders
from advisor.ingest.paths import Found, expand
from advisor.ingest.source import Progress, ReadContext, Reader, Source
from advisor.ingest.trial_end import refuse_failed_trial
from advisor.ingest.unknown import KNOWN, NOT_READ, why_unknown
from advisor.store.batches import INGESTED, has_rows
from advisor.store.notes import OTHER_FORMAT
from advisor.store.running import was_stopped
from advisor.store.store import Store, is_store
from advisor.store.target import database_error, database_writing


def ingest(
    paths: Iterable[str | Path],
    store: Store,
    *,
    run: str = "run",
    lean: bool = False,
    leave_out: Collection[Path] = (),
    found: Collection[Path] = (),
    progress: Progress | None = None,
) -> None:
    """Read files, folders and patterns of one run into ``store``.

    ``lean`` keeps only the events that findings rest on; ``leave_out`` are files that are not read,
    though they are among ``paths``; ``found`` those that a folder held, and that need not be
    readable. Raises :class:`AdvisorError`
    for input that cannot be used, :class:`SeveralJobsError` for files of several jobs; the store
    then holds nothing of this run.
    """
    con = store.con
    paths = list(paths)
    for path in paths:
        if is_store(Path(path)):
            raise AdvisorError(
                "is a store, not a trace",
                where=str(path),
                hint="diagnose it by itself, or read its traces again with the other files",
            )
    if con.execute("SELECT 1 FROM run WHERE run = ?", [run]).fetchall():
        raise AdvisorError(
            f"the store already holds a run '{run}'", hint="choose another --run name"
        )
    context = ReadContext(store, run, lean=lean, progress=progress)
    chosen, skipped = _choose(
        [
            one._replace(named=one.named and one.path not in found)
            for one in expand(paths, leave_out)
        ]
    )
    store.use_threads_sparingly(sum(source.size for source, _ in chosen))
    try:
        refuse_several(chosen)
        with database_writing(store.path):
            read_sources(context, chosen, skipped)
    except SeveralJobsError as several:
        raise with_neighbours(several, chosen, skipped, logs="nccl-log") from several


def read_sources(
    context: ReadContext, chosen: list[tuple[Source, Reader]], skipped: list[tuple[Source, str]]
) -> None:
    """Fill the base tables from ``chosen``; ``skipped`` only get their row in ``source``.

    A file of a folder on which its reader fails unexpectedly is left out, and its row says so.
    Raises :class:`AdvisorError` for input that cannot be used; the store then holds nothing of
    this run.
    """
    begun = has_rows(context.con, "rank", context.run)  # read elsewhere, and here already
    try:
        _read_all(context, chosen, skipped)
        return
    except ReaderFailedError as error:
        with database_writing(context.store.path):
            _raise_if_full(error)
        forget(context.con, context.run)
        failed = error
    except BaseException:
        forget(context.con, context.run)
        raise
    cause = failed.__cause__ or failed
    mine = [source for source, reader in chosen if reader is failed.reader]
    # What stood in the store before is gone, a file that was named has to be read, and after
    # Ctrl-C nothing is read once more.
    hopeless = begun or isinstance(cause, MemoryError) or was_stopped(cause)
    broken = [] if hopeless else find_broken(failed.reader, mine)
    if not broken or len(broken) == len(chosen) or any(source.named for source, _ in broken):
        raise cause
    out = {source.source_id for source, _ in broken}
    left = [(source, reader) for source, reader in chosen if source.source_id not in out]
    read_sources(context, left, [*skipped, *broken])


def _raise_if_full(failed: ReaderFailedError) -> None:
    """Where the database could not write, nothing more can be done with it."""
    cause = failed.__cause__
    if isinstance(cause, duckdb.Error) and database_error(cause, None) is not None:
        raise cause


def _read_all(
    context: ReadContext, chosen: list[tuple[Source, Reader]], skipped: list[tuple[Source, str]]
) -> None:
    con, run = context.con, context.run
    con.execute(
        "INSERT INTO run (run, created_at, advisor_version) VALUES (?, ?, ?)",
        [run, datetime.now(UTC).isoformat(timespec="seconds"), __version__],
    )
    for reader in in_order({reader for _, reader in chosen}):
        mine = [source for source, its_reader in chosen if its_reader is reader]
        try:
            reader.read(mine, context)
        except AdvisorError:
            raise
        except Exception as error:
            raise ReaderFailedError(reader) from error
    for source, reason in skipped:
        codes = [OTHER_FORMAT] if reason == NOT_READ else []
        context.report(source, "unknown", note=reason, codes=codes)
    join_sources(context)
    _describe_run(context)
    if context.lean:
        from advisor.ingest.lean import make_lean  # the analysis, which reading does not need

        make_lean(context)


def _choose(found: list[Found]) -> tuple[list[tuple[Source, Reader]], list[tuple[Source, str]]]:
    chosen: list[tuple[Source, Reader]] = []
    skipped: list[tuple[Source, str]] = []
    damaged: dict[str, str] = {}
    ours = own_folders(item.path for item in found)
    for number, item in enumerate(found):
        try:
            source = replace(Source.of(item.path, number), named=item.named)
        except AdvisorError as error:
            if item.named:
                raise
            blank = Source(number, item.path, 0, b"", "none")
            skipped.append((blank, error.message))
            continue
        if source.size == 0:
            if item.named:
                raise AdvisorError(
                    "is empty",
                    where=str(item.path),
                    hint="the job was killed before it wrote, or the disk is full: record again",
                )
            if not is_own(item.path, b"", ours):
                skipped.append((source, "empty file"))
            continue
        reader = detect(source)
        if reader is None:
            unknown = why_unknown(source)
            if item.named:
                raise AdvisorError(unknown.reason, where=str(item.path), hint=unknown.hint)
            if not unknown.damaged and is_own(item.path, source.head, ours):
                continue
            skipped.append((source, unknown.reason if unknown.damaged else NOT_READ))
            if unknown.damaged:
                damaged.setdefault(unknown.reason, unknown.hint)
            continue
        chosen.append((source, reader))
    if not chosen:
        refuse_failed_trial(item.path for item in found)
        names = ", ".join(str(item.path) for item in found[:3])
        more = " ..." if len(found) > 3 else ""
        # What one of them needs helps more than what there could be.
        reason, hint = next(iter(damaged.items()), ("", KNOWN))
        among = f": one {reason}" if reason else ""
        first = next((source for source, why in skipped if why == NOT_READ), None)
        if not reason and first is not None:
            told, hint = why_unknown(first)[:2]
            if len(found) == 1:
                raise AdvisorError(told, where=str(first.path), hint=hint)
            among = f": the first {told}"
        raise AdvisorError(
            f"none of the {len(found)} files is a trace or log ({names}{more}){among}", hint=hint
        )
    return chosen, skipped


def refuse_nothing(store: Store, run: str) -> None:
    """Raise AdvisorError when the files of ``run`` gave nothing: there is nothing to diagnose."""
    con = store.con
    tables = ("event", "topology", "link", "nccl_choice", "bench", "flight", "collective")
    if any(has_rows(con, table, run) for table in tables):
        return
    sources = con.execute(
        "SELECT path, note, format FROM source WHERE run = ? "
        "ORDER BY format = 'unknown', source_id",
        [run],
    ).fetchall()
    refuse_failed_trial(Path(path) for path, *_ in sources)
    path, note, source_format = sources[0]
    reason = " ".join((note or "").removeprefix(f"{path}: ").split())
    reason = reason.replace(": what came before is kept", ", and nothing before that is of use")
    raise AdvisorError(
        "holds nothing that can be read" + (f" ({reason})" if reason else ""),
        where=path if len(sources) == 1 else f"{path} (and {len(sources) - 1} more)",
        hint=_instead_of_nothing(reason, source_format),
    )


def _instead_of_nothing(reason: str, source_format: str) -> str:
    """What to do about a file that gave nothing: refused, of something else, or cut."""
    from advisor.ingest.readers.osu import NO_RANKS  # late, as no reader is imported unasked

    if reason.startswith("refused: "):
        return "leave it out, or get it from who wrote it"
    if NO_RANKS in reason:
        return "put the line that started it above the table: mpirun -np RANKS PROGRAM"
    if reason.startswith("holds no "):  # it was read to its end
        return (
            "give the export of a process that uses the GPU; else record it again: "
            "nsys profile --trace=cuda,nvtx COMMAND"
            if source_format == "nsys"
            else KNOWN
        )
    return (
        "copy it again if it was cut in transfer; else record again and let the job end: "
        "advisor explain steps"
    )


_OF_RUN = ("strategy", "compute", "workload", "environment")


def _describe_run(context: ReadContext) -> None:
    """Fill strategy, compute, workload and environment from our own recordings' metadata."""
    rows = context.con.execute(
        "SELECT metadata FROM rank WHERE run = ? AND metadata IS NOT NULL ORDER BY rank",
        [context.run],
    ).fetchall()
    for (text,) in rows:
        own: Any = json.loads(text).get("advisor")
        if isinstance(own, str):
            own = json.loads(own)
        if not isinstance(own, dict):
            continue
        kept = {key: json.dumps(own[key]) for key in ("workload", "environment") if key in own}
        context.con.execute(
            "UPDATE run SET strategy = ?, compute = ?, workload = ?, environment = ? WHERE run = ?",
            [*map((own | kept).get, _OF_RUN), context.run],
        )
        return


def forget(con: Any, run: str) -> None:
    """Take what was read of ``run`` out of the base tables."""
    for table in INGESTED:
        con.execute(f"DELETE FROM {table} WHERE run = ?", [run])
