"""The sweep's record: one JSON line per finished trial, flushed to disk, so that a kill loses one.

The first line holds what the sweep is (workload, axes, version); ``--resume`` refuses a journal
of another sweep instead of mixing them.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from advisor.config.atomic_files import write_atomic
from advisor.errors import AdvisorError
from advisor.tune.trial import TrialResult

FILE_NAME = "trials.jsonl"
UNCHANGED = "begin a new sweep with another -o; nothing here was changed"


def require_journal(folder: Path) -> None:
    """Raise AdvisorError where there is no sweep to go on with."""
    if not (folder / FILE_NAME).is_file():
        raise AdvisorError(
            "holds no sweep to resume" if folder.exists() else "no such folder to resume from",
            where=str(folder),
            hint="name the sweep's folder with -o, or leave --resume out to begin one",
        )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of the folder meanwhile: two journals in one would mix their trials.

    The lock ends with the process, however that ends. Raises AdvisorError where one runs there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AdvisorError(
                    "another sweep runs in this folder",
                    where=str(folder),
                    hint="let it end first, or name another folder with -o",
                ) from error
        yield
    finally:
        os.close(handle)


class Journal:
    """Appends results; reads those of an earlier, interrupted sweep."""

    def __init__(self, folder: Path, header: dict[str, Any], *, resume: bool) -> None:
        self.path = folder / FILE_NAME
        self.results: list[TrialResult] = []
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            if not resume:
                raise AdvisorError(
                    "holds an earlier sweep", where=str(folder), hint="pass --resume or another -o"
                )
            self._read(header)
        else:
            self._append(header)

    @property
    def next_sitting(self) -> int:
        """The sitting that begins now: 0, and one more each time the sweep is resumed."""
        return max((result.sitting for result in self.results), default=-1) + 1

    def add(self, result: TrialResult) -> None:
        """Keep one result; it is on the disk when this returns.

        Raises AdvisorError where somebody removed the journal: a new one would lack its beginning.
        """
        self.require_there()
        self.results.append(result)
        self._append(result.to_json())

    def require_there(self) -> None:
        """Raise AdvisorError where somebody removed the journal while the sweep ran."""
        if not self.path.is_file():
            raise AdvisorError(
                f"{FILE_NAME} was removed while the sweep ran; its results are lost",
                where=str(self.path.parent),
                hint="leave the sweep's folder alone until it ends, and begin again",
            )

    def drop_last(self, count: int) -> None:
        """Forget the last ``count`` results, on the disk too: they will be run again."""
        if not count:
            return
        del self.results[-count:]
        lines = self.path.read_text(encoding="utf-8").splitlines()[:-count]
        write_atomic(self.path, "".join(f"{line}\n" for line in lines))

    def _append(self, document: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _require_no_trials(self) -> None:
        """Raise AdvisorError where trials ran whose journal has lost its first line."""
        trials = self.path.parent / "trials"
        if trials.is_dir() and any(trials.iterdir()):
            said = "has lost its first line, and with it the results of the trials beside it"
            raise AdvisorError(said, where=str(self.path), hint=UNCHANGED)

    def _read(self, header: dict[str, Any]) -> None:
        text = self.path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        # A kill in the middle of a write leaves an unfinished last line: that trial is run again.
        cut = bool(lines) and not text.endswith("\n")
        if cut:
            lines = lines[:-1]
        if not lines:
            self._require_no_trials()
            if cut:
                write_atomic(self.path, "")
            self._append(header)
            return
        try:
            found = json.loads(lines[0])
            self.results = [TrialResult.from_json(line) for line in lines[1:]]
        except (ValueError, RecursionError) as error:
            raise AdvisorError("is not a journal of a sweep", where=str(self.path)) from error
        if json.loads(json.dumps(header)) != found:
            raise AdvisorError(
                "holds a sweep of another workload or space",
                where=str(self.path),
                hint="use the same arguments, or another -o",
            )
        settings = header["start"].keys()
        if any(one.configuration.keys() != settings for one in self.results):
            said = "holds trials of other settings"
            raise AdvisorError(said, where=str(self.path), hint=UNCHANGED)
        if cut:
            write_atomic(self.path, "".join(f"{line}\n" for line in lines))
