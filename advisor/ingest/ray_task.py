"""What one task does: read some pieces into a Parquet store.

A task may run twice (its worker died, or only seemed to): its files have names of their own and
appear at once when all are written, and the name of its batch follows from its ranks or its inputs
alone. The second run then replaces what the first one wrote. Nothing here needs Ray.
"""

import hashlib
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.ingest.detect import detect
from advisor.ingest.pipeline import read_sources
from advisor.ingest.ray_look import fetch
from advisor.ingest.ray_plan import Item, Piece, is_url
from advisor.ingest.scratch import temporary_folder
from advisor.ingest.source import ReadContext, Reader, Source
from advisor.store.batches import Index
from advisor.store.parquet import is_parquet_store
from advisor.store.store import Store

_MEMORY_LIMIT = "1GB"


@dataclass(frozen=True)
class Job:
    """What all tasks of one ingest share. ``folder`` must be the same folder on every machine."""

    folder: Path
    run: str
    lean: bool = False
    force: bool = False
    threads: int = 1


@dataclass(frozen=True)
class Done:
    """What a task did. ``failed``: files that could not be read and why; ``later``: those that hold
    other ranks than planned, to be read with what needs the whole run.
    """

    ranks: tuple[int, ...] = ()
    read: tuple[Item, ...] = ()
    failed: tuple[tuple[Item, str], ...] = ()
    later: tuple[Item, ...] = ()
    batch: str = ""
    events_read: int = 0
    events_dropped: int = 0
    cpu_s: float = 0.0


_Entry = tuple[Piece, list[tuple[Source, Reader]]]


@dataclass
class _Loaded:
    """Pieces whose files are at hand, and what could not be fetched."""

    pieces: list[_Entry] = field(default_factory=list)
    failed: list[tuple[Item, str]] = field(default_factory=list)
    later: list[Item] = field(default_factory=list)

    def give_up(self, entry: _Entry, error: AdvisorError) -> None:
        """A piece failed: the reason in terms of the paths as given."""
        piece, chosen = entry
        if isinstance(error, _OtherRanksError):
            self.later += piece.items
            return
        places = {item.number: item.place for item in piece.items}
        reason = error.message
        for source, _ in chosen:
            reason = reason.replace(str(source.path), places[source.source_id])
        self.failed += [(item, reason) for item in piece.items]


class _OtherRanksError(AdvisorError):
    """A piece holds other ranks than the one it was planned for."""


def read_batch(batch: Sequence[Piece], job: Job) -> Done:
    """Read pieces of one rank each into the store's folder; the ranks appear whole and at once."""
    started_s = _cpu_s()
    with _scratch(job) as scratch:
        loaded = _load(batch, scratch)
        store, good = _read_good(loaded, job, scratch)
        with store:
            ranks = sorted(piece.rank for piece, _ in good if piece.rank is not None)
            if ranks:
                store.write_folder(job.folder, force=True, alone=False)
            return _done(store, ranks, good, loaded, started_s)


def read_together(
    piece: Piece, notes: Sequence[tuple[Item, str]], ranks: Sequence[int], job: Job
) -> Done:
    """Read what could not be read apart, and join what it says of ``ranks``, written before.

    ``notes`` are files that were not read, for the table ``source``.
    """
    started_s = _cpu_s()
    inputs = sorted([*(item.place for item in piece.items), *(item.place for item, _ in notes)])
    batch = f"files-{hashlib.sha256(chr(0).join(inputs).encode()).hexdigest()[:16]}"
    with _scratch(job) as scratch:
        loaded = _load([Piece((item,)) for item in piece.items], scratch)
        known = ranks if piece.items else ()
        store, good = _read_good(loaded, job, scratch, notes=notes, ranks=known)
        with store:
            new = [rank for rank in _ranks(store, job) if rank not in set(known)]
            present = Index(job.folder).ranks(job.run)
            taken = [rank for rank in new if rank in present]
            if taken and not job.force:
                reason = f"rank {taken[0]} of run '{job.run}' is in this store already"
                return Done(failed=tuple((item, reason) for item in piece.items))
            store.write_folder(job.folder, force=True, batch=batch, rows_only=known, alone=False)
            return replace(_done(store, new, good, loaded, started_s), batch=batch)


def _load(batch: Sequence[Piece], scratch: Path) -> _Loaded:
    loaded = _Loaded()
    for piece in batch:
        chosen: list[tuple[Source, Reader]] = []
        for item in piece.items:
            try:
                path, _ = fetch(item, scratch / str(item.number))
                source = Source.of(path, item.number)
                reader = detect(source)
                if reader is None:
                    raise AdvisorError("changed while it was being read")
                chosen.append((source, reader))
            except AdvisorError as error:
                loaded.failed.append((item, error.message))
        if chosen:
            loaded.pieces.append((piece, chosen))
    return loaded


