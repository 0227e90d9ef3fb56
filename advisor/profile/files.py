"""Where a recording's files are inside its folder; they are written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JOB_FILE = "logs/job.json"
PROFILE_FILE = "profile.json"


def trace(folder: Path, rank: int) -> Path:
    """A rank's Kineto trace."""
    return folder / f"rank{rank}.json.gz"


def result(folder: Path, rank: int) -> Path:
    """A rank's step times, losses and memory."""
    return folder / "logs" / f"rank{rank}.result.json"


def board(folder: Path, node: int) -> Path:
    """The progress board of a node's ranks."""
    return folder / "logs" / f"progress-{node}"


def write_json(path: Path, document: Any) -> None:
    """Write a document and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".partial-{path.name}")
    temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
    temporary.replace(path)
