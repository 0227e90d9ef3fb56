"""What writers that died left behind is tidied, also of other stores; nothing else is touched."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from advisor.cli import ingest as ingest_command
from advisor.store.leftovers import clear_leftovers
from advisor.store.store import Store

ROOT = Path(__file__).resolve().parents[2]
_HOLD = (
    "import duckdb, sys\ncon = duckdb.connect(sys.argv[1])\nprint('open', flush=True)\ninput()\n"
)


def _database(path: Path, age_s: float) -> Path:
    duckdb.connect(str(path)).close()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_old_halves_of_other_stores_go_and_the_rest_stays(tmp_path: Path) -> None:
    gone: list[Path] = []
    kept = [
        _database(tmp_path / ".other.duckdb.99999999.abcd_123.partial", 7200),  # a file of another
        _database(tmp_path / ".download.partial", 7200),
        _database(tmp_path / "whole.duckdb", 7200),
    ]
    for name, age_s, places in (
        (".run.duckdb.99999999.abcd_124.partial", 0, gone),
        (".other.duckdb.99999999.abcd_124.partial", 7200, gone),
        (".fresh.duckdb.99999999.abcd_124.partial", 0, kept),
        (f".mine.duckdb.{os.getpid()}.abcd_124.partial", 7200, kept),
    ):
        (tmp_path / name).mkdir()
        _database(tmp_path / name / "half.duckdb", age_s)
        places.append(tmp_path / name)
    for name, age_s, places in (
        (".begun.duckdb.99999999.abcd_125.partial", 7200, gone),
        (".begun.duckdb.99999999.abcd_126.partial", 0, kept),
    ):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
        places.append(tmp_path / name)
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


@pytest.mark.parametrize(
    "made",
    [
        "writing.callback(remove_partial, partial_file(Path('run.duckdb')))",
        "writing.callback(remove, scratch_folder(Path('set')))",
        "writing.enter_context(temporary_folder('look'))",
    ],
)
def test_a_signal_while_a_folder_is_removed_leaves_none(tmp_path: Path, made: str) -> None:
    script = f"""
import contextlib, shutil, sys, tempfile
from pathlib import Path
from advisor.config.atomic_files import remove
from advisor.ingest.scratch import temporary_folder
from advisor.store.leftovers import partial_file, remove_partial, scratch_folder
tempfile.tempdir = "."
writing = contextlib.ExitStack()
{made}
really = shutil.rmtree
def stopped(*_, **__):
    shutil.rmtree = really
    sys.exit(143)
shutil.rmtree = stopped
assert list(Path().iterdir())
writing.close()
sys.exit(143)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert ended.returncode == 143
    assert list(tmp_path.iterdir()) == []


class _Interrupted:
    def close(self) -> None:
        raise KeyboardInterrupt


def test_a_store_that_another_process_writes_stays(tmp_path: Path) -> None:
    """GIVEN a database that is held open THEN it stays, however old; once let go, it goes."""
    folder = tmp_path / ".other.duckdb.99999999.abcd_123.partial"
    folder.mkdir()
    path = folder / "half.duckdb"
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


def _open_to_others(folder: Path) -> list[str]:
    """Files below a folder that others can read: they may, and may enter every folder above."""
    found = []
    for place in sorted(path for path in folder.rglob("*") if path.is_file()):
        way = [place, *(above for above in place.parents if folder in above.parents)]
        if all(one.stat().st_mode & 0o077 for one in way):
            found.append(str(place.relative_to(folder)))
    return found


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
@pytest.mark.parametrize("name", ["run.duckdb", "store/"])
def test_nobody_else_can_read_a_store_while_it_is_written(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a job whose umask takes nothing THEN its stores are its owner's at every step."""
    fixture = ROOT / "fixtures" / "gpt2-tiny-ddp-2"
    looked = []

    def replace(self: Path, target: Path) -> Path:
        looked.append(_open_to_others(tmp_path))
        os.replace(self, target)  # noqa: PTH105 - it stands in for Path.replace
        return target

    save = Store.save

    def look_and_save(self: Store) -> None:
        looked.append(_open_to_others(tmp_path))
        assert list(tmp_path.rglob("*.wal"))
        save(self)

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Store, "save", look_and_save)
    arguments = [str(fixture), "-o", f"{tmp_path}/{name}", "-q"]
    assert CliRunner().invoke(ingest_command.command, arguments).exit_code == 0
    assert looked
    assert not any(looked)
    assert _open_to_others(tmp_path) == []


@pytest.mark.usefixtures("_no_umask")
def test_nobody_else_can_read_what_is_not_yet_in_a_store_or_never_will_be(tmp_path: Path) -> None:
    """GIVEN rows in the database's log WHEN their writer is killed THEN they stay its owner's."""
    script = (
        "import os, sys, pathlib\n"
        "from advisor.store.store import Store\n"
        "store = Store.create(pathlib.Path(sys.argv[1]))\n"
        "store.con.execute('INSERT INTO meta SELECT range, 1 FROM range(99999)')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "run.duckdb")], check=False)
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["half.duckdb", "half.duckdb.wal"]
    assert _open_to_others(tmp_path) == []
    clear_leftovers(tmp_path / "run.duckdb")
    assert list(tmp_path.iterdir()) == []