def _read_good(
    loaded: _Loaded,
    job: Job,
    scratch: Path,
    *,
    notes: Sequence[tuple[Item, str]] = (),
    ranks: Sequence[int] = (),
) -> tuple[Store, list[_Entry]]:
    """Read all pieces at once; if that fails, find out which of them fail and read the others."""
    try:
        return _read(loaded.pieces, job, scratch / "all.duckdb", notes, ranks), loaded.pieces
    except AdvisorError as error:
        if len(loaded.pieces) == 1:
            loaded.give_up(loaded.pieces[0], error)
            loaded.pieces = []
    good = []
    for number, entry in enumerate(loaded.pieces):
        try:
            _read([entry], job, scratch / f"{number}.duckdb", (), ranks).close()
            good.append(entry)
        except AdvisorError as error:
            loaded.give_up(entry, error)
    return _read(good, job, scratch / "good.duckdb", notes, ranks), good


def _read(
    entries: Sequence[_Entry],
    job: Job,
    place: Path,
    notes: Sequence[tuple[Item, str]],
    ranks: Sequence[int],
) -> Store:
    """A store on this machine's disk with the pieces' tables; traces may exceed the memory."""
    store = Store.create(place)
    try:
        con = store.con
        con.execute(f"SET threads = {job.threads}")
        con.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        if ranks:
            index = Index(job.folder)
            files = [str(index.row_file(job.run, rank)) for rank in ranks]
            con.execute(
                "INSERT INTO rank BY NAME SELECT * FROM read_parquet(?, hive_partitioning = false)",
                [files],
            )
        items = {item.number: item for piece, _ in entries for item in piece.items}
        chosen = [pair for _, pairs in entries for pair in pairs]
        given = {
            source.path: rank
            for source, _ in chosen
            if (rank := items[source.source_id].rank) is not None
        }
        blanks = [
            (Source(item.number, Path(item.place), item.size_bytes, b"", "none"), reason)
            for item, reason in notes
        ]
        context = ReadContext(store, job.run, lean=job.lean, ranks=given)
        read_sources(context, chosen, blanks)
        con.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")  # readers may have put their own
        for item in (*items.values(), *(item for item, _ in notes)):
            con.execute("UPDATE source SET path = ? WHERE source_id = ?", [item.place, item.number])
        for source, _ in chosen:
            place_of = items[source.source_id].place
            if is_url(place_of):  # facts name their file and line: not of the copy read here
                con.execute(
                    "UPDATE topology SET source = replace(source, ?, ?) WHERE source IS NOT NULL",
                    [str(source.path), place_of],
                )
        _check_ranks(store, job, entries, ranks)
    except BaseException:
        store.close()
        raise
    return store


def _check_ranks(store: Store, job: Job, entries: Sequence[_Entry], before: Sequence[int]) -> None:
    """No task may write another one's rank, so that none is lost and none is there twice."""
    found = _ranks(store, job)
    if len(set(found)) < len(found):
        twice = min(rank for rank in found if found.count(rank) > 1)
        raise AdvisorError(f"rank {twice} is in other files of this run too")
    planned = {piece.rank for piece, _ in entries}
    if None not in planned and not before and set(found) != planned:
        odd = sorted(set(found) ^ {rank for rank in planned if rank is not None})
        raise _OtherRanksError(f"it holds another rank than its beginning tells (rank {odd[0]})")


def _ranks(store: Store, job: Job) -> list[int]:
    rows = store.con.execute("SELECT rank FROM rank WHERE run = ? ORDER BY rank", [job.run])
    return [rank for (rank,) in rows.fetchall()]


def _done(
    store: Store, ranks: Sequence[int], good: Sequence[_Entry], loaded: _Loaded, started_s: float
) -> Done:
    (read, dropped) = store.con.execute(
        "SELECT coalesce(sum(events_read), 0), coalesce(sum(events_dropped), 0) FROM source"
    ).fetchone()
    numbers = {source.source_id for _, pairs in good for source, _ in pairs}
    items = tuple(item for piece, _ in good for item in piece.items if item.number in numbers)
    return Done(
        ranks=tuple(ranks),
        read=items,
        failed=tuple(loaded.failed),
        later=tuple(loaded.later),
        events_read=int(read),
        events_dropped=int(dropped),
        cpu_s=_cpu_s() - started_s,
    )


@contextmanager
def _scratch(job: Job) -> Iterator[Path]:
    """A folder on this machine's own disk, once it is sure that the store's folder is shared."""
    if not is_parquet_store(job.folder):
        raise AdvisorError(
            "this folder is not visible on every machine of the cluster",
            where=str(job.folder),
            hint="choose one on a shared file system",
        )
    with temporary_folder("ingest") as scratch:
        yield scratch


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
