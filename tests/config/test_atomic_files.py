"""A file is there whole or not at all, and what a killed writer left goes with the next."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.config.atomic_files import _HALF_WRITTEN, _locked, write_atomic
from advisor.store.parquet import prepare_parquet


def _killed_before_it_is_whole(write: Callable[[], object]) -> None:
    child = os.fork()
    if not child:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        write()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    write_atomic(place, "one")
    _killed_before_it_is_whole(lambda: write_atomic(place, "two"))
    assert place.read_text() == "one"
    assert len(list(tmp_path.iterdir())) == 2
    write_atomic(place, "three")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("report.html", "three")
    ]
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_writer_at_work_keeps_its_file(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    at_work = tmp_path / f".report.html.0{_HALF_WRITTEN}"
    handle = _locked(at_work)
    write_atomic(place, "another's")
    assert at_work.exists()
    os.close(handle)
    write_atomic(place, "a third one's")
    assert not at_work.exists()


def test_one_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[Path] = []
    real = os.fstat

    def removed(handle: int) -> os.stat_result:
        if not first:
            first.extend(tmp_path.iterdir())
            first[0].unlink()
        return real(handle)

    monkeypatch.setattr(os, "fstat", removed)
    write_atomic(tmp_path / "a", "whole")
    assert first
    assert (tmp_path / "a").read_text() == "whole"


def test_a_store_whose_first_writer_was_killed_at_once_is_empty(tmp_path: Path) -> None:
    """GIVEN one killed while it said what the folder is THEN the next one may write there."""
    folder = tmp_path / "set"
    _killed_before_it_is_whole(lambda: prepare_parquet(folder, schema_version=7))
    assert len(list(folder.iterdir())) == 1
    prepare_parquet(folder, schema_version=7)
    assert [path.name for path in folder.iterdir()] == ["advisor-store.json"]


def test_a_signal_while_the_file_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_to_end(*_: int) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    monkeypatch.setattr(fcntl, "flock", asked_to_end)
    with pytest.raises(SystemExit):
        write_atomic(tmp_path / "report.html", "text")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_the_file_is_removed_leaves_none_at_the_end_of_the_process(
    tmp_path: Path,
) -> None:
    """GIVEN a database that a signal stops: its exception comes where the file would be removed."""
    script = """
import signal, sys
from pathlib import Path
from advisor.config import atomic_files
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(143))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.raise_signal(signal.SIGTERM)
really = atomic_files.remove
def stopped(place):
    atomic_files.remove = really
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    really(place)
atomic_files.remove = stopped
with atomic_files.half_written(Path("rank=0.parquet")) as temporary:
    temporary.write_bytes(b"half")
    raise RuntimeError("the query was stopped")
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert ended.returncode == 143
    assert list(tmp_path.iterdir()) == []
