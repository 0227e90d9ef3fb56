"""A file that has to be refused costs itself only: it is named, and the others are read."""

from __future__ import annotations

import errno
import gzip
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import advisor
from advisor.cli.diagnose import command
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.ingest.unknown import NOT_READ
from advisor.store.store import Store
from tests.support.traces import event, kineto

_BLANK = b" " * (1 << 20)


def _bomb(path: Path, *, rank_first: bool) -> Path:
    """80 MiB of blanks in 80 KB, within what begins as a trace and never ends."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    events = ",".join(json.dumps(event(n)) for n in range(20))
    head = '"distributedInfo": {"rank": 1, "world_size": 2}, ' if rank_first else ""
    begin = f'{{"schemaVersion": 1, {head}"traceEvents": [{events}, '.encode()
    parts = [packer.compress(begin)]
    parts += [packer.compress(_BLANK) for _ in range(80)]
    path.write_bytes(b"".join([*parts, packer.flush()]))
    return path


def _folder(place: Path) -> Path:
    place.mkdir()
    info = {"backend": "nccl", "rank": 0, "world_size": 2}
    (place / "rank0.json").write_text(kineto([event(n) for n in range(9)], distributedInfo=info))
    return place


def _sources(store: Store) -> dict[str, tuple[Any, ...]]:
    rows = store.con.execute(
        "SELECT path, format, events_read, events_dropped, drop_reasons, note FROM source"
    ).fetchall()
    return {Path(path).name: tuple(rest) for path, *rest in rows}


def test_a_jobs_checkpoints_beside_its_traces_are_no_trace_and_a_zipped_trace_is_named(
    tmp_path: Path,
) -> None:
    folder = _folder(tmp_path / "traces")
    for path, name in (("last.ckpt", "archive/data.pkl"), ("rank1.zip", "rank1.json")):
        with zipfile.ZipFile(folder / path, "w") as file:
            file.writestr(name, "content")
    with Store.create() as store:
        ingest([folder], store)
        found = _sources(store)
    assert found["last.ckpt"][-1] == NOT_READ
    assert "zip" in found["rank1.zip"][-1]


@pytest.mark.slow
@pytest.mark.parametrize("rank_first", [True, False])
def test_a_bomb_in_a_folder_is_named_and_the_others_are_read(
    tmp_path: Path, rank_first: bool
) -> None:
    folder = _folder(tmp_path / "traces")
    bomb = _bomb(folder / "rank1.json.gz", rank_first=rank_first)
    with Store.create() as store:
        ingest([folder], store)
        found = _sources(store)
        assert store.con.execute("SELECT DISTINCT rank FROM event").fetchall() == [(0,)]
        assert store.con.execute("SELECT DISTINCT rank FROM comm_event").fetchall() in ([], [(0,)])
        assert store.con.execute("SELECT rank, events_read FROM rank").fetchall() == [
            (0, found["rank0.json"][1])
        ]
    assert found["rank0.json"][1] > 0
    format_name, read, dropped, reasons, note = found["rank1.json.gz"]
    assert (format_name, read, dropped, reasons) == ("kineto", 0, 1, '{"refused": 1}')
    assert "decompression bomb" in note
    with pytest.raises(AdvisorError, match="decompression bomb"), Store.create() as store:
        ingest([folder / "rank0.json", bomb], store)


@pytest.mark.slow
def test_diagnose_says_what_was_not_read_and_ends_as_with_other_unreadable_files(
    tmp_path: Path,
) -> None:
    folder = _folder(tmp_path / "traces")
    bomb = _bomb(folder / "rank1.json.gz", rank_first=False)
    cut = folder / "cut.json"
    cut.write_bytes(b'{"foo": 1, "bar": [1,')
    (folder / "notes.txt").write_text("dear diary")
    page = tmp_path / "report.html"
    arguments = [str(folder), "--format", "text,html", "-o", str(page)]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert done.exception is None, done.exception
    assert not done.return_value
    assert f"  file {bomb} was not read: decompresses to more than 300 times" in done.stderr
    assert f"  file {cut} was not read: is JSON that is cut or damaged" in done.stderr
    assert "notes.txt" not in done.stderr
    assert "refused as a decompression bomb" in page.read_text()


def test_a_folder_of_nothing_but_a_bomb_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    _bomb(tmp_path / "traces" / "rank0.json.gz", rank_first=True)
    with pytest.raises(AdvisorError, match=r"nothing that can be read \(.*bomb"):
        advisor.load(tmp_path / "traces")


def test_an_op_table_without_an_operation_does_not_stop_its_folder(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "traces")
    names = ("rank", "dp_rank", "stage", "step", "start_ts", "duration")
    columns: dict[str, Any] = {name: [0] for name in names}
    table = pa.table(columns | {"optype": ["forward-compute"], "duration": [None]})
    pq.write_table(table, folder / "ops.parquet")
    with Store.create() as store:
        ingest([folder], store)
        found = _sources(store)
    assert found["rank0.json"][1] > 0
    assert found["ops.parquet"][3:] == ('{"refused": 1}', "holds no usable operation")


@pytest.mark.slow
def test_lost_records_of_a_log_are_told_with_their_reasons(tmp_path: Path) -> None:
    """GIVEN a log whose messages were broken by another writer THEN text and notes count them."""
    head = "host0:100:120 [0] NCCL INFO "
    log = tmp_path / "nccl.log"
    log.write_text(
        f"{head}NCCL version 2.21.5+cuda12.4\n"
        f"{head}comm 0x5581 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0xab - Init START\n"
        f"{head}Channel 00/0 : 0[0] -> {head}Channel 01/0 : 0[0] -> 1[1] via P2P/IPC\n"
        f"{head}Channel 02/0 : 0[0] -> 1[1] via"
    )
    done = CliRunner().invoke(command, [str(log)], standalone_mode=False)
    assert done.exception is None, done.exception
    told = (
        f"  file {log} lost records: message broken by another writer (1), "
        "message cut at the end of the file (1)"
    )
    assert told in done.stderr.splitlines()
    with advisor.load(log) as run:
        assert told.strip() in [note.text for note in run.diagnose().runs[0].notes]


def test_a_compressed_file_that_is_whole_is_read(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "traces")
    whole = (folder / "rank0.json").read_bytes().replace(b'"rank": 0', b'"rank": 1')
    (folder / "rank1.json.gz").write_bytes(gzip.compress(whole, mtime=0))
    with Store.create() as store:
        ingest([folder], store)
        assert [row[0] for row in store.con.execute("SELECT rank FROM rank").fetchall()] == [0, 1]


def test_what_this_tool_wrote_beside_the_traces_is_not_called_unreadable(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(kineto([event(n) for n in range(20)]))
    (tmp_path / "profile.json").write_text('{"format": "advisor-profile", "advisor_version": "0"}')
    (tmp_path / "findings.json").write_text('{\n "schema_version": 1,\n "advisor_version": "0"\n}')
    logs = tmp_path / "logs"
    (logs / "attempt_0").mkdir(parents=True)
    (logs / "job.json").write_text('{"workload": {}}')
    (logs / "attempt_0" / "stderr.log").write_text("")
    (logs / "launcher-0.log").write_text("started\n")
    sweep = tmp_path / "sweep"
    for name in ("trials.jsonl", "survey.json", "run.sh", "trials/0000/trial.json",
                 "trials/0000/logs/rank0.result.json", "survey/logs/command.log",
                 "survey/logs/rank0.result.json"):  # fmt: skip
        (sweep / name).parent.mkdir(parents=True, exist_ok=True)
        (sweep / name).write_text('{"rank": 0}\n')
    (tmp_path / "notes.txt").write_text("of the user\n")
    with Store.create() as store:
        ingest([tmp_path], store)
        read = store.con.execute("SELECT path FROM source ORDER BY path").fetchall()
    assert [Path(path).name for (path,) in read] == ["notes.txt", "rank0.json"]


def test_the_logs_of_a_sweep_s_survey_and_trial_are_ours_when_given_alone(tmp_path: Path) -> None:
    folder = tmp_path / "trials" / "0003"
    (folder / "logs").mkdir(parents=True)
    (folder / "rank0.json").write_text(kineto([event(n) for n in range(20)]))
    for name in ("trial.json", "logs/command.log", "logs/rank0.result.json"):
        (folder / name).write_text('{"rank": 0}\n')
    with Store.create() as store:
        ingest([folder], store)
        read = store.con.execute("SELECT path FROM source").fetchall()
    assert [Path(path).name for (path,) in read] == ["rank0.json"]


def test_a_folder_within_that_cannot_be_searched_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a folder without permission, one 400 levels deep, links in circles, hidden ones."""
    place = _folder(tmp_path / "traces")
    for name in ("closed", ".hidden"):
        (place / name).mkdir()
        (place / name / "rank1.json").write_text("[]")
    (place / "up").symlink_to("..")
    (place / "circle").symlink_to("circle")
    here = os.open(place, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with Store.create() as store:
        ingest([place], store)
        found = _sources(store)
    monkeypatch.undo()
    assert found["rank0.json"][1] == 9
    assert "ermission denied" in found["closed"][-1]
    assert "leads back to itself" in found["circle"][-1]
    assert len(found) == 3


def test_a_folder_that_cannot_be_searched_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(AdvisorError, match="cannot be read: Permission denied"):
        advisor.load(tmp_path)
