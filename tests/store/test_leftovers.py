"""What writers that died left behind is tidied, also of other stores; nothing else is touched."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from advisor.store.leftovers import clear_leftovers
from advisor.store.store import Store

_HOLD = (
    "import duckdb, sys\ncon = duckdb.connect(sys.argv[1])\nprint('open', flush=True)\ninput()\n"
)


def _database(path: Path, age_s: float) -> Path:
    duckdb.connect(str(path)).close()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_old_halves_of_other_stores_go_and_the_rest_stays(tmp_path: Path) -> None:
    gone = [
        _database(tmp_path / ".run.duckdb.99999999.abcd_123.partial", 0),
        _database(tmp_path / ".other.duckdb.99999999.abcd_123.partial", 7200),
    ]
    kept = [
        _database(tmp_path / ".fresh.duckdb.99999999.abcd_123.partial", 0),
        _database(tmp_path / f".mine.duckdb.{os.getpid()}.abcd_123.partial", 7200),
        _database(tmp_path / ".download.partial", 7200),
        _database(tmp_path / "whole.duckdb", 7200),
    ]
    text = tmp_path / ".notes.txt.99999999.abcd_123.partial"
    text.write_text("not a database, whatever it is called")
    os.utime(text, (0, 0))
    clear_leftovers(tmp_path / "run.duckdb")
    assert [path for path in gone if path.exists()] == []
    assert sorted(tmp_path.iterdir()) == sorted([*kept, text])


def test_an_interrupt_while_a_store_is_closed_leaves_nothing(tmp_path: Path) -> None:
    """GIVEN Ctrl-C in the moment in which an unsaved store is closed."""
    store = Store.create(tmp_path / "run.duckdb")
    con, store._con = store.con, _Interrupted()
    assert len(list(tmp_path.iterdir())) >= 1
    with pytest.raises(KeyboardInterrupt), store:
        con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('r', '', '')")
    del store
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_saved_store_stays_when_it_goes_out_of_scope(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run.duckdb")
    store.save()
    del store
    gc.collect()
    assert list(tmp_path.iterdir()) == [tmp_path / "run.duckdb"]


class _Interrupted:
    def close(self) -> None:
        raise KeyboardInterrupt


def test_a_store_that_another_process_writes_stays(tmp_path: Path) -> None:
    """GIVEN a database that is held open THEN it stays, however old; once let go, it goes."""
    path = tmp_path / ".other.duckdb.99999999.abcd_123.partial"
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        os.utime(path, (0, 0))
        clear_leftovers(tmp_path / "run.duckdb")
        assert path.exists()
        holder.communicate(b"\n")
    os.utime(path, (0, 0))
    clear_leftovers(tmp_path / "run.duckdb")
    assert list(tmp_path.iterdir()) == []
