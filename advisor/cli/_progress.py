"""A progress bar on a terminal only: bytes with rate and time left, then the phases by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.vocabulary.phases import listening

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn

    from advisor.ingest.ray_map import ClusterProgress
    from advisor.ingest.source import Progress


@contextmanager
def progress_bar(paths: Sequence[Path], *, enabled: bool = True) -> Iterator[Progress | None]:
    """Yields a callback for readers of ``paths``, or None where nobody would see the bar.

    What is announced inside the block (advisor/vocabulary/phases.py) takes the readers' place.
    """
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TimeElapsedColumn

    from advisor.ingest.paths import expand, is_dangling

    files = [found.path for found in expand(paths)]
    total = sum(file.stat().st_size for file in files if not is_dangling(file))
    done: dict[str, int] = {}
    with _bar() as bar:
        task = bar.add_task("reading", total=total, visible=bool(files))
        shown = ""

        def advance(path: str, read_bytes: int, size_bytes: int) -> None:
            done[path] = min(read_bytes, size_bytes)
            bar.update(task, completed=sum(done.values()), description=Path(path).name[:40])

        def show(phase: str, completed: int, parts: int | None) -> None:
            nonlocal task, shown
            if phase != shown:
                bar.remove_task(task)
                bar.columns = (_description(), BarColumn(), TimeElapsedColumn())
                task, shown = bar.add_task(phase, total=parts), phase
            of_parts = f" {completed}/{parts}" if parts else ""
            bar.update(task, completed=completed, description=f"{phase}{of_parts}")

        with listening(show):
            yield advance


@contextmanager
def cluster_bar(*, enabled: bool = True) -> Iterator[ClusterProgress | None]:
    """As :func:`progress_bar`, for the bytes of the files that a cluster has done."""
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    with _bar() as bar:
        task = bar.add_task("reading", total=None)

        def advance(done_bytes: int, total_bytes: int) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes)

        yield advance


def _description() -> TextColumn:
    from rich.progress import TextColumn

    return TextColumn("{task.description}", markup=False)


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        _description(),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)
