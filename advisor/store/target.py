"""Where a store is written: what may be replaced there, and what to tell when writing fails."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from advisor.errors import AdvisorError, not_written
from advisor.store.stored import connect_stored

_NUMBERS = {os.strerror(number): number for number in (*range(1, 41), 122)}
"""The database tells only the text of what the system said."""
_NOT_WRITTEN = re.compile(
    r'(?:write|sync|create|open|truncate)[^"]{0,40}file "(?P<place>[^"]+)"[^:]*: (?P<reason>.+)',
    re.I,
)
_SPILLED = re.compile(r"failed to offload data block|max_temp_directory_size", re.I)


def settled(place: Path) -> Path:
    """The file that ``place`` will name once the folders on the way to it are made.

    ``new/../run.json`` names nothing while there is no folder ``new``, and run.json afterwards.
    """
    there = os.path.lexists(place)  # as Path.exists, but for links and names that are too long
    return place if there else Path(os.path.realpath(place))


def check_regular(place: Path, kind: str) -> None:
    """Raise AdvisorError where ``place`` is there and no regular file (a folder, a device)."""
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise not_written(error, place) from error
    if stat.S_ISDIR(mode):
        raise AdvisorError("is a folder", where=str(place), hint=f"name a file for the {kind}")
    if not stat.S_ISREG(mode):
        raise AdvisorError(
            "is no regular file", where=str(place), hint=f"name another file for the {kind}"
        )


def check_target(place: Path, kind: str, is_ours: Callable[[Path], bool], *, force: bool) -> None:
    """Raise AdvisorError where no ``kind`` ("store", "report") may be written to: there is a file.

    With ``force`` one that ``is_ours`` is replaced, or an empty file, and nothing else.
    """
    real = settled(place)
    check_regular(real, kind)
    if not real.exists():
        return
    if real.stat().st_size and not is_ours(real):
        raise AdvisorError(
            f"already exists, and is no {kind} of this tool, or one of another version or changed",
            where=str(place),
            hint=f"name another file, or remove this one: only {kind}s as this version wrote them "
            "are replaced, with --force",
        )
    if not force:
        raise AdvisorError("already exists", where=str(place), hint="pass --force to replace it")


def check_text(place: Path) -> None:
    """Raise AdvisorError where a store cannot be written: the database takes UTF-8 alone."""
    shown = str(place).encode(errors="replace").decode()
    if shown != str(place):
        raise AdvisorError(
            "its name is not UTF-8", where=shown, hint="name another place for the store"
        )


def check_store_target(place: Path, *, force: bool) -> None:
    """As :func:`check_target` for a store."""
    check_text(place)
    check_target(place, "store", _is_ours, force=force)


def _is_ours(place: Path) -> bool:
    try:
        with connect_stored(place) as con:
            found = con.execute("SELECT 1 FROM meta WHERE key = 'schema_version'").fetchall()
    except AdvisorError:
        return False
    except duckdb.Error as error:
        # Whoever has it open for writing is one of us, or means it to be a database.
        return "lock on file" in str(error)
    return bool(found)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What is done inside writes at ``place``; raises AdvisorError where the system refuses it."""
    try:
        yield
    except OSError as error:
        raise not_written(error, place) from error
    except duckdb.Error as error:
        raise (database_error(error, place) or error) from error


@contextmanager
def database_writing(place: Path | None) -> Iterator[None]:
    """As :func:`writing` for the errors of the database only; None: it is in memory."""
    try:
        yield
    except duckdb.Error as error:
        known = database_error(error, place)
        if known is None:
            raise
        raise known from error


def database_error(error: duckdb.Error, place: Path | None) -> AdvisorError | None:
    """The error for people where the database could not write its files, else None."""
    text = str(error)
    found = _NOT_WRITTEN.search(text)
    if found is not None:
        reason = found["reason"].strip().splitlines()[0].strip(' "')
        number = next((code for said, code in _NUMBERS.items() if said in reason), 0)
        cause = OSError(number, os.strerror(number) if number else reason)
        return not_written(cause, place or Path(found["place"]).parent)
    if _SPILLED.search(text):
        return AdvisorError(
            "there is no room for what does not fit into the memory",
            where=str(place.parent if place else Path.cwd()),
            hint="make room there, or keep less: --lean",
        )
    return None
