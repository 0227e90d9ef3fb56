"""Expands what people pass (files, folders, patterns) into a list of files, each once."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError

_MAX_FILES = 100_000


@dataclass(frozen=True)
class Found:
    """One file. ``named``: the user named it, so that it must be readable."""

    path: Path
    named: bool


def expand(paths: Iterable[str | Path]) -> list[Found]:
    """The files behind ``paths``: folders are searched, hidden files left out; sorted within one.

    Raises :class:`AdvisorError` when something does not exist or a pattern matches nothing.
    """
    found: dict[Path, Found] = {}
    for given in paths:
        for item in _expand_one(Path(given)):
            found.setdefault(item.path.resolve(), item)
            if len(found) > _MAX_FILES:
                raise AdvisorError(
                    f"more than {_MAX_FILES} files", where=str(given), hint="pass fewer at once"
                )
    return list(found.values())


def _expand_one(path: Path) -> list[Found]:
    if path.is_dir():
        inside = [item for item in path.rglob("*") if item.is_file() and not _hidden(item, path)]
        if not inside:
            raise AdvisorError(
                "this folder holds no files",
                where=str(path),
                hint="name the folder that the profiler wrote to: advisor explain steps",
            )
        return [Found(item, named=False) for item in sorted(inside, key=natural_key)]
    if path.exists():
        return [Found(path, named=True)]
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


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


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
