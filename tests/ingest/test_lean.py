"""``--lean`` may make a store smaller, never a diagnosis worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.ingest import ingest
from advisor.store.store import Store
from tests.support.marks import long
from tests.support.traces import event, kineto

_HOST = {"args": {}, "pid": 1, "tid": 1}


def _said(path: Path, *, lean: bool) -> tuple[str, list[Any], list[Any], int]:
    with advisor.load(path, lean=lean) as run:
        report = run.report
        (events,) = run.store.con.execute("SELECT count(*) FROM event").fetchone()
        findings = [(f.id, f.severity, f.savings_ns) for f in report.findings]
        outcomes = [(o.rule, o.outcome) for o in report.outcomes]
        return report.verdict.title, findings, outcomes, events


def _same(path: Path) -> None:
    *whole, every = _said(path, lean=False)
    *lean, kept = _said(path, lean=True)
    assert lean == whole
    assert kept < every


# The process is the device here: operators are the work, and dropping them accused the innocent.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "lab-ddp-hidden-communication",
        *long("lab-fsdp2-slow-link", "lab-pp-few-micro-batches"),
    ],
)
def test_what_is_found_in_our_recordings_stays(fixtures_dir: Path, name: str) -> None:
    _same(fixtures_dir / name)


# What a kernel belongs to and which step launched it is told by host events alone.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ddp_8xMI300", *long("dlrm_8xV100", "ddp_2xA100_metadata", "nsys_2gpu")]
)
def test_what_is_found_on_gpus_stays(shared_data: Path, name: str) -> None:
    _same(shared_data / name)


def test_calls_that_launched_stay_and_other_host_work_goes(tmp_path: Path) -> None:
    kept = [
        event(0, cat="kernel", name="gemm"),
        event(1, cat="user_annotation", name="ProfilerStep#1", **_HOST),
        event(2, cat="cpu_op", name="record_param_comms", **_HOST),
        event(3, cat="cuda_runtime", name="cudaStreamSynchronize", **_HOST),
        event(
            4, cat="cuda_runtime", name="cudaLaunchKernel", **(_HOST | {"args": {"correlation": 0}})
        ),
    ]
    kept[0]["args"]["correlation"] = kept[4]["args"]["correlation"] = 77
    gone = [
        event(5, cat="cpu_op", name="aten::add", **_HOST),
        event(
            6, cat="cuda_runtime", name="cudaGetDevice", **(_HOST | {"args": {"correlation": 9}})
        ),
        event(7, cat="python_function", name="train.py(3): step", **_HOST),
    ]
    path = tmp_path / "trace.json"
    path.write_text(kineto([*kept, *gone]))
    with Store.create() as store:
        ingest([path], store, lean=True)
        names = {name for (name,) in store.con.execute("SELECT name FROM event").fetchall()}
        assert names == {item["name"] for item in kept}
        assert store.con.execute("SELECT events_dropped FROM source").fetchall() == [(0,)]


def test_the_counts_are_of_what_is_stored(fixtures_dir: Path) -> None:
    """GIVEN several files THEN each file's and rank's count is that of its rows."""
    with Store.create() as store:
        ingest([fixtures_dir / "gpt2-tiny-ddp-2"], store, lean=True)
        stored = dict(store.con.execute("SELECT rank, count(*) FROM event GROUP BY ALL").fetchall())
        assert len(stored) == 2
        for table in ("rank", "source"):
            told = store.con.execute(
                f"SELECT rank, events_read FROM {table} WHERE events_read > 0"
            ).fetchall()
            assert dict(told) == stored, table


def test_one_run_of_a_store_made_lean_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto([event(0), event(1, cat="cpu_op", name="aten::add", **_HOST)]))
    with Store.create() as store:
        ingest([path], store, run="whole")
        ingest([path], store, run="lean", lean=True)
        counts = store.con.execute("SELECT run, count(*) FROM event GROUP BY ALL ORDER BY ALL")
        assert counts.fetchall() == [("lean", 1), ("whole", 2)]


@pytest.mark.slow
def test_a_lean_store_is_smaller_on_disk_too(fixtures_dir: Path, tmp_path: Path) -> None:
    sizes = []
    for lean in (False, True):
        place = tmp_path / f"{lean}.duckdb"
        with Store.create(place) as store:
            ingest([fixtures_dir / "gpt2-tiny-ddp-2"], store, lean=lean)
            store.save()
            (left,) = store.con.execute("SELECT count(*) FROM event").fetchone()
        sizes.append((place.stat().st_size, left))
    assert sizes[1] < sizes[0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["False.duckdb", "True.duckdb"]
