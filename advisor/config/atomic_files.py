"""Files that are there whole or not at all, whenever the process ends, and read by nobody else."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

PRIVATE = 0o600
"""What may name hosts, users, paths or commands is its owner's alone."""


def write_atomic(path: Path, text: str, *, mode: int = PRIVATE) -> Path:
    """Write beside ``path`` and rename into place; a file that is replaced keeps its mode."""
    mode = kept_mode(path, mode)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary = Path(name)
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return path


def kept_mode(path: Path, mode: int) -> int:
    """The permissions of the file at ``path``, or ``mode`` where there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else mode
