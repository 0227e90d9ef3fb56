"""A writer of a Parquet store that is killed, wherever: its ranks are all there or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.store.batches import Index, is_dead, new_token
from advisor.store.store import Store
from tests.store.test_store import _trace
from tests.support.marks import long

pytestmark = pytest.mark.slow

_SCRIPT = Path(__file__).with_name("killed_writer.py")
_ROOT = Path(__file__).resolve().parents[2]
_TABLES = {
    "event": "run, rank, name, start_ns",
    "comm_event": "run, rank, collective",
    "rank": "run, rank, world_size, events_read",
    "source": "run, path, rank, events_read",
    "run": "run",
    "process_group": "run, process_group, ranks",
}
Content = dict[str, list[tuple[Any, ...]]]


def _content(folder: Path) -> Content:
    """What a reader sees, without the note on what is left over."""
    try:
        with Store.open(folder) as store:
            return {
                table: store.con.execute(
                    f"SELECT {columns} FROM {table} "
                    + ("WHERE format <> 'unknown' " if table == "source" else "")
                    + "ORDER BY ALL"
                ).fetchall()
                for table, columns in _TABLES.items()
            }
    except AdvisorError as error:
        assert "no store" in error.message or "no finished run" in error.message
        return {table: [] for table in _TABLES}


def _write(folder: Path, *traces: Path, force: bool = False) -> None:
    with Store.create() as store:
        ingest(traces, store)
        store.write_folder(folder, force=force)


def _killed(mode: str, step: int, given: str, before: Path, out: Path) -> list[int]:
    """The steps at which the writer was killed, and one at which it was not."""
    out.mkdir()
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), mode, str(step), given, str(before), str(out)],
        capture_output=True,
        text=True,
        check=False,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return list(range(1, int(done.stdout) + 1, step))


@pytest.mark.long
@pytest.mark.parametrize(("present", "every"), [(True, 2), *long((True, 1), (False, 1))])
def test_ranks_appear_at_once_or_not_at_all(tmp_path: Path, present: bool, every: int) -> None:
    """GIVEN a store of ranks 0 and 1, or none, WHEN ranks 1 and 2 are written and the writer is
    killed at any step THEN a reader finds what was there before, or all that was written."""
    before, out = tmp_path / "before", tmp_path / "out"
    if present:
        _write(before, _trace(tmp_path, 0), _trace(tmp_path, 1))
    old = _content(before) if present else {table: [] for table in _TABLES}
    traces = [_trace(tmp_path, 1, count=9), _trace(tmp_path, 2, count=4)]
    with Store.create(tmp_path / "new.duckdb") as store:
        ingest(traces, store)
        events = store.con.execute("SELECT count(*) FROM event").fetchall()[0][0]
        store.save()
    *steps, last = _killed("store", every, str(tmp_path / "new.duckdb"), before, out)
    new = _content(out / str(last))
    assert [row[1] for row in new["rank"]] == ([0, 1, 2] if present else [1, 2])
    assert sum(row[1] > 0 for row in new["event"]) == events
    assert len(new["source"]) == len(new["rank"])
    assert len(steps) > 30 / every
    seen = [_content(out / str(step)) for step in steps]
    assert all(found in (old, new) for found in seen)
    assert old in seen
    assert new in seen  # it looks for leftovers once all is there
    # Whoever writes next cleans up, and nothing stands there twice.
    middle = out / str(steps[len(steps) // 2])
    assert Index(middle).unfinished()
    _write(middle, *traces, force=True)
    assert _content(middle) == new
    assert Index(middle).unfinished() == {}
    assert not list(middle.rglob("*.partial"))


@pytest.mark.long
def test_a_task_of_a_cluster_that_is_killed_leaves_its_ranks_whole_or_out(tmp_path: Path) -> None:
    traces = [_trace(tmp_path, 1, count=9), _trace(tmp_path, 2, count=4)]
    given = ",".join(map(str, traces))
    *steps, last = _killed("task", 9, given, tmp_path / "none", tmp_path / "out")
    new = _content(tmp_path / "out" / str(last))
    assert [row[1] for row in new["rank"]] == [1, 2]
    assert len(steps) > 3
    for step in steps:
        found = _content(tmp_path / "out" / str(step))
        assert found == new or not any(found.values())


def test_what_is_left_over_is_said(tmp_path: Path) -> None:
    """GIVEN the files of a writer that did not end THEN a diagnosis says that they are not read."""
    folder = tmp_path / "set"
    _write(folder, _trace(tmp_path, 0))
    with pytest.raises(AdvisorError, match="is in this store already"):
        _write(folder, _trace(tmp_path, 0))
    (event,) = (folder / "event" / "run=run").iterdir()
    stray = event.with_name("rank=7.00000000-1-abcdef01.parquet")
    stray.write_bytes(event.read_bytes())
    with advisor.load(folder) as run:
        assert run.store.con.execute("SELECT DISTINCT rank FROM event").fetchall() == [(0,)]
        notes = run.diagnose().runs[0].notes
    assert any(note.code == "file-not-read" and note.values["path"] == str(stray) for note in notes)
    (file,) = (folder / "batch" / "run=run").glob("*.json")
    file.unlink()
    with pytest.raises(AdvisorError, match="no finished run"), advisor.load(folder):
        pass


@pytest.mark.parametrize("begin", [".", "tmp_."], ids=["ours", "the database's"])
def test_what_a_killed_copy_left_goes_with_the_next_write(tmp_path: Path, begin: str) -> None:
    folder = tmp_path / "set"
    _write(folder, _trace(tmp_path, 0))
    dead = f"{new_token().split('-')[0]}-{1 << 22}-00"
    left = folder / "event" / "run=run" / f"{begin}rank=7.{dead}.ab_c1.partial"
    left.write_bytes(b"PAR1")
    _write(folder, _trace(tmp_path, 1))
    assert not left.exists()
    with Store.open(folder) as store:
        notes = store.con.execute("SELECT note FROM source WHERE note LIKE '%writer%'").fetchall()
    assert notes == []


def test_files_of_others_stay(tmp_path: Path) -> None:
    """GIVEN a writer of another rank that is at work, here or elsewhere THEN its files stay."""
    folder = tmp_path / "set"
    _write(folder, _trace(tmp_path, 0))
    place = folder / "event" / "run=run"
    machine = new_token().split("-")[0]
    theirs = [place / f"rank=8.{machine}-{os.getppid()}-00.parquet", place / "rank=9.0-1-0.parquet"]
    for file in theirs:
        file.write_bytes(b"")
    _write(folder, _trace(tmp_path, 1))
    assert all(file.exists() for file in theirs)
    assert is_dead(f"{machine}-{1 << 22}-00")


def test_a_layout_without_batches_and_a_damaged_batch_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    _write(folder, _trace(tmp_path, 0))
    marker = folder / "advisor-store.json"
    content = json.loads(marker.read_text())
    marker.write_text(json.dumps({"schema_version": content["schema_version"]}))
    with pytest.raises(AdvisorError, match="laid out as in version 1"):
        Store.open(folder)
    with pytest.raises(AdvisorError, match="laid out as in version 1"):
        _write(folder, _trace(tmp_path, 1))
    marker.write_text(json.dumps({**content, "schema_version": 1}))
    with pytest.raises(AdvisorError, match="written with schema version 1"):
        Store.open(folder)
    marker.write_text(json.dumps(content))
    (file,) = (folder / "batch" / "run=run").glob("*.json")
    file.write_text("{")
    with pytest.raises(AdvisorError, match="damaged"):
        Store.open(folder)
