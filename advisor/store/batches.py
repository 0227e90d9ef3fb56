"""Which files of a Parquet store count: those of finished batches, whole or not at all.

A writer puts every file under a name that no other writer has, and then one small file, renamed
into ``batch/run=R/``, that names them. That rename is the moment in which all ranks of the batch
appear, or replace what earlier batches held of them. What no batch names is left over from a writer
that died (or is still at work), and is not read.
"""

import json
import os
import secrets
import socket
import time
import zlib
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from advisor.config.atomic_files import write_atomic
from advisor.errors import AdvisorError

PER_RANK = ("event", "comm_event", "rank")
PER_RUN = (
    "run", "process_group", "topology", "link", "nccl_choice", "bench", "flight", "timed_call",
    "source",
)  # fmt: skip
INGESTED = (*PER_RUN, *PER_RANK)
"""The tables that hold what was read."""
_FOLDER = "batch"
_DUCKDBS = "tmp_"
"""How DuckDB calls a file until it is whole, unless told not to."""


def has_rows(con: Any, table: str, run: str) -> bool:
    """Whether a table holds anything of a run."""
    return bool(con.execute(f"SELECT 1 FROM {table} WHERE run = ? LIMIT 1", [run]).fetchall())


class Batch(NamedTuple):
    """What one writer wrote at once. ``token`` is part of its files' names.

    ``ranks`` are those whose events it holds, ``rows_of`` others of which it holds a newer row of
    ``rank`` only; ``tables`` those by run that it fills. Of two batches the one with the higher
    ``number`` was written later.
    """

    run: str
    name: str
    token: str
    number: int
    ranks: tuple[int, ...]
    rows_of: tuple[int, ...]
    tables: tuple[str, ...]

    def of_rank(self, folder: Path, table: str, rank: int) -> Path:
        """Its file of one rank in a table of :data:`PER_RANK`."""
        return run_folder(folder, table, self.run) / f"rank={rank}.{self.token}.parquet"

    def of_run(self, folder: Path, table: str) -> Path:
        """Its file of a table of :data:`PER_RUN`."""
        return run_folder(folder, table, self.run) / f"ranks={self.name}.{self.token}.parquet"


class Index:
    """The finished batches of a store's folder and which of them holds what."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches = sorted(_read(folder), key=lambda batch: (batch.number, batch.token))
        self._events: dict[tuple[str, int], Batch] = {}
        self._rows: dict[tuple[str, int], Batch] = {}
        for batch in self.batches:
            for rank in batch.ranks:
                self._events[batch.run, rank] = self._rows[batch.run, rank] = batch
            for rank in batch.rows_of:
                self._rows[batch.run, rank] = batch

    def ranks(self, run: str) -> set[int]:
        """The ranks of a run whose events are there."""
        return {rank for its_run, rank in self._events if its_run == run}

    def row_file(self, run: str, rank: int) -> Path:
        """The file with the row of a rank that is there."""
        return self._rows[run, rank].of_rank(self.folder, "rank", rank)

    def files(self, table: str) -> list[Path]:
        """The files that hold the rows of a table."""
        if table in PER_RUN:
            return [
                batch.of_run(self.folder, table)
                for batch in self.batches
                if table in batch.tables and not self._is_replaced(batch)
            ]
        rows = table == "rank"
        return [
            (self._rows[key] if rows else batch).of_rank(self.folder, table, key[1])
            for key, batch in self._events.items()
        ]

    def sources(self) -> list[tuple[Path, list[int]]]:
        """The files of ``source``, each with the ranks of which a later batch holds the events."""
        return [
            (
                batch.of_run(self.folder, "source"),
                [rank for rank in batch.ranks if self._events[batch.run, rank] is not batch],
            )
            for batch in self.batches
            if "source" in batch.tables and not self._is_replaced(batch)
        ]

    def next_number(self) -> int:
        """A number for a batch that is written now, also where clocks differ between machines."""
        return max([time.time_ns(), *(batch.number + 1 for batch in self.batches)])

    def unfinished(self) -> dict[str, list[Path]]:
        """Files that count no more or not yet, by the name of their run's folder (``run=R``)."""
        named = {file for table in (*PER_RANK, *PER_RUN) for file in self.files(table)}
        found: dict[str, list[Path]] = {}
        for table in (*PER_RANK, *PER_RUN):
            for place in (self.folder / table).glob("run=*"):
                others = [file for file in _parquet_files(place) if file not in named]
                if others:
                    found.setdefault(place.name, []).extend(others)
        return found

    def _is_replaced(self, batch: Batch) -> bool:
        """Whether later batches hold every rank of this one."""
        return (
            bool(batch.ranks)
            and not batch.rows_of
            and all(self._events[batch.run, rank] is not batch for rank in batch.ranks)
        )


def finish(folder: Path, batch: Batch) -> None:
    """Make the files of ``batch`` count, all at once."""
    place = run_folder(folder, _FOLDER, batch.run) / f"{batch.name}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    content = batch._asdict()
    del content["name"]
    write_atomic(place, json.dumps(content))


def clear_unfinished(
    folder: Path, run: str, *, ranks: Collection[int] = (), names: Collection[str] = ()
) -> None:
    """Remove what no batch of ``run`` names: of writers of this machine that are dead.

    Also, whoever wrote them, the files of ``ranks`` and of batches with one of ``names``: the
    caller knows that nobody is writing these.
    """
    mine = {f"rank={rank}" for rank in ranks} | {f"ranks={name}" for name in names}
    for file in Index(folder).unfinished().get(run_folder(folder, "", run).name, []):
        what, *rest = file.name.removeprefix(_DUCKDBS).removeprefix(".").split(".")
        token = rest[0] if rest else ""
        # What this process left itself is of a batch that was replaced since.
        if what in mine or is_dead(token) or token.startswith(f"{_machine()}-{os.getpid()}-"):
            file.unlink(missing_ok=True)


def run_folder(folder: Path, table: str, run: str) -> Path:
    """Where the files of one table of one run are; no two names meet and none leaves ``folder``."""
    name = quote(run, safe="").replace(".", "%2E")[:200] or "%"
    return folder / table / f"run={name}"


def new_token() -> str:
    """A part of file names that no other writer has: machine, process, and chance."""
    return f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"


def is_dead(token: str) -> bool:
    """Whether the writer was a process of this machine that has ended."""
    machine, _, rest = token.partition("-")
    number = rest.partition("-")[0]
    if machine != _machine() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # somebody else's process
        return False
    return False


@cache
def _machine() -> str:
    """This machine since it started, as far as process numbers mean the same (containers)."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    except OSError:  # no Linux: the name has to do
        parts = parts[:1]
    return f"{zlib.crc32(chr(0).join(parts).encode()):08x}"


def _parquet_files(place: Path) -> Iterator[Path]:
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith((".parquet", ".partial")):
                yield place / entry.name


def _read(folder: Path) -> Iterator[Batch]:
    for file in (folder / _FOLDER).glob("run=*/*.json"):
        try:
            found: dict[str, Any] = json.loads(file.read_bytes())
            yield Batch(
                run=str(found["run"]),
                name=file.stem,
                token=str(found["token"]),
                number=int(found["number"]),
                ranks=tuple(map(int, found["ranks"])),
                rows_of=tuple(map(int, found["rows_of"])),
                tables=tuple(table for table in PER_RUN if table in found["tables"]),
            )
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise AdvisorError(
                "this list of a batch's files is damaged",
                where=str(file),
                hint="remove it, and ingest its traces again",
            ) from error
