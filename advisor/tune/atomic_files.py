"""Files that are there whole or not at all, whenever the process ends."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, text: str, *, mode: int | None = None) -> Path:
    """Write beside ``path`` and rename into place."""
    temporary = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        temporary.write_text(text, encoding="utf-8")
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
