"""Pipes, devices and links to what is missing: told at once, and never taken for empty files."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from advisor.cli._main import main
from advisor.cli._watch import snapshot
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.ingest.paths import expand
from advisor.ingest.ray_plan import list_inputs
from advisor.store.store import Store


def _trace(place: Path) -> None:
    span = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    place.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": [span]}))


def test_a_pipe_of_the_shell_is_called_a_pipe() -> None:
    reading, writing = os.pipe()
    try:
        with Store.create() as store, pytest.raises(AdvisorError, match="is a pipe") as refused:
            ingest([f"/dev/fd/{reading}"], store)
    finally:
        os.close(reading)
        os.close(writing)
    assert "to a file" in refused.value.hint


def test_a_pipe_without_a_writer_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "trace.json"
    os.mkfifo(pipe)
    found: list[AdvisorError] = []

    def read() -> None:
        try:
            expand([pipe])
        except AdvisorError as error:
            found.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert [error.message.split(",")[0] for error in found] == ["is a pipe"]


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file(device: str) -> None:
    with Store.create() as store, pytest.raises(AdvisorError, match="is a device, no file"):
        ingest([device], store)


def _ingest(folder: Path, store: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(folder), "-o", str(store)])
    assert ended.value.code == 0


def test_a_link_to_nothing_in_a_folder_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    _trace(folder / "rank0.json")
    (folder / "rank1.json").symlink_to("gone/rank1.json")
    _ingest(folder, tmp_path / "run.duckdb")
    told = "is a link to gone/rank1.json, which is missing"
    assert f"  not read: {folder / 'rank1.json'}: {told}\n" in capsys.readouterr().err
    with Store.open(tmp_path / "run.duckdb") as store:
        rows = store.con.execute("SELECT format, note FROM source ORDER BY source_id").fetchall()
    assert rows[1] == ("unknown", told)


def test_pipes_and_sockets_in_a_folder_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    _trace(folder / "rank0.json")
    os.mkfifo(folder / "rank1.json")
    _ingest(folder, tmp_path / "run.duckdb")
    told = "is a pipe, and files are read in several passes"
    assert f"  not read: {folder / 'rank1.json'}: {told}\n" in capsys.readouterr().err
    assert list(snapshot([str(folder)])) == [folder / "rank0.json"]


def test_a_refused_dump_in_a_folder_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    _trace(folder / "rank0.json")
    (folder / "nccl_trace_rank_1").write_bytes(b"\x80\x02}(U\x07entries(cos\nsystem\nU\x01ao\x75.")
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(folder), "-o", str(tmp_path / "run.duckdb")])
    assert ended.value.code == 0
    said = capsys.readouterr().err
    assert f"  not read: {folder / 'nccl_trace_rank_1'}: " in said
    assert "can run code" in said


def test_a_named_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "rank1.json"
    link.symlink_to("gone.json")
    for given in (link, tmp_path / "rank*.json"):
        with pytest.raises(AdvisorError, match=r"is a link to gone\.json, which is missing"):
            expand([given])


@pytest.mark.parametrize("number", [1, 2], ids=["to-itself", "to-each-other"])
def test_links_in_a_circle_are_links_to_nothing(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    _trace(folder / "rank0.json")
    links = [folder / f"turn{at}" for at in range(number)]
    for at, link in enumerate(links):
        link.symlink_to(links[at - 1].name)
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(folder), "-o", str(tmp_path / "run.duckdb")])
    said = capsys.readouterr().err
    assert ended.value.code == 0, said
    for at, link in enumerate(links):
        told = f"is a link to {links[at - 1].name}, which leads back to itself"
        assert f"  not read: {link}: {told}\n" in said
    with pytest.raises(AdvisorError, match="leads back to itself"):
        expand(links)
    assert Path(list_inputs([folder])[0].place).name == "rank0.json"
    assert list(snapshot([str(folder)])) == [folder / "rank0.json"]


def test_a_folder_of_what_other_tools_say_is_refused_with_what_it_is_and_what_to_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"overlap": 0.4, "stragglers": [7]}))
    (tmp_path / "b.csv").write_text("rank,wait_us\n0,12\n")
    with Store.create() as store, pytest.raises(AdvisorError) as refused:
        ingest([str(tmp_path)], store)
    assert str(tmp_path / "a.json") in refused.value.message
    assert "its keys are overlap, stragglers" in refused.value.message
    assert "advisor.record" in refused.value.hint
