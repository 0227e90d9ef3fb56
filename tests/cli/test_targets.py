"""Nothing but what advisor wrote is ever written over, and a place that refuses is named."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from advisor.cli._main import main
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.store.store import Store
from advisor.store.target import database_error
from tests.support.marks import long


def _forms(*names: str) -> list[object]:
    """One that is read whole and one by its first line; at length the others too."""
    return [name if name in ("html", "text") else long(name)[0] for name in names]


def _trace(place: Path) -> Path:
    span = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    place.parent.mkdir(exist_ok=True)
    place.write_text(
        json.dumps({"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [span]})
    )
    return place


def _run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "force"])
@pytest.mark.parametrize(
    "command",
    [
        ["ingest", "IN", "-o", "OUT"],
        ["diagnose", "IN", "--store", "OUT"],
        ["diagnose", "IN", "--format", "html", "-o", "OUT"],
        ["compare", "IN", "IN", "--format", "html", "-o", "OUT"],
        ["open", "1", "IN", "--write", "OUT"],
    ],
    ids=["ingest", "store", "html", "compare", "open"],
)
@pytest.mark.parametrize("link", ["same", "symbolic", "hard"])
def test_an_input_is_never_written_over(
    command: list[str],
    force: list[str],
    link: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = _trace(tmp_path / "tr.json")
    before = trace.read_bytes()
    out = trace if link == "same" else tmp_path / "other.json"
    if link == "symbolic":
        out.symlink_to(trace)
    elif link == "hard":
        out.hardlink_to(trace)
    names = {"IN": str(trace), "OUT": str(out)}
    status, said = _run(capsys, *(names.get(word, word) for word in command), *force)
    assert status == 2
    assert "is one of the inputs" in said
    assert "--force" not in said
    assert trace.read_bytes() == out.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        ["ingest", "IN", "-o", "OUT"],
        ["diagnose", "IN", "--store", "OUT"],
        ["diagnose", "IN", "--format", "html", "-o", "OUT"],
        ["open", "1", "IN", "--write", "OUT"],
    ],
    ids=["ingest", "store", "html", "open"],
)
def test_an_input_behind_a_folder_to_be_made_is_not_written_over(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = _trace(tmp_path / "tr.json")
    before = trace.read_bytes()
    names = {"IN": str(trace), "OUT": f"{tmp_path}/new/../tr.json"}
    status, said = _run(capsys, *(names.get(word, word) for word in command))
    assert (status, "is one of the inputs" in said) == (2, True), said
    assert trace.read_bytes() == before


@pytest.mark.parametrize("option", [["--store"], ["--format", "html", "-o"]], ids=["store", "html"])
def test_what_is_behind_a_folder_to_be_made_needs_force(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = _trace(tmp_path / "tr.json")
    out = f"{tmp_path}/new/../out"
    assert _run(capsys, "diagnose", trace, "-q", *option, f"{tmp_path}/out")[0] == 0
    status, said = _run(capsys, "diagnose", trace, "-q", *option, out)
    assert (status, "pass --force" in said) == (2, True), said


@pytest.mark.parametrize("form", ["json", "html"])
def test_what_profile_wrote_beside_its_traces_is_not_written_over(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "gpt2-tiny-ddp-2"
    folder = tmp_path / "p"
    shutil.copytree(fixture, folder)
    for name in ("profile.json", "rank0.json.gz"):
        report = ["-q", "--format", form, "-o", folder / name, "--force"]
        status, said = _run(capsys, "diagnose", folder, *report)
        assert (status, "is no report of this tool" in said) == (2, True), said
        assert (folder / name).read_bytes() == (fixture / name).read_bytes()


def test_force_replaces_stores_and_reports_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = _trace(tmp_path / "tr" / "rank0.json")
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes")
    foreign = tmp_path / "foreign.duckdb"
    with duckdb.connect(str(foreign)) as con:
        con.execute("CREATE TABLE x AS SELECT 1")
    for place in (notes, foreign, trace):
        before = place.read_bytes()
        status, said = _run(capsys, "ingest", trace.parent, "-o", place, "--force")
        assert (status, "is no store of this tool" in said) == (2, True), said
        report = ["--format", "html", "-o", str(place), "--force"]
        status, said = _run(capsys, "diagnose", trace.parent, *report)
        assert (status, "is no report of this tool" in said) == (2, True), said
        assert place.read_bytes() == before
    store = tmp_path / "run.duckdb"
    store.touch()
    for _ in range(2):  # an empty file, then a store
        assert _run(capsys, "ingest", trace, "-o", store, "--force")[0] == 0
    assert "pass --force" in _run(capsys, "ingest", trace, "-o", store)[1]


@pytest.mark.slow
@pytest.mark.parametrize("form", _forms("text", "html", "json", "junit", "markdown"))
def test_force_knows_a_report_again(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, place = _trace(tmp_path / "rank0.json"), tmp_path / "out"
    command = ["diagnose", str(trace), "--format", form, "-o", str(place), "-q"]
    assert _run(capsys, *command)[0] == 0
    assert "pass --force" in _run(capsys, *command)[1]
    assert _run(capsys, *command, "--force")[0] == 0


@pytest.mark.long
@pytest.mark.slow
def test_force_knows_reports_with_merged_findings_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "emulated-sync-every-micro-batch"
    forms = "text,html,json,junit,markdown,github"
    command = ["diagnose", str(fixture), "-q", "--format", forms, "-o", f"{tmp_path}/out/"]
    assert _run(capsys, *command) == (0, "")
    written = json.loads((tmp_path / "out" / "findings.json").read_text())
    assert any(finding["merged"] for finding in written["findings"])
    assert "pass --force" in _run(capsys, *command)[1]
    assert _run(capsys, *command, "--force") == (0, "")


@pytest.mark.parametrize("form", _forms("text", "html", "json", "junit", "markdown", "github"))
@pytest.mark.parametrize("where", ["before", *long("behind")])
def test_a_report_with_own_words_around_it_is_not_written_over(
    form: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, place = _trace(tmp_path / "rank0.json"), tmp_path / "out"
    command = ["diagnose", str(trace), "--format", form, "-o", str(place), "-q", "--force"]
    assert _run(capsys, *command)[0] == 0
    own, report = b"my own words\n", place.read_bytes()
    changed = own + report if where == "before" else report + own
    place.write_bytes(changed)
    status, said = _run(capsys, *command)
    assert (status, "is no report of this tool" in said, "remove this one" in said) == (2, 1, 1)
    assert place.read_bytes() == changed


@pytest.mark.parametrize("form", _forms("text", "html", "markdown", "junit", "github"))
def test_a_report_that_was_changed_or_printed_is_not_written_over(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, place = _trace(tmp_path / "rank0.json"), tmp_path / "out"
    command = ["diagnose", str(trace), "--format", form, "-o", str(place), "-q", "--force"]
    assert _run(capsys, *command)[0] == 0
    report = place.read_bytes()
    *lines, mark = report.splitlines(keepends=True)
    assert b"advisor report" in mark
    for changed in (b"".join(lines), report.replace(b"step", b"STEP"), mark):
        place.write_bytes(changed)
        status, said = _run(capsys, *command)
        assert (status, "is no report of this tool" in said) == (2, True), changed
        assert place.read_bytes() == changed


def test_text_that_quotes_a_report_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, place = _trace(tmp_path / "rank0.json"), tmp_path / "notes"
    readme = (Path(__file__).parents[2] / "README.md").read_bytes()
    for notes in (readme, b"VERDICT  my own diary\n", b"::notice title=mine::x\n"):
        place.write_bytes(notes)
        for form in ("text", "markdown", "github"):
            report = ["--format", form, "-o", place, "--force"]
            status, said = _run(capsys, "diagnose", trace, *report)
            assert (status, "is no report of this tool" in said) == (2, True), said
        assert place.read_bytes() == notes


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("form", ["html", *long("json")])
def test_force_knows_a_comparison_again(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "gpt2-tiny-ddp-2"
    runs = [str(fixture), str(fixture)]
    command = ["compare", *runs, "--format", form, "-o", f"{tmp_path}/out"]
    assert _run(capsys, *command)[0] == 0
    assert _run(capsys, *command, "--force")[0] == 0


def test_a_store_and_a_report_need_two_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out"
    status, said = _run(
        capsys, "diagnose", _trace(tmp_path / "t.json"), "--store", place, "-o", place
    )
    assert (status, "both the store and a report" in said) == (2, True)


@pytest.mark.parametrize(
    "where",
    [
        ["ingest", "-o", "FILE/z.duckdb"],
        ["ingest", "-o", "FILE/z/"],
        ["diagnose", "--store", "FILE/z.duckdb"],
        ["diagnose", "--format", "html", "-o", "FILE/z.html"],
        ["ingest", "-o", "/dev/null", "--force"],
        ["diagnose", "--store", "FOLDER", "--force"],
        ["diagnose", "--format", "html", "-o", "/dev/null", "--force"],
    ],
    ids=["store", "parquet", "kept-store", "html", "device", "folder", "html-device"],
)
def test_a_place_that_takes_no_file_is_named(
    where: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, file = _trace(tmp_path / "t.json"), tmp_path / "file"
    file.write_text("a file")
    (tmp_path / "folder").mkdir()
    name, *options = where
    options = [word.replace("FILE", str(file)) for word in options]
    options = [word.replace("FOLDER", str(tmp_path / "folder")) for word in options]
    status, said = _run(capsys, name, trace, *options)
    assert status == 2
    assert "defect" not in said
    assert any(text in said for text in ("cannot be written", "is no regular", "is a folder"))
    assert file.read_text() == "a file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "t.json"]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["full.duckdb", *long("full/")], ids=["file", "folder"])
def test_a_full_disk_is_no_defect(target: str, tmp_path: Path) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "gpt2-tiny-ddp-2"
    ended = subprocess.run(
        [sys.executable, "-m", "advisor", "ingest", str(fixture), "-o", f"{tmp_path}/{target}"],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (102_400, 102_400)),
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"advisor: {tmp_path}/{target}: ")
    assert "cannot be written: file too large" in ended.stderr
    assert "make room there" in ended.stderr
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".duckdb", ".partial")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["rules"],
        ["diagnose", "IN", "-q"],
        ["sql", "STORE", "SELECT 1"],
        *long(["sql", "STORE", "SELECT 1", "--format", "csv"]),
    ],
    ids=["rules", "diagnose", "table", "csv"],
)
def test_a_full_standard_output_is_no_defect(command: list[str], tmp_path: Path) -> None:
    fixture = str(Path(__file__).parents[2] / "fixtures" / "gpt2-tiny-ddp-2")
    if "STORE" in command:
        with Store.create(tmp_path / "run.duckdb") as store:
            ingest([_trace(tmp_path / "tr.json")], store)
            store.save()
    names = {"IN": fixture, "STORE": f"{tmp_path}/run.duckdb"}
    words = [names.get(word, word) for word in command]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "advisor", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
        )
    assert ended.returncode == 2
    said = ended.stderr.splitlines()
    assert said[0] == "advisor: standard output: cannot be written: no space left on device"
    assert [line for line in said[1:] if not line.startswith("  make room")] == []


def test_what_the_database_says_of_a_full_disk_is_understood() -> None:
    text = 'TransactionContext Error: Failed to commit: Could not write file "/a/.b.partial.wal": '
    known = database_error(duckdb.TransactionException(text + "No space left on device"), None)
    assert known is not None
    assert str(known).startswith("/a: cannot be written: no space left on device\n  make room")
    spilled = duckdb.OutOfMemoryException("failed to offload data block of size 256.0 KiB")
    assert "no room" in str(database_error(spilled, Path("/a/b.duckdb")))
    assert database_error(duckdb.BinderException('column "x" not found'), None) is None


def test_a_store_under_a_limit_says_where(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="cannot be written"):
        Store.create(tmp_path / ("x" * 300) / "a.duckdb")


@pytest.mark.parametrize("output", ["new/..", "new/../", "new/../full/", "full", "rank1.json/"])
def test_a_folder_is_refused_before_anything_is_read_or_made(
    tmp_path: Path,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    _trace(tmp_path / "rank0.json")
    _trace(tmp_path / "full" / "rank1.json")
    (tmp_path / "rank1.json").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("advisor.ingest.ingest", lambda *_, **__: pytest.fail("was read"))
    status, said = _run(capsys, "ingest", "rank0.json", "-o", output)
    assert status == 2
    assert "not empty and no store" in said or "is no folder" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_behind_one_that_is_not_there_becomes_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _trace(tmp_path / "rank0.json")
    assert _run(capsys, "ingest", "rank0.json", "-o", "new/../store/")[0] == 0
    assert (tmp_path / "store" / "advisor-store.json").is_file()
    assert not (tmp_path / "new").exists()
