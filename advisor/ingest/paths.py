"""Expands what people pass (files, folders, patterns) into a list of files, each once."""

import errno
import glob
import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from advisor.errors import AdvisorError

_MAX_FILES = 100_000


class Found(NamedTuple):
    """One file. ``named``: the user named it, so that it must be readable."""

    path: Path
    named: bool


def expand(paths: Iterable[str | Path], leave_out: Collection[Path] = ()) -> list[Found]:
    """The files behind ``paths``: folders are searched, hidden files left out; sorted within one.

    Files of ``leave_out`` are none of them.

    Raises :class:`AdvisorError` when something does not exist or is no regular file, or a pattern
    matches nothing. Links to what is missing, pipes and devices that stand in folders are among the
    files: whoever reads them tells.
    """
    unwanted = {real_path(path) for path in leave_out}
    found: dict[Path, Found] = {}
    for given in paths:
        for item in _expand_one(Path(given)):
            place = real_path(item.path)
            if place in unwanted:
                continue
            found.setdefault(place, item)
            if len(found) > _MAX_FILES:
                raise AdvisorError(
                    f"more than {_MAX_FILES} files", where=str(given), hint="pass fewer at once"
                )
    return list(found.values())


def _expand_one(path: Path) -> list[Found]:
    if path.is_dir():
        inside = _files_in(path)
        if not inside:
            raise AdvisorError(
                "this folder holds no files",
                where=str(path),
                hint="name the folder that the profiler wrote to: advisor explain steps",
            )
        return [Found(item, named=False) for item in sorted(inside, key=natural_key)]
    if path.exists():
        refuse_irregular(path)
        return [Found(path, named=True)]
    if is_dangling(path):
        raise AdvisorError(why_dangling(path), where=str(path), hint="check the link")
    if glob.has_magic(str(path)):
        # Path.glob takes no absolute patterns.
        names = glob.glob(str(path), recursive=True)  # noqa: PTH207
        matches = sorted((Path(name) for name in names), key=natural_key)
        files = [item for match in matches for item in _expand_one(match)]
        if not files:
            raise AdvisorError(
                "no file matches this pattern", where=str(path), hint="ls shows what is there"
            )
        return files
    raise AdvisorError("no such file", where=str(path), hint="check the path")


def _files_in(folder: Path) -> list[Path]:
    """What a folder holds at any depth, links to folders not followed.

    A folder within that cannot be searched is among them: whoever reads it tells why.
    """
    found: list[Path] = []
    left = [folder]
    while left and len(found) <= _MAX_FILES:
        place = left.pop()
        try:
            with os.scandir(place) as entries:
                inside = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            if place == folder:
                raise AdvisorError(
                    f"cannot be read: {error.strerror}",
                    where=str(folder),
                    hint="have its permissions changed",
                ) from error
            found.append(place)
            continue
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                left.append(Path(entry))
            elif not (entry.is_symlink() and os.path.isdir(entry)):  # noqa: PTH112 - never raises
                found.append(Path(entry))
    return found


def real_path(path: Path) -> Path:
    """Where links lead; of links in a circle one of them (Path.resolve raises RuntimeError).

    Of a link that may not be read, where it stands.
    """
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return path.absolute()


def is_dangling(path: Path) -> bool:
    """Whether it is a link to a file that is not there, or to itself."""
    return path.is_symlink() and not os.path.exists(path)  # noqa: PTH110 - never raises


def why_dangling(path: Path) -> str:
    """What to tell of such a link."""
    try:
        target = path.readlink()
    except OSError as error:
        return f"is a link that cannot be read: {error.strerror}"
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"is a link to {target}, which leads back to itself"
    return f"is a link to {target}, which is missing"


def refuse_irregular(path: Path) -> None:
    """Raise AdvisorError for pipes and devices, which may never end, or never begin."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        os.scandir(path).close()  # raises why it was not searched
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise AdvisorError(
            "is a pipe, and files are read in several passes",
            where=str(path),
            hint="write what comes through it to a file, and pass that (gzip and zstd are read)",
        )
    if not stat.S_ISREG(mode):
        raise AdvisorError("is a device, no file", where=str(path), hint="pass a file or folder")


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Sort key in which rank2 comes before rank10."""
    key: list[tuple[int, int, str]] = []
    number = ""
    for character in f"{path}\0":
        if character.isdecimal() and character.isascii():
            number += character
            continue
        if number:
            key.append((0, int(number), ""))
            number = ""
        key.append((1, 0, character))
    return key
