"""One DuckDB database that holds runs: created whole, written atomically, opened read-only."""

import contextlib
import os
import shlex
import weakref
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb

from advisor.config.atomic_files import PRIVATE, kept_mode
from advisor.errors import AdvisorError
from advisor.store.leftovers import clear_leftovers, partial_file, remove_partial
from advisor.store.opening import connect
from advisor.store.parquet import attach_parquet, is_parquet_store, write_parquet
from advisor.store.running import stoppable
from advisor.store.stored import connect_stored, damaged
from advisor.store.target import check_store_target, check_text, database_writing, writing

SCHEMA_VERSION = 18
_FREE_SHARE = 0.25
_FEW_EVENTS = 200_000
_FEW_BYTES = 4_000_000
"""Of files, which are mostly compressed: about as many events."""
_DUCKDB = b"DUCK"  # after a checksum of 8 bytes


class Store:
    """A DuckDB connection with this project's tables.

    ``Store.create()`` makes an empty one in memory or in a temporary file that
    ``save()`` renames into place, so that a crash leaves the old file or none.
    """

    def __init__(self, con: Any, *, path: Path | None, temporary: Path | None = None) -> None:
        self._con: Any = stoppable(con)
        self.path = path
        self.may_hold_results = True
        """False until the first time that derived tables are filled: nothing is to be deleted."""
        self._temporary = temporary
        # Ctrl-C may come wherever the interpreter is, in close() too: then this tidies up.
        self._unsaved = weakref.finalize(self, _discard, con, temporary) if temporary else None

    @property
    def con(self) -> Any:
        """The DuckDB connection; every module of the package works on it.

        A saved store is opened again, read-only, when somebody asks it something.
        """
        if self._con is None and self.path is not None:
            self._con = stoppable(connect_stored(self.path))
        return self._con

    @classmethod
    def create(cls, path: Path | None = None, *, force: bool = False) -> "Store":
        """An empty store. With ``path`` it appears there only on :meth:`save`.

        Raises AdvisorError when a file is there (with ``force`` only when it is no store of this
        tool), or when nothing can be written there.
        """
        temporary = None
        if path is not None:
            check_store_target(path, force=force)
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                clear_leftovers(path)
                temporary = partial_file(path)
        try:
            with database_writing(path):
                con = stoppable(connect(temporary, threads=1))
                if temporary:
                    # Nobody reads this file before save() has written it out.
                    con.execute("SET fsync_mode = 'NONE'")
                con.execute("PRAGMA disable_optimizer")  # a third of the time to make tables
                con.execute("BEGIN")
                con.execute(schema_sql())
                con.execute("CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR)")
                con.execute("INSERT INTO meta VALUES ('schema_version', ?)", [str(SCHEMA_VERSION)])
                con.execute("COMMIT")
                con.execute("PRAGMA enable_optimizer")
        except BaseException:
            if temporary:
                remove_partial(temporary)
            raise
        store = cls(con, path=path, temporary=temporary)
        store.may_hold_results = False
        return store

    @classmethod
    def open(cls, path: Path, *, read_only: bool = True) -> "Store":
        """Open an existing store; a clear error for another schema version or a foreign file."""
        if not path.exists():
            raise AdvisorError("no such store", where=str(path), hint="make one: advisor ingest")
        if path.is_dir():
            return cls._open_folder(path)
        try:
            con = connect_stored(path, read_only=read_only)
            row = con.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        except duckdb.Error as error:
            raise damaged(error, path) or AdvisorError(
                "not a store of this tool", where=str(path), hint="make one: advisor ingest"
            ) from error
        version = row[0] if row else "0"
        if version != str(SCHEMA_VERSION):
            con.close()
            raise AdvisorError(
                f"written with schema version {version}, this advisor reads {SCHEMA_VERSION}",
                where=str(path),
                hint="ingest the traces again",
            )
        return cls(con, path=path)

    @classmethod
    def _open_folder(cls, path: Path) -> "Store":
        """A Parquet store: its tables in memory, its events as a view of the files."""
        if not is_parquet_store(path):
            raise AdvisorError(
                "this folder is no store",
                where=str(path),
                hint=f"make one: advisor ingest {shlex.quote(str(path))} -o run.duckdb",
            )
        store = cls.create()
        try:
            attach_parquet(store.con, path, schema_version=SCHEMA_VERSION)
        except BaseException:
            store.close()
            raise
        store.path = path
        return store

    def write_folder(
        self,
        folder: Path,
        *,
        force: bool = False,
        batch: str | None = None,
        rows_only: Collection[int] = (),
        alone: bool = True,
    ) -> None:
        """Write the ingested tables as Parquet, or add their ranks to what ``folder`` holds.

        ``batch``, ``rows_only``, ``alone`` as in :func:`~advisor.store.parquet.write_parquet`.
        """
        check_text(folder)
        with writing(folder):
            write_parquet(
                self.con,
                folder,
                schema_version=SCHEMA_VERSION,
                force=force,
                batch=batch,
                rows_only=rows_only,
                alone=alone,
            )

    def use_threads_sparingly(self, to_read_bytes: int | None = None) -> None:
        """One thread for few events, read or to be read: to share out their queries takes longer.

        Threads that rest also give the memory back that the others need again at once.
        """
        if to_read_bytes is None:
            (events,) = self.con.execute("SELECT count(*) FROM event").fetchone()
            few = events <= _FEW_EVENTS
        else:
            few = to_read_bytes <= _FEW_BYTES
        self.con.execute("SET threads = 1" if few else "RESET threads")

    def lock_down(self) -> None:
        """From here on queries can reach nothing but this store, and cannot undo that."""
        if self.path is not None and self.path.is_dir():
            folder = str(self.path.resolve()).replace("'", "''")
            self.con.execute(f"SET allowed_directories = ['{folder}']")
        self.con.execute("SET enable_external_access = false")
        self.con.execute("SET lock_configuration = true")

    def save(self) -> None:
        """Put a created store in its place, atomically."""
        if self._temporary is None or self.path is None:
            return
        with writing(self.path):
            self.con.execute("CHECKPOINT")
            self._shrink()
            self.con.close()
            with self._temporary.open("rb") as file:
                os.fsync(file.fileno())
            self._temporary.chmod(kept_mode(self.path, PRIVATE))
            self._temporary.replace(self.path)
        remove_partial(self._temporary)
        self._temporary = None
        if self._unsaved is not None:
            self._unsaved.detach()
        self._con = None

    def _shrink(self) -> None:
        """Copy the tables to a new file when much of this one is room that dropped rows left."""
        total, free = self.con.execute(
            "SELECT total_blocks, free_blocks FROM pragma_database_size()"
        ).fetchone()
        if self._temporary is None or free < _FREE_SHARE * total:
            return
        smaller = self._temporary.with_suffix(".shrunk")
        target = str(smaller).replace("'", "''")
        (name,) = self.con.execute("SELECT current_database()").fetchone()
        self.con.execute(f"ATTACH '{target}' AS shrunk")
        self.con.execute(f'COPY FROM DATABASE "{name}" TO shrunk')
        self.con.execute("DETACH shrunk")
        self.con.close()
        smaller.replace(self._temporary)

    def close(self) -> None:
        """Close; an unsaved created store leaves nothing behind."""
        if self._con is not None:
            self._con.close()
        if self._unsaved is not None:
            self._unsaved()
        self._temporary = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _discard(con: Any, temporary: Path) -> None:
    """Remove a database that was not saved, and all that is beside it."""
    con.close()
    remove_partial(temporary)


def is_store(path: Path) -> bool:
    """Whether ``path`` is a DuckDB file (by name or content) or a Parquet folder made by ingest."""
    if not path.is_file():
        return is_parquet_store(path)
    if path.suffix == ".duckdb":
        return True
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(12)[8:] == _DUCKDB
    return False


def schema_sql() -> str:
    """The text of schema.sql."""
    return resources.files("advisor.store").joinpath("schema.sql").read_text(encoding="utf-8")
