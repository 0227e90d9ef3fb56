"""Stores: atomic files, versions, Parquet folders that grow, and queries that cannot reach out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import advisor
from advisor.cli import ingest as ingest_command
from advisor.cli import schema as schema_command
from advisor.cli import sql as sql_command
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.store.schema import parse_schema
from advisor.store.store import SCHEMA_VERSION, Store
from tests.support.marks import long
from tests.support.traces import event, kineto

_RECORDING = Path(__file__).resolve().parents[2] / "fixtures" / "lab-ddp-slow-rank"


def _trace(folder: Path, rank: int, count: int = 5) -> Path:
    path = folder / f"r{rank}.json"
    info = {"backend": "nccl", "rank": rank, "world_size": 4}
    events = [event(n) for n in range(count)]
    for made in events[::2]:
        made["args"] |= {"Collective name": "allreduce", "In msg nelems": 7}
    path.write_text(kineto(events, distributedInfo=info))
    return path


def test_a_failed_ingest_leaves_no_file_and_the_old_one(tmp_path: Path) -> None:
    """GIVEN a store WHEN replacing it fails THEN the old one is there and nothing else."""
    place = tmp_path / "out" / "run.duckdb"
    with Store.create(place) as store:
        ingest([_trace(tmp_path, 0)], store)
        store.save()
    before = place.read_bytes()
    with (
        pytest.raises(AdvisorError, match="no such file"),
        Store.create(place, force=True) as store,
    ):
        ingest([_trace(tmp_path, 1), tmp_path / "absent.json"], store)
    assert place.read_bytes() == before
    assert [item.name for item in place.parent.iterdir()] == ["run.duckdb"]


def test_a_failed_run_leaves_nothing_of_it_in_the_store(tmp_path: Path) -> None:
    twice = [_trace(tmp_path, 0), tmp_path / "copy.json"]
    twice[1].write_bytes(twice[0].read_bytes())
    with Store.create() as store:
        ingest([_trace(tmp_path, 1)], store, run="good")
        with pytest.raises(AdvisorError, match="rank 0 is in two files") as caught:
            ingest(twice, store, run="bad")
        assert "r0.json" in str(caught.value)
        assert "copy.json" in str(caught.value)
        for table in ("run", "event", "comm_event", "rank", "source"):
            assert store.con.execute(f"SELECT DISTINCT run FROM {table}").fetchall() == [("good",)]


def test_parts_of_one_rank_are_joined(tmp_path: Path) -> None:
    paths = []
    for part in range(2):
        path = tmp_path / f"part{part}.json"
        path.write_text(kineto([event(n) for n in range(part * 100, part * 100 + 5)]))
        paths.append(path)
    with Store.create() as store:
        ingest(paths[::-1], store)
        assert store.con.execute("SELECT rank, events_read FROM rank").fetchall() == [(0, 10)]
        notes = store.con.execute("SELECT note FROM source ORDER BY path").fetchall()
        assert notes == [("part 1 of 2 of rank 0",), ("part 2 of 2 of rank 0",)]
        ids = store.con.execute("SELECT count(DISTINCT event_id) FROM event").fetchall()
        assert ids == [(10,)]


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "old.duckdb"
    with Store.create(place) as store:
        store.con.execute("UPDATE meta SET value = '0' WHERE key = 'schema_version'")
        store.save()
    with pytest.raises(AdvisorError, match="schema version 0"):
        Store.open(place)
    with pytest.raises(AdvisorError, match="not a store"):
        Store.open(_trace(tmp_path, 0))


def test_a_parquet_folder_grows_by_ranks_and_reads_like_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for ranks in ((0, 1), (2,), (3,)):
        with Store.create() as store:
            ingest([_trace(tmp_path, rank, 5 + rank) for rank in ranks], store, run="a/../b c'")
            store.write_folder(folder)
    with Store.open(folder) as opened, Store.create() as whole:
        ingest([_trace(tmp_path, rank, 5 + rank) for rank in range(4)], whole, run="a/../b c'")
        for columns, table in (
            ("run, rank, name, start_ns, dur_ns, device, stream, class", "event"),
            ("run, rank, collective, in_elements, count(*)", "comm_event GROUP BY ALL"),
            ("run, rank, world_size, events_read, complete", "rank"),
            ("run, path, rank, blake3, events_read", "source"),
        ):
            query = f"SELECT {columns} FROM {table} ORDER BY ALL"
            assert opened.con.execute(query).fetchall() == whole.con.execute(query).fetchall()
        assert opened.con.execute("SELECT count(*) FROM run").fetchall() == [(1,)]
        ids = opened.con.execute("SELECT source_id FROM source ORDER BY 1").fetchall()
        assert ids == [(0,), (1,), (2,), (3,)]
        opened.lock_down()
        assert opened.con.execute("SELECT count(*) FROM event").fetchall() == [(26,)]
        with pytest.raises(duckdb.Error):
            opened.con.execute(f"SELECT * FROM read_text('{_trace(tmp_path, 0)}')")


def test_a_rank_is_not_written_twice_without_force(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with Store.create() as store:
        ingest([_trace(tmp_path, 0)], store)
        store.write_folder(folder)
        with pytest.raises(AdvisorError, match="rank 0"):
            store.write_folder(folder)
        store.write_folder(folder, force=True)
    with Store.open(folder) as opened:
        assert opened.con.execute("SELECT count(*) FROM event").fetchall() == [(5,)]
    with pytest.raises(AdvisorError, match="not empty"), Store.create() as store:
        store.write_folder(tmp_path)


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    """GIVEN traces WHEN ingested THEN `advisor sql` answers in every format and nothing leaks."""
    runner = CliRunner()
    trace = str(_trace(tmp_path, 0))
    for place in (str(tmp_path / "run.duckdb"), f"{tmp_path}/folder/"):
        made = runner.invoke(ingest_command.command, [trace, "-o", place])
        assert made.exit_code == 0, made.output
        assert "1 rank, 5 events" in made.stderr
        assert made.stdout == ""
        query = "SELECT rank, count(*) AS n FROM event GROUP BY rank"
        asked = runner.invoke(sql_command.command, [place, query, "--format", "json"])
        assert asked.output.replace("\n", "").replace(" ", "") == '[{"rank":0,"n":5}]'
        asked = runner.invoke(sql_command.command, [place, query, "--format", "csv"])
        assert asked.output.splitlines() == ["rank,n", "0,5"]
        asked = runner.invoke(sql_command.command, [place, query])
        assert asked.output.split() == ["rank", "n", "0", "5"]
        for reach in (f"SELECT * FROM read_text('{trace}')", "INSTALL httpfs", "SET threads = 9"):
            refused = runner.invoke(sql_command.command, [place, reach])
            assert isinstance(refused.exception, AdvisorError), reach


def test_small_recordings_have_one_thread_and_large_ones_all() -> None:
    asked = "SELECT current_setting('threads')"
    with duckdb.connect() as con:
        every = con.execute(asked).fetchone()
    with Store.create() as store:
        assert store.con.execute(asked).fetchone() == (1,)
        store.use_threads_sparingly(to_read_bytes=1 << 30)
        assert store.con.execute(asked).fetchone() == every
        store.use_threads_sparingly()  # nothing was read
        assert store.con.execute(asked).fetchone() == (1,)


def test_the_schema_is_documented(tmp_path: Path) -> None:
    tables = {table.name: table for table in parse_schema()}
    with Store.create() as store:
        real = store.con.execute(
            "SELECT table_name, list(column_name ORDER BY ordinal_position) "
            "FROM information_schema.columns WHERE table_name <> 'meta' GROUP BY 1"
        ).fetchall()
    assert {name: list(columns) for name, columns in real} == {
        name: [column.name for column in table.columns] for name, table in tables.items()
    }
    assert all(table.comment for table in tables.values())
    shown = CliRunner().invoke(schema_command.command, ["event"])
    assert "dur_ns" in shown.output
    assert "duration" in shown.output
    unknown = CliRunner().invoke(schema_command.command, ["nope"])
    assert isinstance(unknown.exception, AdvisorError)


def test_batches_without_ranks_stand_beside_each_other(tmp_path: Path) -> None:
    """GIVEN two batches that name no rank WHEN both are written THEN neither replaces the other."""
    folder = tmp_path / "set"
    for name, size in (("one", 1024), ("two", 2048), ("two", 2048)):
        with Store.create() as store:
            con = store.con
            con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('r', '', '')")
            con.execute(
                "INSERT INTO source (run, source_id, path, format, bytes, events_read, "
                "events_dropped) VALUES ('r', 0, ?, 'nccl-tests', ?, 0, 0)",
                [name, size],
            )
            con.execute(
                "INSERT INTO bench (run, tool, op, bytes) VALUES ('r', 'nccl-tests', ?, ?)",
                [name, size],
            )
            store.write_folder(folder)
    with Store.open(folder) as opened:
        assert opened.con.execute("SELECT op, bytes FROM bench ORDER BY ALL").fetchall() == [
            ("one", 1024),
            ("two", 2048),
        ]


def _sql(place: Path, query: str) -> tuple[str, str]:
    done = CliRunner().invoke(sql_command.command, [str(place), query, "--format", "csv"])
    assert done.exception is None, done.exception
    return " ".join(done.stdout.split()), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.duckdb", *long("parquet/")])
def test_sql_answers_from_what_was_read_and_analyses_where_the_query_asks(
    tmp_path: Path, name: str
) -> None:
    """GIVEN a store that nobody diagnosed THEN a count of calls is theirs, not that of no rows."""
    output = f"{tmp_path}/{name}"
    arguments = [str(_RECORDING), "-o", output, "-q"]
    done = CliRunner().invoke(ingest_command.command, arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    read, note = _sql(Path(output), "SELECT count(*) AS n FROM rank")
    assert (read, note) == ("n 4", "")
    with advisor.load(_RECORDING) as run:
        calls = len(run.collectives())
    derived, note = _sql(Path(output), "SELECT count(*) AS n FROM collective")
    assert derived == f"n {calls}"
    assert "analysed for this query" in note
    rules, _ = _sql(Path(output), "SELECT count(*) > 40 AS all_rules FROM outcome")
    assert rules == "all_rules True"


@pytest.mark.slow
def test_sql_takes_traces_as_well_as_a_store() -> None:
    """GIVEN a folder of traces or one trace THEN it is read and analysed for the query."""
    rows, note = _sql(_RECORDING, "SELECT count(*) > 0 AS calls FROM collective")
    assert rows == "calls True"
    assert "To keep the analysis" in note
    rows, _ = _sql(_RECORDING / "rank0.json.gz", "SELECT rank, events_read > 0 AS some FROM rank")
    assert rows == "rank,some 0,True"


def test_a_store_among_traces_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    """Its files are no traces: reading the others alone would lose a run without a word."""
    for name in ("run.duckdb", "parquet/"):
        arguments = [str(_trace(tmp_path, 0)), "-o", f"{tmp_path}/{name}", "-q"]
        assert CliRunner().invoke(ingest_command.command, arguments).exit_code == 0
    (tmp_path / "run.duckdb").rename(tmp_path / "renamed.db")
    for name in ("renamed.db", "parquet"):
        with pytest.raises(AdvisorError, match="is a store"):
            ingest([tmp_path / name, _trace(tmp_path, 1)], Store.create())


def test_a_version_that_is_no_number_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "odd.duckdb"
    with Store.create(place) as store:
        store.con.execute("UPDATE meta SET value = 'next' WHERE key = 'schema_version'")
        store.save()
    with pytest.raises(AdvisorError, match="schema version next"):
        Store.open(place)


def _interrupted_writer(place: Path, folder: bool) -> subprocess.Popen[str]:
    """A process that has a store half written, and says so."""
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from advisor.store.leftovers import SCRATCH_STORE, scratch_folder\n"
        "from advisor.store.store import Store\n"
        "place = Path(sys.argv[1])\n"
        "if sys.argv[2] == 'folder':\n"
        "    place = scratch_folder(place) / SCRATCH_STORE\n"
        "store = Store.create(place, force=True)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(place), "folder" if folder else "file"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path, folder: bool) -> None:
    """GIVEN a writer WHEN it lives THEN its file stays, WHEN it was killed THEN it is removed."""
    place = tmp_path / "run.duckdb"
    with Store.create(place) as store:
        store.save()
    old = place.read_bytes()
    with _interrupted_writer(place, folder) as process:
        try:
            theirs = {item for item in tmp_path.iterdir() if item != place}
            assert theirs
            with Store.create(place, force=True):
                assert theirs <= set(tmp_path.iterdir())
        finally:
            process.kill()
    assert theirs <= set(tmp_path.iterdir())
    with Store.create(place, force=True):
        assert not theirs & set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == [place]
    assert place.read_bytes() == old


def test_a_store_that_cannot_be_begun_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("advisor.store.store.schema_sql", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Store.create(tmp_path / "run.duckdb")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["run.duckdb", "parquet/"])
def test_schema_of_a_store_says_what_it_holds(tmp_path: Path, output: str) -> None:
    place = f"{tmp_path}/{output}"
    trace = str(_trace(tmp_path, 0, count=7))
    made = CliRunner().invoke(ingest_command.command, [trace, "-o", place, "--quiet"])
    assert made.exit_code == 0, made.output
    text = CliRunner().invoke(schema_command.command, [place]).output
    assert f"schema version {SCHEMA_VERSION}" in text
    assert f"run 'run', written by advisor {advisor.__version__}" in text
    found = CliRunner().invoke(schema_command.command, [place, "--format", "json"]).output
    rows = json.loads(found)["rows"]
    assert (rows["event"], rows["rank"], rows["collective"]) == (7, 1, 0)
    assert set(rows) == {table.name for table in parse_schema()}
