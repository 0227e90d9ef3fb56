"""A progress bar with rate and time left, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.ingest.source import Progress


@contextmanager
def progress_bar(paths: Sequence[Path], *, enabled: bool = True) -> Iterator[Progress | None]:
    """Yields a callback for readers, or None where nobody would see the bar."""
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    from advisor.ingest.paths import expand

    total = sum(found.path.stat().st_size for found in expand(paths))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    done: dict[str, int] = {}
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)

        def advance(path: str, read_bytes: int, size_bytes: int) -> None:
            done[path] = min(read_bytes, size_bytes)
            bar.update(task, completed=sum(done.values()), description=Path(path).name[:40])

        yield advance
