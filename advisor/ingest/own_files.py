"""Files that `advisor profile` and sweeps write beside their traces: no file that went unread."""

from collections.abc import Collection, Iterable
from pathlib import PurePath, PurePosixPath

_LOGS = {("logs", "job.json"), ("logs", "command.log")}
_OF_SWEEPS = {"trials.jsonl", "trial.json"}
_STATED, _HEAD_BYTES = b'"advisor_version"', 4096


def own_folders(paths: Iterable[PurePath | str]) -> frozenset[str]:
    """The folders among ``paths`` (files, as paths or URLs) that our runs and sweeps fill."""
    files = [PurePosixPath(path) for path in paths]
    return frozenset(
        str(path.parent) for path in files if path.parts[-2:] in _LOGS or path.name in _OF_SWEEPS
    )


def is_own(place: PurePath | str, head: bytes, folders: Collection[str]) -> bool:
    """Whether a file that no reader takes is ours, by its place or its first bytes (``head``).

    ``folders`` are those of :func:`own_folders`; ranks that had nothing to say leave empty logs.
    """
    is_inside = any(str(parent) in folders for parent in PurePosixPath(place).parents)
    return is_inside or _STATED in head[:_HEAD_BYTES]
