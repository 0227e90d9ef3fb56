"""Half-written stores: how they are named, and how those of writers that died are found.

A writer that is killed cannot tidy up. The next one that writes to the same place does: what nobody
holds a lock on (the database locks its file as long as it is open) is of nobody. What was to become
a store of another name goes too, but only where it is surely ours and its writer long dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

SCRATCH_STORE = "scratch.duckdb"
_SCRATCH = ".advisor-"
_OF_ANY_NAME = re.compile(r"\..+\.(?P<owner>\d{1,10}\.[a-z0-9_]{8})\.partial")
_DATABASE = b"DUCK"  # at byte 8 of the file
_OLD_S = 3600


def partial_file(place: Path) -> Path:
    """A name beside ``place`` that no other writer has; the file is not there yet."""
    handle, name = tempfile.mkstemp(
        prefix=f".{place.name}.{os.getpid()}.", suffix=".partial", dir=place.parent
    )
    os.close(handle)
    Path(name).unlink()
    return Path(name)


def scratch_folder(beside: Path) -> Path:
    """A new folder beside ``beside``, for a store of the name :data:`SCRATCH_STORE`."""
    return Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=beside.parent))


def remove_database(file: Path) -> None:
    """Remove a database's file and its log, where they are."""
    for leftover in (file, Path(f"{file}.wal")):
        leftover.unlink(missing_ok=True)


def clear_leftovers(place: Path) -> None:
    """Remove what writers that died left beside ``place``, a store or a folder of Parquet."""
    for file in place.parent.glob(f".{_escaped(place.name)}.*.partial"):
        if _is_abandoned(file, file.name.removeprefix(f".{place.name}.")):
            remove_database(file)
    for file in place.parent.glob(".*.partial"):
        match = _OF_ANY_NAME.fullmatch(file.name)
        if match and _is_old_database(file) and _is_abandoned(file, match["owner"]):
            remove_database(file)
    for folder in place.parent.glob(f"{_SCRATCH}*"):
        files = list(folder.glob("*.partial"))
        owner = folder.name.removeprefix(_SCRATCH)
        if files and all(_is_abandoned(file, owner) for file in files):
            shutil.rmtree(folder, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _is_old_database(file: Path) -> bool:
    """Whether it is a database that nobody has written to for an hour.

    On a file system that several machines share, a lock need not tell.
    """
    with contextlib.suppress(OSError), file.open("rb") as opened:
        is_database = opened.read(12)[8:] == _DATABASE
        return is_database and time.time() - os.fstat(opened.fileno()).st_mtime > _OLD_S
    return False


def _is_abandoned(file: Path, name: str) -> bool:
    """Whether no process has the database open; ``name`` begins with its writer's process id.

    Never true for one of this process: to close a second handle would give up its own lock.
    """
    if name.replace("-", ".").split(".")[0] == str(os.getpid()):
        return False
    with contextlib.suppress(OSError), file.open("r+b") as opened:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
