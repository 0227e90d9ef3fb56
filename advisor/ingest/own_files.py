"""Files that `advisor profile` writes beside its traces: no file that went unread."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePath, PurePosixPath

_JOB = ("logs", "job.json")
_STATED, _HEAD_BYTES = b'"advisor_version"', 4096


def log_folders(paths: Iterable[PurePath | str]) -> frozenset[str]:
    """The folders among ``paths`` (files, as paths or URLs) where our runs keep their logs."""
    files = [PurePosixPath(path) for path in paths]
    return frozenset(str(path.parent) for path in files if path.parts[-2:] == _JOB)


def is_own(place: PurePath | str, head: bytes, folders: Collection[str]) -> bool:
    """Whether a file that no reader takes is ours, by its place or its first bytes (``head``).

    ``folders`` are those of :func:`log_folders`; ranks that had nothing to say leave empty logs.
    """
    is_log = any(str(parent) in folders for parent in PurePosixPath(place).parents)
    return is_log or _STATED in head[:_HEAD_BYTES]
