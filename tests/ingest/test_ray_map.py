"""Ingest on a real cluster of two nodes, with workers and a node that die while they write.

Without Ray the tests are skipped; with ADVISOR_REQUIRE_RAY=1, as CI sets it, they fail instead.
Starting workers is most of their time: one cluster serves all, and no death is caused twice.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor.cli.ingest import command
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.store.store import Store

pytestmark = pytest.mark.slow

_TABLES = {
    "event": "event_id, run, path",  # event ids count per store
    "comm_event": "event_id, run",
    "rank": "run",
    "process_group": "run",
    "topology": "run, source",
    "source": "run, source_id, path",
}
_LOG = """\
host0:100:100 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
host0:100:120 [0] NCCL INFO comm 0x5581 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0xab - Init START
host1:200:220 [0] NCCL INFO comm 0x5582 rank 1 nranks 2 cudaDev 0 busId 1000 commId 0xab - Init START
host0:100:120 [0] NCCL INFO comm 0x5581 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xab - Init COMPLETE
host1:200:220 [0] NCCL INFO comm 0x5582 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xab - Init COMPLETE
"""  # noqa: E501 - lines of a log


def _missing(what: str) -> None:
    if os.environ.get("ADVISOR_REQUIRE_RAY") == "1":
        pytest.fail(f"{what} (ADVISOR_REQUIRE_RAY=1)")
    pytest.skip(what)


class _Nodes:
    """Two nodes with one processor each; ``second`` may be killed by the last test."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._add(include_dashboard=False)
        self.second = self._add()

    def _add(self, **options: Any) -> Any:
        """Ray gives a node 30 s to start, which a busy machine may miss."""
        for _ in range(3):
            try:
                return self._cluster.add_node(num_cpus=1, object_store_memory=80 << 20, **options)
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
        _missing("this machine is too busy to start a Ray node within 30 s, three times")
        return None

    def kill_second(self) -> None:
        """As if the machine lost its power."""
        self._cluster.remove_node(self.second, allow_graceful=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[_Nodes]:
    """Two nodes, and this process connected to them."""
    if importlib.util.find_spec("ray") is None:
        _missing("ray is not installed: pip install 'nccl-advisor[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    running = Cluster()
    try:
        nodes = _Nodes(running)
        ray.init(address=running.address, log_to_driver=False, logging_level="ERROR")
        assert len({node["NodeID"] for node in ray.nodes() if node["Alive"]}) == 2
        yield nodes
    finally:
        ray.shutdown()
        running.shutdown()


def _trace(folder: Path, rank: int | None, *, start_us: int = 1_000, world: int = 2) -> Path:
    """A small trace whose events name their rank."""
    shown = "x" if rank is None else rank
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"aten::op{shown}_{number}",
            "pid": 1,
            "tid": 1,
            "ts": start_us + 10 * number,
            "dur": 5.123,
        }
        for number in range(20)
    ]
    text: dict[str, Any] = {"schemaVersion": 1}
    if rank is not None:
        text["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": world}
    folder.mkdir(parents=True, exist_ok=True)
    # Without a number, since that of a name would be taken for the rank.
    path = folder / ("other.json" if rank is None else f"r{rank}_{start_us}.json")
    path.write_text(json.dumps(text | {"traceEvents": events}, indent=1))
    return path


def _rows(store: Store, table: str) -> list[Any]:
    columns = [
        name
        for (name, *_) in store.con.execute(f"DESCRIBE {table}").fetchall()
        if name not in _TABLES[table].split(", ")
    ]
    return store.con.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY ALL").fetchall()


def _assert_same(folder: Path, paths: Sequence[Path]) -> None:
    """The store on disk holds what one process reads into one store."""
    with Store.create() as expected, Store.open(folder) as found:
        ingest(paths, expected)
        for table in _TABLES:
            assert _rows(found, table) == _rows(expected, table), table
        ids = "SELECT count(*), count(DISTINCT source_id) FROM source"
        assert len(set(found.con.execute(ids).fetchone())) == 1


