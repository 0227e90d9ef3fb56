"""Diagnose a folder again whenever its traces have changed and come to rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from advisor.errors import AdvisorError
from advisor.report import numbers

State = dict[str, tuple[int, int]]


def watch(
    paths: Sequence[str], interval_s: float, diagnose: Callable[[], str], *, rounds: int | None
) -> None:
    """Call ``diagnose`` for every new state of ``paths``; its text is printed with the time.

    A file counts only once it has kept its size for one interval (it is being written until
    then). ``rounds`` ends the watch after that many diagnoses; None watches until interrupted.
    """
    seen: State = {}
    previous: State = {}
    done = 0
    told = False
    while rounds is None or done < rounds:
        state = snapshot(paths)
        settled = {path: mark for path, mark in state.items() if previous.get(path) == mark}
        if settled and settled == state and settled != seen:
            seen = dict(settled)
            stamp = time.strftime("%H:%M:%S")
            try:
                click.echo(f"--- {stamp}, {numbers.plural(len(seen), 'file')}\n{diagnose()}")
            except AdvisorError as error:
                # A trace that is not whole yet must not end the watch.
                click.echo(f"--- {stamp} not yet: {error}", err=True)
            done += 1
        if not state and not told:
            told = True
            click.echo(
                f"Nothing in {', '.join(paths)} yet: looking every {interval_s:g} s, Ctrl-C ends",
                err=True,
            )
        previous = state
        if rounds is None or done < rounds:
            time.sleep(interval_s)


def snapshot(paths: Sequence[str]) -> State:
    """Size and modification time of every file under ``paths``."""
    files: State = {}
    for name in paths:
        path = Path(name)
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in inside:
            try:
                status = file.stat()
            except FileNotFoundError:
                continue
            if file.is_file() and not file.name.startswith("."):
                files[str(file)] = (status.st_size, status.st_mtime_ns)
    return files
