"""One file that cannot be read is an error: what it is, where, what to do. Never a clean bill."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import advisor
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.ingest.detect import detect
from advisor.ingest.source import Source
from advisor.ingest.unknown import why_unknown
from advisor.store.store import Store
from tests.ingest.readers.test_nsys import export
from tests.support.marks import long

_CUT_TREE = '<system version="1">\n <cpu numaid="0" arch="x86_64" vendor="GenuineIntel"'


def _parquet(columns: list[str]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: [1, 2, 3] for name in columns}), sink)
    return bytes(sink.getvalue().to_pybytes())


_LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("topo.xml", _CUT_TREE.encode(), "no GPU, NIC or graph in it: unclosed token"),
        ("topo.xml", (_CUT_TREE + "> & <nic").encode(), "not well-formed"),
        ("topo.xml", b'<!DOCTYPE x><system version="1"><cpu numaid="0"/></system>', "refused"),
        ("topo.xml", b"<system", "breaks off before its first device"),
        ("out.txt", b"<frozen importlib._bootstrap>:12: FutureWarning: old\n", "no trace or log"),
        ("page.xml", b"<html><body/></html>", "outermost element is <html>"),
        (
            "ops.parquet",
            _parquet(["rank", "step"])[:-9],
            "whose end, which describes it, is missing",
        ),
        ("ops.parquet", _parquet(["rank", "step"]), "no op table: its columns are rank, step"),
        ("report.json", b'{"foo": 1, "bar": [1,', "is JSON that is cut or damaged"),
        ("report.json", b'{"tests": [], "host": "a"}', "its keys are tests, host"),
        (
            "report.json",
            b'{"version": 3, "start_time": "x", "args": ["a_perf"]}',
            "nothing that can",
        ),
        ("blank.log", b" \n\n", "is blank"),
        (
            "rank0.json.gz",
            gzip.compress(b"[]", mtime=0)[:10] + b"\xff" * 90,
            "gives no data: gzip data is",
        ),
        ("rank0.json.zst", b"\x28\xb5\x2f\xfd\xff\xff" * 9, "gives no data: zstd data is damaged"),
        ("rank0.json.gz", gzip.compress(b"", mtime=0), "is compressed, and empty inside"),
        ("notes.txt", b"dear diary", "is no trace or log"),
        (
            "rank0.json.gz",
            gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
            "is compressed twice\n.*gunzip -c",
        ),
        ("rank0.json", '{"traceEvents": []}'.encode("utf-16"), "is text in UTF-16; .*\n.*iconv"),
        ("rank0.json", '{"traceEvents": []}'.encode("utf-16-le"), "is text in UTF-16LE"),
        ("rank0.json", '{"traceEvents": []}'.encode("utf-32"), "is text in UTF-32"),
        (
            "rank0.json",
            b'{"ph": "X", "ts": 1, "dur": 1, "name": "a"}\n' * 3,
            "has a trace event in every line .*\n.*jq -s",
        ),
        ("rank0.json.gz", _LFS_POINTER, "Git LFS pointer.*\n.*lfs pull"),
        ("log.json", b'{"step": 1, "loss": 2}\n{"step": 2}\n', "line by line .* step, loss"),
    ],
)
def test_the_one_file_given_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(AdvisorError, match=says) as caught:
        advisor.load(path)
    assert name in str(caught.value)
    assert caught.value.hint


def test_a_folder_of_pointers_says_what_is_missing(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json.gz").write_bytes(_LFS_POINTER)
    with pytest.raises(AdvisorError, match="Git LFS pointer") as caught:
        advisor.load(tmp_path)
    assert "lfs pull" in caught.value.hint


@pytest.mark.parametrize("size", [*long(20, 99), 100, *long(5_000), 8_192])
@pytest.mark.parametrize("packed", [False, True])
def test_a_database_that_is_shorter_than_it_says_is_called_cut(
    tmp_path: Path, size: int, *, packed: bool
) -> None:
    """GIVEN an export cut before the first page that names a table of Nsight Systems."""
    path = tmp_path / "a.sqlite"
    con = sqlite3.connect(path)
    tables = "".join(f"CREATE TABLE other{n} (a, b);" for n in range(200))
    con.executescript(f"BEGIN; {tables} COMMIT;")
    con.close()
    export(path)
    content = path.read_bytes()[:size]
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(AdvisorError, match=rf"cut \({size:,} of [\d,]+ bytes are there\)"):
        advisor.load(path)
    (tmp_path / "rank0.json").write_text('{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]}')
    with Store.create() as store:
        ingest([tmp_path], store)
        rows = store.con.execute("SELECT note FROM source WHERE format = 'unknown'").fetchall()
    assert len(rows) == 1
    assert "is a sqlite database that is cut" in rows[0][0]


def test_a_whole_database_is_not_called_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE other (a, b)")
    con.close()
    with pytest.raises(AdvisorError, match="without the tables of Nsight Systems"):
        advisor.load(path)


def test_an_export_without_any_activity_is_known_as_one(tmp_path: Path) -> None:
    """GIVEN a profile in which CUDA could not be traced, whose export has few tables."""
    path = tmp_path / "report.sqlite"
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    con.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
    con.close()
    with pytest.raises(AdvisorError, match="holds no GPU activity"):
        advisor.load(path)


def test_a_report_of_nccl_tests_in_another_order_is_read(tmp_path: Path) -> None:
    half = {"time": "12.5", "alg_bw": 80.0, "bus_bw": 150.0, "nwrong": "0"}
    report = {
        "results": [{"size": "1048576", "type": "float", "out_of_place": half, "in_place": None}],
        "config": {"nthreads": 1, "ngpus": 8, "devices": [{"group": 0}]},
        "args": ["./all_reduce_perf"],
    }
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    with advisor.load(path) as run:
        rows = run.store.con.execute(
            "SELECT op, ranks, bytes, time_us, wrong FROM bench"
        ).fetchall()
        assert rows == [("all_reduce", 8, 1048576, 12.5, 0)]


def _without(source: Path, target: Path, *tables: str) -> Path:
    target.write_bytes(source.read_bytes())
    connection = sqlite3.connect(target)
    for table in tables:
        connection.execute(f"DROP TABLE {table}")
    connection.commit()
    connection.close()
    return target


@pytest.mark.parametrize(
    ("dropped", "says"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "kernels are not recorded: the table CUPTI_ACTIVITY"),
        ("StringIds", "names of kernels are not recorded, so that communication cannot be told"),
    ],
)
def test_an_export_without_kernels_or_their_names_says_so(
    tmp_path: Path, dropped: str, says: str
) -> None:
    whole = export(tmp_path / "whole.sqlite")
    with Store.create() as store:
        ingest([whole], store, run="whole")
        ingest([_without(whole, tmp_path / "less.sqlite", dropped)], store, run="less")
        notes = dict(store.con.execute("SELECT run, note FROM source").fetchall())
    assert says in notes["less"]
    assert "not recorded" not in (notes["whole"] or "")


def test_a_cut_dump_that_still_tells_something_says_that_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    path.write_text(
        '<system version="1">\n <cpu numaid="0"><pci busid="0000:1a:00.0">'
        '<gpu dev="0" sm="90" rank="0"></gpu></pci>'
    )
    with advisor.load(path) as run:
        assert "what came before is kept" in run.report.verdict.why
        dropped: Any = run.store.con.execute("SELECT events_dropped FROM source").fetchone()
        assert dropped == (1,)


@pytest.mark.parametrize(
    "line",
    [
        "[W1122 10:16:08.1 socket.cpp:200] cannot be retrieved",
        "[rank0]: Traceback",
        "[2026-11-22 10:16] up",
    ],
)
def test_a_log_whose_lines_begin_with_a_bracket_is_no_damaged_json(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "stderr.log"
    path.write_text(f"{line}\n")
    assert not why_unknown(Source.of(path, 1)).damaged
    path.write_text("[null, 1")
    assert why_unknown(Source.of(path, 1)).damaged


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"schema": "1.0.2-chakra.0.0.4", "nodes": []}', "Chakra"),
        ('{"$schema":"https://www.speedscope.app/file-format-schema.json"}', "speedscope"),
        ("---  ---\n   Name    Self CPU %      Self CPU   CPU total %", "torch's profiler"),
        ("Comm. Op            Message Size        Count\nbroadcast", "DeepSpeed"),
        # cwilson51/CO-Colloquium-Pytorch-profiler, traces/
        ("[[1726077563878112, 1726077563878112, 1726077563891027], [[0, 1]]]", "memory timeline"),
        # NVIDIA/nccl issue 1765
        (
            '[\n{"name": "Group", "cat": "GROUP", "ph": "b", "id": 0, "pid": 12079, "tid": 1, '
            '"ts": 201606.441406, "args": {"groupId": 0}},\n{}]',
            "NCCL's example profiler",
        ),
        ('{"rocprofiler-sdk-tool":[{"metadata":{"node":{"id":0}}}]}', "rocprofv3"),
        ("==18148== NVPROF is profiling process 18148, command: python train.py", "nvprof"),
    ],
)
def test_files_of_other_tools_are_called_what_they_are(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(text)
    source = Source.of(path, 0)
    assert named in why_unknown(source).reason
    assert detect(source) is None
