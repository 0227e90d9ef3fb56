"""Mistakes users make: one clear error, status 2, nothing half-written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from advisor.store import Store
from tests.support.command import Done, advisor
from tests.support.marks import long


def assert_one_clear_error(done: Done, *words: str) -> None:
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 8
    for word in words:
        assert word in done.stderr


def test_no_such_file(tmp_path: Path) -> None:
    assert_one_clear_error(advisor("diagnose", "missing.json", cwd=tmp_path), "missing.json")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    assert_one_clear_error(advisor("diagnose", "empty.json", cwd=tmp_path), "empty.json", "empty")


def test_not_a_trace(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n" * 50)
    assert_one_clear_error(advisor("diagnose", "notes.txt", cwd=tmp_path), "notes.txt")


def test_two_files_with_the_same_rank(tmp_path: Path, fixtures_dir: Path) -> None:
    raw = gzip.decompress((fixtures_dir / "gpt2-tiny-ddp-2" / "rank0.json.gz").read_bytes())
    (tmp_path / "a.json").write_bytes(raw)
    (tmp_path / "b.json").write_bytes(raw)
    done = advisor("diagnose", "a.json", "b.json", cwd=tmp_path)
    assert_one_clear_error(done, "a.json", "b.json", "rank 0")


@pytest.mark.slow
def test_a_truncated_trace_is_read_as_far_as_it_goes(tmp_path: Path, fixtures_dir: Path) -> None:
    raw = gzip.decompress((fixtures_dir / "gpt2-tiny-ddp-2" / "rank0.json.gz").read_bytes())
    (tmp_path / "cut.json").write_bytes(raw[: len(raw) * 2 // 3])
    done = advisor("diagnose", "cut.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "VERDICT" in done.stdout
    assert "the recording of rank 0 is cut or damaged" in done.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json", b'{"traceEvents": [{"ph":"X","name":"a"'),
        ("list.json", b"[]"),
        ("half.sqlite", b"SQLite format 3\0" + bytes(200)),
        ("notes.txt", b"dear diary"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": []}', mtime=0)[:12]),
        ("half.parquet", b"PAR1" + bytes(100)),
    ],
)
@pytest.mark.parametrize("command", ["diagnose", *long("ingest")])
def test_what_holds_nothing_is_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, command: str
) -> None:
    (tmp_path / name).write_bytes(content)
    place = ["-o", "store.duckdb"] if command == "ingest" else []
    done = advisor(command, name, *place, cwd=tmp_path)
    assert_one_clear_error(done, name)
    assert done.stderr.splitlines()[-1].startswith("  "), "a hint"
    assert not (tmp_path / "store.duckdb").exists()


def test_an_existing_output_is_not_overwritten(tmp_path: Path, fixtures_dir: Path) -> None:
    (tmp_path / "out.json").write_text("precious")
    run = fixtures_dir / "gpt2-tiny-ddp-2"
    done = advisor("diagnose", run, "--format", "json", "-o", "out.json", cwd=tmp_path)
    assert_one_clear_error(done, "out.json", "--force")
    assert (tmp_path / "out.json").read_text() == "precious"


def test_a_workload_with_five_mistakes_reports_all_five_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "name: bad\n"
        "strategy: 7\n"
        "world_size: none\n"
        "micro_bach: 4\n"
        "device: tpu\n"
        "steps: 0\n"
    )  # fmt: skip
    done = advisor("profile", "bad.yaml", "-o", "out", cwd=tmp_path)
    assert_one_clear_error(done)
    for line in (2, 3, 4, 5, 6):
        assert f"bad.yaml:{line}:" in done.stderr
    assert "micro_batch" in done.stderr, "the nearest known name"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bad", ["--format", "--fail-on", "--select"])
def test_a_wrong_option_value_names_the_known_ones(
    tmp_path: Path, fixtures_dir: Path, bad: str
) -> None:
    done = advisor("diagnose", fixtures_dir / "gpt2-tiny-ddp-2", bad, "nonsense", cwd=tmp_path)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_at_the_wrong_level_is_told_where_it_belongs(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\npreset: small\n")
    done = advisor("profile", "bad.yaml", "-o", "out", cwd=tmp_path)
    assert_one_clear_error(done, "bad.yaml:2: unknown setting 'preset'; it belongs under 'model'")


def test_a_table_of_many_columns_keeps_their_names(tmp_path: Path) -> None:
    with Store.create(tmp_path / "empty.duckdb") as store:
        columns = [row[0] for row in store.con.execute("DESCRIBE collective").fetchall()]
        store.save()
    done = advisor("sql", "empty.duckdb", "FROM collective", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == columns
