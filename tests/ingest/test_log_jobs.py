"""NCCL logs of several jobs are told apart, or refused by name; those of one job are joined."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from advisor import api
from advisor.errors import AdvisorError
from advisor.ingest import SeveralJobsError, ingest
from advisor.store.store import Store
from tests.support.traces import event, kineto

LOGS = Path(__file__).parents[2] / "fixtures" / "nccl-logs"


def _comm(host: str, pid: int, rank: int, *, ranks: int = 2, comm: str | None = None) -> str:
    told = f" commId {comm}" if comm else ""
    return (
        f"{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x{pid:x} rank {rank} "
        f"nranks {ranks} cudaDev {rank} nvmlDev {rank} busId {rank}a000{told} - Init START\n"
    )


def _write(path: Path, *lines: str, version: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"NCCL version {version}+cuda12.4\n" if version else ""
    path.write_text(head + "".join(lines))
    return path


def _trace(path: Path, rank: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kineto([event(0)], distributedInfo={"rank": rank, "world_size": 2}))
    return path


def _jobs(folder: Path) -> dict[str, list[str]]:
    with Store.create() as store, pytest.raises(SeveralJobsError) as caught:
        ingest([folder], store)
    return {
        name: sorted(str(path.relative_to(folder)) for path in paths)
        for name, paths in caught.value.jobs.items()
    }


def _read(folder: Path) -> int:
    with Store.create() as store:
        ingest([folder], store)
        return int(store.con.execute("SELECT count(DISTINCT path) FROM source").fetchall()[0][0])


@pytest.mark.slow
def test_two_jobs_keep_each_its_own_findings(tmp_path: Path) -> None:
    """GIVEN the logs of two jobs of equal size THEN each says what it says alone, and no more."""
    names = ["v2.21-one-nic", "v2.27-groups"]
    alone = {}
    for name in names:
        shutil.copy(LOGS / f"{name}.log", tmp_path)
        with api.load(LOGS / f"{name}.log") as run:
            alone[name] = [item.rule for item in run.report.findings]
    with api.load(tmp_path) as run:
        report = run.report
    together = {name: [item.rule for item in report.findings if item.run == name] for name in names}
    assert together == alone
    assert "no-gpudirect" in together["v2.21-one-nic"]
    assert all(
        "NCCL 2.21.5, 2.27.7" in " ".join(note.text for note in item.notes) for item in report.runs
    )


def test_a_file_per_rank_of_two_jobs_of_one_version(tmp_path: Path) -> None:
    for job, pid in (("0xa", 10), ("0xb", 20)):
        for rank in range(2):
            _write(tmp_path / f"n.{pid + rank}.log", _comm("h", pid + rank, rank, comm=job))
    assert sorted(_jobs(tmp_path).values()) == [
        ["n.10.log", "n.11.log"],
        ["n.20.log", "n.21.log"],
    ]


def test_process_ids_that_come_again_do_not_join_jobs(tmp_path: Path) -> None:
    """GIVEN two runs in containers, where host and process ids are the same."""
    for job in ("0xa", "0xb"):
        _write(tmp_path / f"{job}.log", *(_comm("h", 7 + rank, rank, comm=job) for rank in (0, 1)))
    assert _jobs(tmp_path) == {"0xa": ["0xa.log"], "0xb": ["0xb.log"]}


def test_groups_join_the_logs_of_a_job_without_a_communicator_of_all(tmp_path: Path) -> None:
    """GIVEN two shard groups, whose ranks meet in pairs only."""
    for rank in range(4):
        shard = _comm("h", rank, rank % 2, comm=f"0x5{rank // 2}")
        _write(tmp_path / f"{rank}.log", shard, _comm("h", rank, rank // 2, comm=f"0xe{rank % 2}"))
    assert _read(tmp_path) == 4


def test_the_rest_of_a_log_is_joined_by_its_process(tmp_path: Path) -> None:
    _write(tmp_path / "n.1.log", _comm("h", 1, 0, comm="0xa"), _comm("h", 2, 1, comm="0xa"))
    _write(tmp_path / "n.2.log", _comm("h", 1, 0, ranks=1, comm="0xb"))
    _write(tmp_path / "n.3.log", "h:9:9 [0] NCCL WARN something\n")
    assert _read(tmp_path) == 3


@pytest.mark.parametrize("folders", [("one", "two"), ("", "")])
def test_old_logs_of_a_file_per_rank_need_folders(tmp_path: Path, folders: tuple[str, str]) -> None:
    """GIVEN logs that name no communicator: ranks of two jobs in one folder cannot be told."""
    for job, folder in enumerate(folders):
        for rank in range(2):
            pid = 10 * job + rank
            _write(tmp_path / folder / f"n{pid}.log", _comm("h", pid, rank), version="2.10.3")
    if folders[0]:
        assert _jobs(tmp_path) == {
            "one": ["one/n0.log", "one/n1.log"],
            "two": ["two/n10.log", "two/n11.log"],
        }
    else:
        with Store.create() as store, pytest.raises(AdvisorError, match=r"n0\.log.*n11") as caught:
            ingest([tmp_path], store)
        assert not isinstance(caught.value, SeveralJobsError)


def test_old_logs_of_one_job_are_joined(tmp_path: Path) -> None:
    for rank in range(2):
        version = "2.10.3" if rank == 0 else None  # only rank 0 prints it
        _write(tmp_path / f"n{rank}.log", _comm("h", rank, rank), version=version)
    assert _read(tmp_path) == 2


def test_a_log_of_warnings_beside_two_jobs_is_refused_by_name(tmp_path: Path) -> None:
    _write(tmp_path / "a.log", _comm("h", 1, 0, comm="0xa"))
    _write(tmp_path / "b.log", _comm("h", 2, 0, comm="0xb"))
    _write(tmp_path / "c.log", "h:9:9 [0] NCCL WARN something\n")
    with Store.create() as store, pytest.raises(AdvisorError, match=r"c\.log"):
        ingest([tmp_path], store)


def test_traces_beside_the_logs_of_two_jobs_are_refused_by_name(tmp_path: Path) -> None:
    _trace(tmp_path / "rank0.json", 0)
    for job in ("0xa", "0xb"):
        _write(tmp_path / f"{job}.log", *(_comm("h", 7 + rank, rank, comm=job) for rank in (0, 1)))
    with Store.create() as store, pytest.raises(AdvisorError, match=r"rank0\.json") as caught:
        ingest([tmp_path], store)
    assert not isinstance(caught.value, SeveralJobsError)


def test_each_jobs_folder_keeps_its_log_with_its_traces(tmp_path: Path) -> None:
    for job, pid in (("old", 10), ("new", 20)):
        for rank in range(2):
            _trace(tmp_path / job / f"rank{rank}.json", rank)
        _write(
            tmp_path / job / "nccl.log",
            *(_comm("h", pid + rank, rank, comm=f"0x{pid}") for rank in (0, 1)),
        )
    names = ["nccl.log", "rank0.json", "rank1.json"]
    assert _jobs(tmp_path) == {job: [f"{job}/{name}" for name in names] for job in ("new", "old")}
