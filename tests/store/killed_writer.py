"""Writes a Parquet store again and again, killed (SIGKILL) at each next step; a program of its own.

``python killed_writer.py MODE STEP INPUT BEFORE OUT``: for N = 1, 1 + STEP, … the folder ``BEFORE``
is copied to ``OUT/N`` and a child process writes the input into it, but is killed as it opens,
renames or removes the N-th file there. It ends with the first N at which no child was killed, and
prints that. MODE is ``store``, where INPUT is a DuckDB store that is written as Parquet, or
``task``, where INPUT are traces (separated by commas) that one task of a cluster ingests.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import advisor.ingest.ray_task  # imported once, before the first child
from advisor.ingest.from_store import take
from advisor.ingest.ray_plan import Item, Piece
from advisor.store.store import Store

_STEPS = ("open", "os.rename", "os.remove", "os.mkdir")


def main() -> None:
    mode, step, given, before, out = sys.argv[1:]
    paths = given.split(",")
    number, killed = 1 - int(step), True
    while killed:
        number += int(step)
        folder = Path(out) / str(number)
        if Path(before).exists():
            shutil.copytree(before, folder)
        child = os.fork()
        if child == 0:
            _write(mode, paths, folder, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        if not killed and status != 0:
            sys.exit(f"the writer failed at step {number}")
    print(number)


def _write(mode: str, paths: list[str], folder: Path, last: int) -> None:
    left = last

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _STEPS and str(arguments[0]).startswith(f"{folder}/"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if mode == "task":
        if not (folder / "advisor-store.json").exists():  # the driver makes it, before the tasks
            with Store.create() as empty:
                empty.write_folder(folder)
        items = [Item(number, path, True) for number, path in enumerate(paths)]
        pieces = [Piece((item,), rank) for rank, item in enumerate(items, 1)]
        sys.addaudithook(count)
        advisor.ingest.ray_task.read_batch(pieces, advisor.ingest.ray_task.Job(folder, "run"))
    else:
        with Store.create() as store:
            take(Path(paths[0]), store)
            sys.addaudithook(count)
            store.write_folder(folder, force=True)


if __name__ == "__main__":
    main()