def _run(paths: Sequence[str | Path], folder: Path | str, **options: Any) -> Any:
    from advisor.ingest.ray_map import ingest_on_ray

    return ingest_on_ray(paths, folder, **options)


def test_the_same_rows_as_in_one_process(
    cluster: _Nodes, tmp_path: Path, fixtures_dir: Path
) -> None:
    traces = fixtures_dir / "gpt2-tiny-ddp-2"
    seen: list[tuple[int, int]] = []
    summary = _run([traces], tmp_path / "set", progress=lambda *done: seen.append(done))
    _assert_same(tmp_path / "set", [traces])
    assert (summary.ranks, summary.failed) == (2, [])
    assert seen[-1][0] <= seen[-1][1]
    assert seen == sorted(seen)


@pytest.mark.long
def test_parts_ranks_without_number_urls_and_logs(cluster: _Nodes, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    for start_us in (1_000, 9_000):
        _trace(traces, 0, start_us=start_us)
    _trace(traces, None)  # does not say its rank: the free one is 1
    (traces / "nccl.log").write_text(_LOG)
    (traces / "notes.txt").write_text("hello\n")
    _run([traces.as_uri()], tmp_path / "set")
    _assert_same(tmp_path / "set", [traces])
    with Store.open(tmp_path / "set") as store:
        hosts = store.con.execute("SELECT rank, host FROM rank ORDER BY rank").fetchall()
        paths = store.con.execute("SELECT path FROM source").fetchall()
        facts = store.con.execute("SELECT source FROM topology WHERE source IS NOT NULL").fetchall()
    assert hosts == [(0, "host0"), (1, "host1")]
    assert all(path.startswith("file://") for (path,) in paths)
    assert facts
    assert all(place.startswith(f"{traces.as_uri()}/nccl.log:") for (place,) in facts)


def _dying(deaths: Path, at_files: Sequence[int]) -> Callable[..., Any]:
    """A task that kills its worker as it writes these files: at each of them once in all."""

    def read_batch(batch: Any, job: Any) -> Any:
        import advisor.ingest.ray_task as task
        from advisor.store import parquet

        write, count = parquet._copy, [0]

        def copy(con: Any, query: str, values: Any, place: Path) -> None:
            count[0] += 1
            if count[0] in at_files:
                try:
                    (deaths / str(count[0])).touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    half = place.parent / f".{place.stem}.killed.partial"
                    half.write_bytes(b"PAR1 and no more")
                    os._exit(1)
            write(con, query, values, place)

        parquet._copy = copy
        try:
            return task.read_batch(batch, job)
        finally:
            parquet._copy = write

    return read_batch


@pytest.mark.long
def test_killed_workers_lose_no_rank_and_double_none(cluster: _Nodes, tmp_path: Path) -> None:
    """Killed between a rank's events and its row, and in the events of the task's next rank."""
    traces, folder, deaths = tmp_path / "traces", tmp_path / "set", tmp_path / "deaths"
    for rank in range(16):
        _trace(traces, rank, world=16)
    deaths.mkdir()
    summary = _run([traces], folder, read_batch=_dying(deaths, (2, 3)))
    died = {path.name for path in deaths.iterdir()}
    assert died == {"2", "3"}, "a worker was not killed: the test shows nothing"
    assert (summary.ranks, summary.failed) == (16, [])
    _assert_same(folder, [traces])
    assert not list(folder.rglob("*.partial"))


@pytest.mark.long
def test_a_trace_that_kills_every_worker_is_named_and_the_others_are_read(
    cluster: _Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.ingest.ray_map.MAX_RETRIES", 0)  # each death costs a new worker
    traces, folder = tmp_path / "traces", tmp_path / "set"
    for rank in range(12):
        _trace(traces, rank, world=12)

    def poisoned(batch: Any, job: Any) -> Any:
        import advisor.ingest.ray_task as task

        if any(piece.rank == 7 for piece in batch):
            os.kill(os.getpid(), signal.SIGKILL)
        return task.read_batch(batch, job)

    summary = _run([traces], folder, read_batch=poisoned)
    ((path, reason),) = summary.failed
    assert Path(path).name == "r7_1000.json"
    assert "worker died on it" in reason
    assert summary.ranks == 11
    _assert_same_without(folder, [traces / f"r{rank}_1000.json" for rank in range(12) if rank != 7])


def _assert_same_without(folder: Path, paths: Sequence[Path]) -> None:
    with Store.create() as expected, Store.open(folder) as found:
        ingest(paths, expected)
        for table in ("event", "comm_event", "rank"):
            assert _rows(found, table) == _rows(expected, table)


@pytest.mark.long
def test_files_that_cannot_be_read_are_named_and_counted(cluster: _Nodes, tmp_path: Path) -> None:
    traces, folder = tmp_path / "traces", tmp_path / "set"
    good = [_trace(traces, rank, world=9) for rank in range(4)]
    twice = [_trace(traces / folder_name, 7) for folder_name in ("a", "b")]
    empty, foreign = traces / "empty.json", traces / "foreign.json"
    empty.write_bytes(b"")
    foreign.write_text("a shopping list")
    arguments = [*map(str, [*good, *twice, empty, foreign]), "-o", f"{folder}/", "--ray"]
    result = CliRunner().invoke(command, arguments)
    assert isinstance(result.exception, AdvisorError)
    message = result.exception.message
    assert message.startswith("4 of 8 files could not be read")
    assert f"{empty}: is empty" in message
    assert f"{foreign}: is no trace or log" in message
    assert message.count("rank 7 is in two files that cover the same time") == 2
    assert "Wrote" in result.output
    _assert_same_without(folder, good)
    with Store.open(folder) as store:
        noted = "SELECT path FROM source WHERE note IS NOT NULL AND format = 'unknown'"
        noted_paths = {path for (path,) in store.con.execute(noted).fetchall()}
    assert noted_paths == set(map(str, [*twice, empty, foreign]))


@pytest.mark.long
def test_ranks_can_be_added_and_only_force_replaces_them(cluster: _Nodes, tmp_path: Path) -> None:
    traces, folder = tmp_path / "traces", tmp_path / "set"
    paths = [_trace(traces, rank, world=3) for rank in range(3)]
    _run(paths[:2], folder)
    _run(paths[2:], folder)
    with pytest.raises(AdvisorError, match="rank 1 of run 'run' is in this store already"):
        _run(paths[1:2], folder)
    _run(paths[1:], folder, force=True)
    _assert_same(folder, paths)


@pytest.mark.long
def test_nothing_to_read_and_no_folder_are_errors(cluster: _Nodes, tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_bytes(b"")
    with pytest.raises(AdvisorError, match=r"nothing could be read\n.*empty.json: is empty"):
        _run([empty], tmp_path / "set")
    with pytest.raises(AdvisorError, match="shared path"):
        _run([empty], "s3://bucket/set")
    result = CliRunner().invoke(command, [str(empty), "-o", "run.duckdb", "--ray"])
    assert result.exit_code == 2
    assert "--ray writes a folder" in result.output


@pytest.mark.long
def test_a_node_that_dies_loses_no_rank_and_doubles_none(cluster: _Nodes, tmp_path: Path) -> None:
    """The last test of the cluster: what comes after it has one node."""
    traces, folder, seen = tmp_path / "traces", tmp_path / "set", tmp_path / "seen"
    for rank in range(8):
        _trace(traces, rank, world=8)
    seen.mkdir()
    doomed_id = cluster.second.node_id

    def on_doomed(batch: Any, job: Any) -> Any:
        import ray

        import advisor.ingest.ray_task as task

        done = task.read_batch(batch, job)
        if ray.get_runtime_context().get_node_id() == doomed_id:
            (seen / str(batch[0].rank)).touch()
            time.sleep(600)  # everything is written, but the answer never comes
        return done

    def kill() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and not list(seen.iterdir()):
            time.sleep(0.05)
        cluster.kill_second()

    killer = threading.Thread(target=kill)
    killer.start()
    summary = _run([traces], folder, read_batch=on_doomed)
    killer.join()
    assert list(seen.iterdir()), "no task ran on the node: the test shows nothing"
    assert (summary.ranks, summary.failed) == (8, [])
    _assert_same(folder, [traces])
