"""Nsight Systems exports: recognised wherever their tables lie, and what fills their time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.api import Run, load
from advisor.errors import AdvisorError


def _export(path: Path, *, pid: bool, filler: int) -> Path:
    """An export of two GPUs, 100 kernels each, whose schema begins ``filler`` bytes into it."""
    with sqlite3.connect(path) as con:
        # Tables of a long definition first: the schema's rows go in the order of creation.
        for number in range(filler // 900):
            con.execute(f"CREATE TABLE other_{number} (a{'x' * 900} INTEGER)")
        column = ", globalPid INTEGER" if pid else ""
        con.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
            f" streamId INTEGER, correlationId INTEGER, demangledName INTEGER{column})"
        )
        con.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        con.execute("INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce()')")
        for at in range(200):
            device, index = divmod(at, 100)
            values = [index * 1000, index * 1000 + 900, device, 7, at, 1 + index % 2]
            values += [(device + 11) << 24] if pid else []
            marks = ", ".join("?" * len(values))
            con.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", values)
    con.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("pid", [True, False])
def test_an_export_is_known_by_its_schema(tmp_path: Path, pid: bool) -> None:
    path = _export(tmp_path / "late.sqlite", pid=pid, filler=150_000)
    assert b"CUPTI" not in path.read_bytes()[: 64 * 1024]
    with load(path) as run:
        found = run.sql("SELECT rank, count(*) AS n FROM event GROUP BY rank ORDER BY rank")
        comm = run.sql("SELECT count(*) AS n FROM collective")["n"][0]
    assert found["n"].tolist() == [100, 100]
    assert comm == 100


def test_another_database_is_still_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE notes (CUPTI TEXT)")
    con.close()
    with pytest.raises(AdvisorError):
        load(path)


def test_a_genuine_export_with_late_tables(real2: Callable[[str], Run]) -> None:
    """nsys_mock: two kernels and a copy; its tables begin at byte 120,893."""
    run = real2("nsys_mock.sqlite")
    found = run.sql("SELECT category, count(*) AS n FROM event WHERE device IS NOT NULL GROUP BY 1")
    assert dict(zip(found["category"], found["n"], strict=True)) == {
        "kernel": 2,
        "gpu_memcpy": 1,
        "cuda_sync": 1,
    }


@pytest.mark.slow
def test_two_gpus_that_wait_for_their_hosts_in_every_block(shared_data: Path) -> None:
    """nsys_2gpu: 33 waits of a stream in an unmarked window of 300 ms; ranks idle 26 and 31 ms."""
    path = shared_data / "nsys_2gpu" / "mfu_2gpu_before.sqlite.gz"
    if not path.is_file():
        pytest.skip("../shared/data/nsys_2gpu (another project's recording) is not beside this one")
    with load(path) as run:
        (found,) = [it for it in run.report.findings if it.rule == "blocking-sync"]
    assert 15e6 < (found.savings_ns or 0) < 31e6


def test_an_export_of_a_process_without_a_gpu_was_not_cut(tmp_path: Path) -> None:
    """Of the job's launcher: two calls of the runtime, no kernel. To copy it again is no help."""
    path = tmp_path / "launcher.sqlite"
    with sqlite3.connect(path) as con:
        con.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER,"
            " globalTid INTEGER, correlationId INTEGER, nameId INTEGER)"
        )
        con.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        con.execute("INSERT INTO StringIds VALUES (1, 'cuInit')")
        con.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 1, 1, 1)")
    con.close()
    with pytest.raises(AdvisorError) as caught:
        load(path)
    assert "no GPU activity" in str(caught.value)
    assert "nsys profile --trace=cuda,nvtx" in (caught.value.hint or "")
    assert "cut in transfer" not in (caught.value.hint or "")


def test_a_trace_of_another_program_was_not_cut(tmp_path: Path) -> None:
    """Requests of a server as begin and end of async events: nothing of a training job."""
    path = tmp_path / "requests.json"
    path.write_text(
        '[{"cat": "resnet50", "name": "1", "id": "1", "ph": "b", "ts": 2432907408.6, "pid": 0},'
        ' {"cat": "resnet50", "name": "1", "id": "1", "ph": "e", "ts": 2432923628.5, "pid": 0}]'
    )
    with pytest.raises(AdvisorError) as caught:
        load(path)
    assert "what is read: PyTorch profiler traces" in (caught.value.hint or "")
