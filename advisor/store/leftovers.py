"""Half-written stores: how they are named, and how those of writers that died are found.

A store is written in a folder of its own that nobody else may enter: the database makes its file,
its log and what does not fit into the memory with the modes that the umask gives them.

A writer that is killed cannot tidy up. The next one that writes to the same place does: what nobody
holds a lock on (the database locks its file as long as it is open) is of nobody. What was to become
a store of another name goes too, but only where it is surely ours and its writer long dead.
"""

import contextlib
import fcntl
import glob
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from advisor.config.atomic_files import remove, remove_at_end

SCRATCH_STORE = "scratch.duckdb"
_SCRATCH = ".advisor-"
_IN_FOLDER = "half.duckdb"
_OF_ANY_NAME = re.compile(r"\..+\.(?P<owner>\d{1,10}\.[a-z0-9_]{8})\.partial")
_DATABASE = b"DUCK"  # at byte 8 of the file
_OLD_S = 3600


def partial_file(place: Path) -> Path:
    """A name in a new folder beside ``place``, of mode 0700; the file is not there yet."""
    name = f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}.partial"
    return _made(place.with_name(name)) / _IN_FOLDER


def scratch_folder(beside: Path) -> Path:
    """A new folder beside ``beside``, for a store of the name :data:`SCRATCH_STORE`."""
    return _made(beside.with_name(f"{_SCRATCH}{os.getpid()}-{secrets.token_hex(4)}"))


def _made(folder: Path) -> Path:
    remove_at_end(folder)  # a signal may come before whoever asked has it
    folder.mkdir(mode=0o700)
    return folder


def remove_partial(file: Path) -> None:
    """Remove what :func:`partial_file` named, with its folder and all that is there."""
    remove(file.parent)


def clear_leftovers(place: Path) -> None:
    """Remove what writers that died left beside ``place``, a store or a folder of Parquet."""
    for left in place.parent.glob(f".{glob.escape(place.name)}.*.partial"):
        if _is_abandoned(left, left.name.removeprefix(f".{place.name}.")):
            remove(left)
    for left in place.parent.glob(".*.partial"):
        match = _OF_ANY_NAME.fullmatch(left.name)
        if match and _is_old_database(left) and _is_abandoned(left, match["owner"]):
            remove(left)
        elif match and left.is_dir() and _is_old(left.stat()):
            with contextlib.suppress(OSError):  # it holds something
                left.rmdir()
    for folder in place.parent.glob(f"{_SCRATCH}*"):
        stores = list(folder.glob(".*.partial"))
        owner = folder.name.removeprefix(_SCRATCH)
        if stores and all(_is_abandoned(left, owner) for left in stores):
            shutil.rmtree(folder, ignore_errors=True)


def _is_old_database(left: Path) -> bool:
    """Whether it is a database that nobody has written to for an hour.

    On a file system that several machines share, a lock need not tell.
    """
    with contextlib.suppress(OSError), (left / _IN_FOLDER).open("rb") as opened:
        return opened.read(12)[8:] == _DATABASE and _is_old(os.fstat(opened.fileno()))
    return False


def _is_old(found: os.stat_result) -> bool:
    return time.time() - found.st_mtime > _OLD_S


def _is_abandoned(left: Path, name: str) -> bool:
    """Whether no process has the database open; ``name`` begins with its writer's process id.

    Never true for one of this process: to close a second handle would give up its own lock.
    """
    if name.replace("-", ".").split(".")[0] == str(os.getpid()):
        return False
    with contextlib.suppress(OSError), (left / _IN_FOLDER).open("r+b") as opened:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
