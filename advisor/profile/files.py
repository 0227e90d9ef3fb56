"""Where a recording's files are inside its folder; they are written whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

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


def claim(folder: Path, *, force: bool) -> None:
    """Make sure that no earlier recording is in the folder: with ``force`` its traces are removed.

    A recording of fewer ranks would leave the other ranks' old traces beside its own, and both
    would be read as one. What a rank of this same launch has written is not earlier: it is newer
    than this process. Raises AdvisorError.
    """
    if (folder / JOB_FILE).exists():
        raise AdvisorError(
            "is a recording of `advisor profile`", where=str(folder), hint="name another folder"
        )
    started = time.time() - _age_s()
    earlier = []
    for path in traces(folder):
        try:
            if path.stat().st_mtime < started:
                earlier.append(path)
        except FileNotFoundError:
            continue  # another rank removes them as well
    # A launcher that starts its ranks again goes on with the same recording.
    if earlier and not force and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        raise AdvisorError(
            f"has an earlier recording ({earlier[0].name} and others, {len(earlier)} in all), "
            "which would be mixed with this one"
            if len(earlier) > 1
            else f"has an earlier recording ({earlier[0].name})",
            where=str(folder),
            hint="name another folder, or --force (in Python: force=True) to remove its traces",
        )
    for path in earlier:
        path.unlink(missing_ok=True)


def next_free(folder: Path) -> Path:
    """``folder``, or where it has a recording FOLDER-2, FOLDER-3 ..."""
    found, number = folder, 1
    while traces(found) or (found / "logs").exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _age_s() -> float:
    """How long ago this process started; field 22 of proc(5)'s stat is in ticks since boot."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


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
    try:
        temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
