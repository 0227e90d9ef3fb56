"""Files that are there whole or not at all, whenever the process ends, and read by nobody else.

A file is written beside its place and renamed. Its writer holds a lock on it, so that the next one
can tell what a writer that was killed has left there, and removes it.
"""

import atexit
import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o600
"""What may name hosts, users, paths or commands is its owner's alone."""
_HALF_WRITTEN = ".partial"
_to_remove: set[Path] = set()


def write_atomic(path: Path, text: str, *, mode: int = PRIVATE) -> Path:
    """Write beside ``path`` and rename into place; a file that is replaced keeps its mode."""
    mode = kept_mode(path, mode)
    _clear_half_written(path)
    with (
        half_written(path) as temporary,
        os.fdopen(_locked(temporary), "w", encoding="utf-8") as file,
    ):
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), mode)
        temporary.replace(path)  # before the lock goes with the handle
    return path


@contextlib.contextmanager
def half_written(path: Path) -> Iterator[Path]:
    """A name for a file beside ``path``, which is removed when the body ends, however it does."""
    # Named before it is there: a signal in between would leave a file that nobody removes.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_HALF_WRITTEN}")
    with removed_at_end(temporary):
        yield temporary


@contextlib.contextmanager
def removed_at_end(place: Path) -> Iterator[None]:
    """Remove a file or a folder when the body ends; when the process does where a signal came
    just then, whose exception ends the removal before it has begun."""
    remove_at_end(place)
    try:
        yield
    finally:
        remove(place)


def remove_at_end(place: Path) -> None:
    """Remove a file or a folder that is still there when the process ends."""
    _to_remove.add(place)


def remove(place: Path) -> None:
    """Remove a file or a folder now, with all that is in it; nothing may be there."""
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)
    _to_remove.discard(place)


os.register_at_fork(after_in_child=_to_remove.clear)


@atexit.register
def _remove_all() -> None:
    for place in list(_to_remove):
        with contextlib.suppress(OSError):
            remove(place)


def _clear_half_written(path: Path) -> None:
    """Remove what writers of ``path`` that were killed left beside it."""
    for left in path.parent.iterdir() if os.access(path.parent, os.R_OK) else ():
        if left.name.startswith(f".{path.name}.") and left.name.endswith(_HALF_WRITTEN):
            with contextlib.suppress(OSError), left.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()


def _locked(temporary: Path) -> int:
    """A new file that nobody takes for left."""
    while True:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with contextlib.suppress(OSError):  # a file system without locks: nobody removes it either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # removed before it was locked


def kept_mode(path: Path, mode: int) -> int:
    """The permissions of the file at ``path``, or ``mode`` where there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else mode
