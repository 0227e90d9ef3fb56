"""What runs are called where nobody names them: by their files and folders."""

import re
from collections.abc import Sequence
from pathlib import Path

# What names a trace's format, not its run: `lr-0.1.pt.trace.json.gz` is the run lr-0.1.
_TRACE_ENDING = re.compile("json|jsonl|sqlite|db|duckdb|parquet|log|txt|csv|xml|gz|zst|xz|bz2")


def run_names(paths: Sequence[str | Path]) -> list[str]:
    """A short distinct name for each of several runs, from their paths."""
    names = [_without_endings(Path(path).name) or str(path) for path in paths]
    if len(set(names)) < len(names):
        # What all of them begin with tells none apart.
        parts = [Path(path).parts for path in paths]
        most = min(map(len, parts)) - 1
        same = next((i for i in range(most) if len({own[i] for own in parts}) > 1), most)
        names = ["-".join(own[same:]).strip("./").replace("/", "-") or "run" for own in parts]
    return [
        name if names.count(name) == 1 else f"{name}-{index + 1}"
        for index, name in enumerate(names)
    ]


def _without_endings(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    if not _TRACE_ENDING.fullmatch(ending):
        return name
    while _TRACE_ENDING.fullmatch(ending):
        name = stem
        stem, _, ending = name.rpartition(".")
    return name.removesuffix(".pt.trace")
