"""CUDA's own memory snapshot: every allocation with its stack, for pytorch.org/memory_viz.

torch keeps the history while the job runs, which costs some host time in every step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_MOST_ENTRIES = 200_000  # allocations and frees that are kept, the latest ones


@contextmanager
def memory_snapshot(path: Path) -> Iterator[None]:
    """Keep the history of allocations in the body, and write it, also after an exception."""
    torch.cuda.memory._record_memory_history(max_entries=_MOST_ENTRIES)
    try:
        yield
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(enabled=None)
