"""What a reader gets: the input files of one format, and where to write and report.

A reader is a module (or package) ``advisor/ingest/readers/<name>.py`` with ``FORMAT``, ``SUMMARY``,
``PRIORITY``, ``detect(source)`` and ``read(sources, context)``; see :class:`Reader`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from blake3 import blake3

from advisor.errors import AdvisorError
from advisor.ingest.compression import (
    DEFAULT_LIMITS,
    DecompressedFile,
    Limits,
    compression_of_file,
    open_decompressed,
)
from advisor.ingest.paths import is_dangling, refuse_irregular, why_dangling
from advisor.store.store import Store

HEAD_BYTES = 64 * 1024
MOST_RANKS_OF_SMALL_FILE = 8_192
"""A rank costs about 2 ms and 20 KB, however little a file holds of it."""
LEAST_BYTES_OF_RANK = 1_024
"""On the disk, of the ranks beyond: a step of training is some hundred operations."""
Progress = Callable[[str, int, int], None]
"""Called with (path, bytes read of the file on disk, its size), from any thread."""


@dataclass(frozen=True)
class Source:
    """One input file. ``size`` is on disk; ``head`` the first 64 KiB after decompression.

    ``named``: the user named it, so that it must be readable; one that was found in a folder is
    left out, and its row in ``source`` says why.
    """

    source_id: int
    path: Path
    size: int
    head: bytes = field(repr=False)
    compression: str
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False)
    named: bool = True

    @classmethod
    def of(cls, path: Path, source_id: int, limits: Limits = DEFAULT_LIMITS) -> "Source":
        """Look at a file. Raises :class:`AdvisorError` when it is missing or cannot be read."""
        try:
            size = path.stat().st_size
            refuse_irregular(path)  # a pipe would be waited for
            compression = compression_of_file(path)
            stream, _ = open_decompressed(path, compression, limits)
            with stream:
                head = stream.read(HEAD_BYTES)
        except OSError as error:
            if is_dangling(path):
                raise AdvisorError(why_dangling(path), where=str(path)) from error
            if isinstance(error, FileNotFoundError):
                raise AdvisorError(
                    "no such file", where=str(path), hint="check the path"
                ) from error
            raise AdvisorError(f"cannot be read: {error.strerror}", where=str(path)) from error
        except AdvisorError as error:
            raise AdvisorError(
                error.message, where=error.where or str(path), hint=error.hint
            ) from error
        return cls(source_id, path, size, head, compression, limits)

    def refused(self, error: AdvisorError) -> str:
        """Why this file is left out. Raises ``error`` where the user named the file."""
        if self.named:
            raise error
        return error.message

    def require_room_for(self, ranks: int) -> None:
        """Raise :class:`AdvisorError` where the file names more ranks than it can hold work of."""
        if ranks > max(MOST_RANKS_OF_SMALL_FILE, self.size // LEAST_BYTES_OF_RANK):
            raise AdvisorError(
                f"names {ranks:,} ranks in {self.size:,} bytes: too little of each to say anything",
                where=str(self.path),
                hint="record more steps, or cut it to fewer ranks",
            )

    def open(self) -> BinaryIO:
        """The file's decompressed bytes, from the start; stops quietly where it is damaged.

        Use :meth:`open_raw` where the damage has to be told.
        """
        return self.open_raw()[0]

    def open_raw(self) -> tuple[BinaryIO, DecompressedFile]:
        """As :meth:`open`, with the raw stream whose ``damage`` says what was wrong (or None).

        Raises :class:`AdvisorError` where the file is gone since it was looked at.
        """
        try:
            return open_decompressed(self.path, self.compression, self.limits)
        except OSError as error:
            raise AdvisorError(
                f"could be read a moment ago, and cannot any more: {error.strerror}",
                where=str(self.path),
            ) from error


class RankHint(NamedTuple):
    """What a trace says of its rank before its events are read.

    ``rank`` is None when it does not say; ``certain``: it stands in the file, where no later part
    overrules it; ``several``: the file may hold several ranks.
    """

    rank: int | None
    certain: bool
    several: bool


@dataclass
class ReadContext:
    """Where a reader writes. ``con`` is the store's DuckDB connection."""

    store: Store
    run: str
    lean: bool = False
    progress: Progress | None = None
    ranks: Mapping[Path, int] = field(default_factory=dict)
    """Ranks for files that do not say theirs, where one reader does not see all of the run."""

    @property
    def con(self) -> Any:
        """The store's DuckDB connection."""
        return self.store.con

    def report(
        self,
        source: Source,
        format: str,
        *,
        rank: int | None = None,
        events_read: int = 0,
        drop_reasons: Mapping[str, int] | None = None,
        note: str | None = None,
        codes: Sequence[str] = (),
        digest: str | None = None,
    ) -> None:
        """Write the ``source`` row of one input; every source gets exactly one.

        ``codes`` are of :mod:`advisor.store.notes`.
        """
        lost = {reason: count for reason, count in (drop_reasons or {}).items() if count}
        self.con.execute(
            "INSERT INTO source VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                self.run,
                source.source_id,
                shown(source.path),
                format,
                source.size,
                digest or (None if format == "unknown" else _digest(source.path)),
                rank,
                events_read,
                sum(lost.values()),
                json.dumps(lost, sort_keys=True),
                shown(note) if note else None,
                list(codes),
            ],
        )

    def known(self, table: str) -> set[Any]:
        """What the run has of ``rank`` or ``process_group``."""
        rows = self.con.execute(f"SELECT {table} FROM {table} WHERE run = ?", [self.run])
        return {name for (name,) in rows.fetchall()}

    def refuse(self, source: Source, format: str, note: str, reason: str = "refused") -> None:
        """As :meth:`report` for a file that is left out."""
        self.report(source, format, drop_reasons={reason: 1}, note=note)


def shown(path: Path | str) -> str:
    """A path, or text with one, that can be stored: bytes of names that are no UTF-8 become ?."""
    return str(path).encode(errors="replace").decode()


def _digest(path: Path) -> str | None:
    """BLAKE3 of the file as it lies there; None where it is no local file that can be read."""
    try:
        return blake3().update_mmap(path).hexdigest()
    except OSError:
        return None


class Reader(Protocol):
    """What a reader module provides.

    A reader whose files can be read apart from the run's other files, rank by rank, also has
    ``rank_hint(source) -> RankHint``. One whose files record their rank has
    ``recorded_rank(source) -> (rank, world size, process) | None``, so that jobs can be told apart.
    One whose files begin as no others do may have ``BEGINS``, a pattern that matches there.
    """

    FORMAT: str
    SUMMARY: str
    PRIORITY: int

    def detect(self, source: Source) -> bool:
        """Whether the content is of this format (``source.head``, then ``source.path``)."""
        ...

    def read(self, sources: Sequence[Source], context: ReadContext) -> None:
        """Read all sources of this format of one run into the store's base tables."""
        ...
