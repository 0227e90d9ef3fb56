"""Files of several jobs are never read as one: told apart by folder, process or world size."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from advisor import api
from advisor.errors import AdvisorError
from advisor.ingest import SeveralJobsError, ingest
from advisor.ingest.jobs import Part, RankFile, refuse_twice, split_by_folder, split_by_process
from advisor.store.notes import READ_APART
from advisor.store.store import Store
from tests.support.traces import event, kineto

_HOST_OP = {"cat": "cpu_op", "name": "aten::mm", "args": {}}


def _trace(path: Path, rank: int, *, pid: int, at: int = 0, world_size: int = 2) -> Path:
    info = {"backend": "nccl", "rank": rank, "world_size": world_size}
    events = [event(at + n) for n in range(3)] + [event(at + 4, pid=pid, **_HOST_OP)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kineto(events, distributedInfo=info))
    return path


def _jobs(tmp_path: Path) -> dict[str, list[str]]:
    with Store.create() as store, pytest.raises(SeveralJobsError) as caught:
        ingest([tmp_path], store)
    assert store.con is not None
    return {name: sorted(file.name for file in files) for name, files in caught.value.jobs.items()}


def test_folders_with_the_same_ranks_are_jobs(tmp_path: Path) -> None:
    for job in ("ddp", "fsdp2"):
        for rank in range(2):
            _trace(tmp_path / job / f"rank{rank}.json", rank, pid=100)
    names = ["rank0.json", "rank1.json"]
    assert _jobs(tmp_path) == {"ddp": names, "fsdp2": names}


def test_a_folder_per_host_is_one_job(tmp_path: Path) -> None:
    for rank in range(4):
        _trace(tmp_path / f"host{rank // 2}" / f"rank{rank}.json", rank, pid=100, world_size=4)
    with Store.create() as store:
        ingest([tmp_path], store)
        assert store.con.execute("SELECT count(*) FROM rank").fetchall() == [(4,)]


def test_jobs_with_a_folder_per_host() -> None:
    files = [
        RankFile(Path(f"/runs/{job}/host{rank // 2}/rank{rank}.json"), rank, 4)
        for job in ("old", "new")
        for rank in range(4)
    ]
    with pytest.raises(SeveralJobsError) as caught:
        split_by_folder(files)
    assert {name: len(paths) for name, paths in caught.value.jobs.items()} == {"old": 4, "new": 4}


def test_two_launches_in_one_folder_are_told_by_their_processes(tmp_path: Path) -> None:
    for launch, at in ((1, 0), (2, 1000)):
        for rank in range(2):
            path = tmp_path / f"worker{rank}.{launch}.json"
            _trace(path, rank, pid=100 * launch + rank, at=at)
    assert _jobs(tmp_path) == {
        "launch-1": ["worker0.1.json", "worker1.1.json"],
        "launch-2": ["worker0.2.json", "worker1.2.json"],
    }


def test_cycles_of_one_process_are_parts_of_one_recording(tmp_path: Path) -> None:
    for cycle in range(2):
        for rank in range(2):
            _trace(tmp_path / f"w{rank}.{cycle}.json", rank, pid=100 + rank, at=1000 * cycle)
    with Store.create() as store:
        ingest([tmp_path], store)
        assert store.con.execute("SELECT count(*) FROM rank").fetchall() == [(2,)]


def _ops(path: Path, spans: list[tuple[int, int]], *, pid: int = 7, tid: int = 3) -> Path:
    """Rank 0's operators on one thread, (start, end) in µs, and a kernel of each."""
    events = []
    for start, end in spans:
        own = dict(_HOST_OP, pid=pid, tid=tid, ts=start, dur=end - start)
        events += [event(0, **own), event(0, name=f"k{start}", ts=start, dur=1)]
    path.write_text(kineto(events))
    return path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(0, 100), (110, 190)], [(10, 20), (120, 180), (200, 210)]),  # one nests in the other
        ([(0, 10), (40, 50)], [(20, 30), (60, 70)]),  # in turns
        ([(0, 10), (20, 30)], [(10, 20)]),
    ],
)
def test_files_of_one_process_whose_threads_nest_are_joined(
    tmp_path: Path, one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """GIVEN two files of one process that cover the same time and share no event."""
    paths = [_ops(tmp_path / "a.json", one), _ops(tmp_path / "b.json", other)]
    with Store.create() as store:
        ingest(paths, store)
        counts = "SELECT events_read, (SELECT count(*) FROM event) FROM rank"
        both = 2 * (len(one) + len(other))
        assert store.con.execute(counts).fetchall() == [(both, both)]
        notes = "SELECT note FROM source ORDER BY source_id"
        assert store.con.execute(notes).fetchall() == [
            ("part 1 of 2 of rank 0",),
            ("part 2 of 2 of rank 0",),
        ]


@pytest.mark.parametrize(
    ("one", "other", "pid", "reason"),
    [
        ([(0, 100)], [(50, 150)], 7, "spans of one thread cross"),
        ([(0, 10), (40, 90)], [(20, 30), (80, 95)], 7, "spans of one thread cross"),
        ([(0, 10), (20, 30)], [(20, 30), (40, 50)], 7, "the same events stand in both"),
        ([(0, 10), (40, 50)], [(20, 30), (60, 70)], 8, "several jobs|one process"),
    ],
)
def test_other_files_that_cover_the_same_time_are_refused(
    tmp_path: Path, one: list[tuple[int, int]], other: list[tuple[int, int]], pid: int, reason: str
) -> None:
    paths = [_ops(tmp_path / "a.json", one), _ops(tmp_path / "b.json", other, pid=pid)]
    with Store.create() as store, pytest.raises(AdvisorError, match=reason) as caught:
        ingest(paths, store)
    assert "a.json" in str(caught.value)
    assert "b.json" in str(caught.value)


def test_traces_of_jobs_of_other_sizes_are_not_one_job(tmp_path: Path) -> None:
    _trace(tmp_path / "a.json", 0, pid=1, world_size=2)
    _trace(tmp_path / "b.json", 1, pid=2, world_size=8)
    assert _jobs(tmp_path) == {"of-2-ranks": ["a.json"], "of-8-ranks": ["b.json"]}


def test_launches_that_do_not_add_up_are_refused_by_name() -> None:
    parts = [
        Part(Path("a0.json"), 0, 0, 10, 1),
        Part(Path("b0.json"), 0, 20, 30, 2),
        Part(Path("a1.json"), 1, 0, 10, 3),
    ]
    with pytest.raises(AdvisorError, match=r"a0\.json, b0\.json") as caught:
        split_by_process(parts)
    assert not isinstance(caught.value, SeveralJobsError)


def test_two_dumps_of_a_rank_in_one_folder_are_refused() -> None:
    files = [RankFile(Path("dump_0"), 0), RankFile(Path("dump_0.json"), 0)]
    with pytest.raises(AdvisorError, match=r"dump_0, dump_0\.json"):
        refuse_twice(files)


@pytest.mark.long
def test_load_diagnoses_each_job_by_itself_and_says_so(tmp_path: Path) -> None:
    fixtures = Path(__file__).parents[2] / "fixtures"
    for name in ("gpt2-tiny-ddp-2", "gpt2-tiny-ddp-2-slow-rank"):
        for file in (fixtures / name).glob("rank*.json.gz"):
            target = tmp_path / name / file.name
            target.parent.mkdir(exist_ok=True)
            shutil.copy(file, target)
    with api.load(tmp_path) as run:
        report = run.report
        text, page = run.render("text"), run.render("html")
    assert "Which run is faster" not in page, "different jobs are not compared"
    assert [item.run for item in report.runs] == ["gpt2-tiny-ddp-2", "gpt2-tiny-ddp-2-slow-rank"]
    late = [item.run for item in report.findings if item.rule == "straggler-rank"]
    assert late == ["gpt2-tiny-ddp-2-slow-rank"]
    assert all(
        any(READ_APART in note.values.get("codes", ()) for note in item.notes)
        for item in report.runs
    )
    assert "2 recordings" in text
    with pytest.raises(AdvisorError, match="2 recordings"):
        api.load_runs([tmp_path, fixtures / "gpt2-tiny-ddp-2"])


FIXTURES = Path(__file__).parents[2] / "fixtures"
TWO = ("gpt2-tiny-ddp-2", "gpt2-tiny-ddp-2-slow-rank")


def _two_jobs(folder: Path) -> Path:
    for name in TWO:
        for rank in range(2):
            _trace(folder / name / f"rank{rank}.json", rank, pid=100)
    return folder


@pytest.mark.long
@pytest.mark.slow
def test_dumps_and_logs_in_folders_of_their_own_become_runs(tmp_path: Path) -> None:
    _two_jobs(tmp_path)
    shutil.copytree(FIXTURES / "flight-gloo-desync", tmp_path / "flight-gloo-desync")
    log = FIXTURES / "nccl-logs" / "v2.10-sockets.log"
    with api.load(tmp_path, log) as run:
        report = run.report
        page = run.render("html")
    assert [item.run for item in report.runs] == sorted(["flight-gloo-desync", "nccl-logs", *TWO])
    assert [item.run for item in report.findings if item.rule == "desync"] == ["flight-gloo-desync"]
    (of_log,) = [item.inputs for item in report.runs if item.run == "nccl-logs"]
    assert of_log == [str(log)]
    assert "a folder of its own" in page
    lacks = {item.reason for item in report.outcomes if item.reason.startswith("no NCCL log")}
    assert lacks
    assert all("of this run" in reason for reason in lacks), lacks


@pytest.mark.slow
def test_a_file_that_can_be_of_any_job_is_named(tmp_path: Path) -> None:
    _two_jobs(tmp_path)
    log = shutil.copy(FIXTURES / "nccl-logs" / "v2.10-sockets.log", tmp_path / "nccl.log")
    bad = tmp_path / TWO[1] / "rank2.json.gz"
    bad.write_bytes(b"\x1f\x8b\x08\x00cut")
    with api.load(tmp_path) as run:
        report, text, page = run.report, run.render("text"), run.render("html")
    notes = {item.run: " ".join(note.text for note in item.notes) for item in report.runs}
    assert f"file {log} was not read: it can be of any of several recordings" in " ".join(
        notes.values()
    )
    assert f"file {bad} was not read" in notes[TWO[1]]
    for shown in (text, page):
        whole = "".join(shown.split())  # a long path is folded
        assert all(name in whole for name in ("nccl.log", "rank2.json.gz"))


@pytest.mark.slow
def test_a_trace_that_is_refused_costs_itself_and_not_the_other_jobs(tmp_path: Path) -> None:
    """Nobody named it: it stood in the folder of one of two jobs, all of whose ranks are there."""
    _two_jobs(tmp_path)
    (tmp_path / TWO[1] / "README.md").write_text("How it was recorded.")
    extra = tmp_path / TWO[0] / "trace.json"
    extra.write_text(kineto([event(9), event(11, pid=300, **_HOST_OP)], distributedInfo={}))
    with api.load(tmp_path) as run:
        report = run.report
    assert [item.run for item in report.runs] == sorted(TWO)
    # What is no recording at all is nothing to worry about, as in the folder of one job.
    (said,) = [note for item in report.runs for note in item.notes if note.code == "file-not-read"]
    assert said.values["path"] == str(extra)
    # THEN the report of its own folder names it too, not only what runs beside the report
    with api.load(extra.parent) as run:
        for form in ("text", "markdown", "github"):
            assert "trace.json" in run.render(form), form


@pytest.mark.long
@pytest.mark.slow
def test_jobs_that_sizes_tell_apart_are_told_apart_by_folders_too(tmp_path: Path) -> None:
    _two_jobs(tmp_path)
    _trace(tmp_path / TWO[0] / "trace.json", 0, pid=300, world_size=8)
    with api.load(tmp_path) as run:
        names = [item.run for item in run.report.runs]
    assert names == [*(f"of-2-ranks-{name}" for name in sorted(TWO)), "of-8-ranks"]


@pytest.mark.long
@pytest.mark.slow
def test_logs_of_several_jobs_beside_traces_of_several_are_runs_of_their_own(
    tmp_path: Path,
) -> None:
    _two_jobs(tmp_path)
    with api.load(tmp_path, FIXTURES / "nccl-logs") as run:
        files = {file for item in run.report.runs for file in item.inputs}
    assert {str(path) for path in (FIXTURES / "nccl-logs").glob("*.log")} <= files


@pytest.mark.parametrize(
    ("folders", "processes", "one_job"),
    [
        (("iteration_10", "iteration_20"), ("h/7", "h/7"), True),  # torchtitan's folders
        (("capture", "capture-2"), ("h/7", "h/7"), True),
        (("iteration_10", "iteration_20"), ("h/7", "h/9"), False),
        (("iteration_10", "iteration_20"), (None, None), False),
        (("before", "after"), ("h/7", "h/7"), False),  # containers start every launch as process 7
    ],
)
def test_folders_that_one_job_writes_in_turn_are_one_recording(
    folders: tuple[str, str], processes: tuple[str | None, str | None], one_job: bool
) -> None:
    files = [
        RankFile(Path(f"/runs/{folder}/rank{rank}_trace.json"), rank, 2, process)
        for folder, process in zip(folders, processes, strict=True)
        for rank in range(2)
    ]
    if one_job:
        split_by_folder(files)
        return
    with pytest.raises(SeveralJobsError):
        split_by_folder(files)
