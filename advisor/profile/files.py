"""Where a recording's files are inside its folder; they are written whole or not at all."""

import json
import os
import platform
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from advisor.config.atomic_files import removed_at_end
from advisor.errors import AdvisorError

_PARTIAL = ".partial-"
LOGS_MODE = 0o700
"""Of a folder ``logs``: what a job prints may be anything."""
_TRACE_NAME = re.compile(rf"({re.escape(_PARTIAL)})?rank\d+\.json\.gz")
JOB_FILE = "logs/job.json"
PROFILE_FILE = "profile.json"


def trace(folder: Path, rank: int) -> Path:
    """A rank's Kineto trace."""
    return folder / f"rank{rank}.json.gz"


def traces(folder: Path) -> list[Path]:
    """All ranks' traces in a folder, also what is left of one half written."""
    return sorted(path for path in folder.glob("*") if _TRACE_NAME.fullmatch(path.name))


def whole(folder: Path) -> list[Path]:
    """The traces that are written to their end."""
    return [path for path in traces(folder) if not path.name.startswith(_PARTIAL)]


def claim(folder: Path, *, force: bool) -> Path:
    """Where this launch records: in ``folder``, or where that has a recording in the next folder.

    A recording of fewer ranks would leave the other ranks' old traces beside its own, and both
    would be read as one; ``force`` removes them. What a rank of this same launch has written is
    newer than its launcher. Ranks that a launcher started again go on with their own recording.
    Raises AdvisorError.
    """
    if force and (folder / JOB_FILE).exists():
        raise AdvisorError(
            "is a recording of `advisor profile`", where=str(folder), hint="name another folder"
        )
    own = _started_s(os.getpid())
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    launched = _started_s(os.getppid()) if again else own
    found = folder
    if not force:
        found = _next(folder, lambda it: (it / JOB_FILE).exists() or bool(_older(it, launched)))
    for path in _older(found, own):
        path.unlink(missing_ok=True)
    return found


def next_free(folder: Path, *, force: bool = False) -> Path:
    """``folder``, or where it has a recording FOLDER-2, FOLDER-3 ...; its traces go by ``force``.

    Raises AdvisorError where they are of `advisor profile`.
    """
    if force:
        return claim(folder, force=True)
    return _next(folder, lambda it: bool(traces(it)) or (it / "logs").exists())


def _next(folder: Path, taken: Callable[[Path], bool]) -> Path:
    found, number = folder, 1
    while taken(found):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _older(folder: Path, than_s: float) -> list[Path]:
    """Traces in a folder from before a time."""
    found = []
    for path in traces(folder):
        with suppress(FileNotFoundError):  # another rank removes them as well
            if path.stat().st_mtime < than_s:
                found.append(path)
    return found


def _started_s(process: int) -> float:
    """When a process started; field 22 of proc(5)'s stat is in ticks since boot."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def result(folder: Path, rank: int) -> Path:
    """A rank's step times, losses and memory."""
    return folder / "logs" / f"rank{rank}.result.json"


def snapshot(folder: Path, rank: int) -> Path:
    """A rank's CUDA memory snapshot."""
    return folder / "logs" / f"rank{rank}.memory.pickle"


def board(folder: Path, node: int) -> Path:
    """The progress board of a node's ranks."""
    return folder / "logs" / f"progress-{node}"


def write_json(path: Path, document: Any) -> None:
    """Write a document and rename it into place; several nodes may write the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".partial-{platform.node()}-{os.getpid()}-{path.name}")
    with removed_at_end(temporary):
        temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
        temporary.replace(path)
