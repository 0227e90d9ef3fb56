"""A number that no column can hold costs itself, not the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.kineto import ranks
from advisor.ingest.source import ReadContext
from tests.support.traces import event, kineto, names, notes, read

_INFO = {"backend": "nccl", "rank": 1, "world_size": 2}
_GROUP = {"pg_name": "0", "ranks": [0, 1], "pg_size": 2}


@pytest.mark.parametrize(
    "fields",
    [
        {"distributedInfo": _INFO | {"world_size": 2**40}},
        {"distributedInfo": _INFO | {"world_size": 2**100}},
        {"distributedInfo": _INFO | {"rank": 2**31}},
        {"distributedInfo": _INFO | {"rank": str(2**64)}},
        {"distributedInfo": _INFO | {"pg_config": [_GROUP | {"ranks": [0, 2**40]}]}},
        {"distributedInfo": _INFO | {"pg_config": [_GROUP | {"pg_size": 2**40}]}},
        {"distributedInfo": _INFO, "advisor": {"peak_memory_bytes": 2**70}},
        {"distributedInfo": _INFO, "deviceProperties": [{"id": 0, "totalGlobalMem": 2**70}]},
        {"distributedInfo": _INFO, "baseTimeNanoseconds": 2**80},
    ],
    ids=[
        *("world_size", "world_size of 100 bits", "rank", "rank as text", "members", "pg_size"),
        *("memory", "memory of the device", "base time"),
    ],
)
def test_a_number_out_of_range_counts_as_not_recorded(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    (tmp_path / "rank0.json").write_text(kineto([event(0)]))
    (tmp_path / "rank1.json").write_text(kineto([event(1)], **fields))
    store = read(tmp_path)
    assert names(store) == ["kernel_0", "kernel_1"]
    rows = store.con.execute(
        "SELECT rank, world_size, peak_memory_bytes, total_memory_bytes FROM rank ORDER BY rank"
    ).fetchall()
    world = fields["distributedInfo"]["world_size"]
    assert rows == [(0, 2, None, None), (1, 2 if world == 2 else None, None, None)]
    groups = store.con.execute("SELECT ranks, size FROM process_group").fetchall()
    assert groups in ([], [([0, 1], 2)], [(None, 2)])


@pytest.mark.parametrize(
    "name", ["worker20261122071530.json", "rank99999999999.json", "1694128201545.json"]
)
def test_a_time_in_the_name_is_no_rank(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps({"traceEvents": [event(0)]}))
    store = read(path)
    assert store.con.execute("SELECT rank FROM rank").fetchall() == [(0,)]
    assert "the trace does not say its rank" in notes(store)


def test_a_rank_of_six_digits_in_the_name(tmp_path: Path) -> None:
    path = tmp_path / "rank123456.json"
    path.write_text(json.dumps({"traceEvents": [event(0)]}))
    assert read(path).con.execute("SELECT rank FROM rank").fetchall() == [(123456,)]


def test_many_groups_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(context: ReadContext, table: str, rows: Any) -> int:
        if table == "process_group":
            calls.append(len(rows))
        return insert(context, table, rows)

    monkeypatch.setattr(ranks, "insert", counted)
    groups = [{"pg_name": str(at), "ranks": [0, 1]} for at in range(3_000)]
    groups += [{"pg_name": str(at), "pg_size": 2} for at in range(2_999, 3_002)]
    path = tmp_path / "rank0.json"
    path.write_text(kineto([event(0)], distributedInfo=_INFO | {"pg_config": groups}))
    stored = read(path).con.execute("SELECT count(*), count(ranks) FROM process_group").fetchall()
    assert stored == [(3_002, 3_000)]
    assert calls == [3_002]


def test_reading_a_trace_imports_no_pandas(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    groups = [{"pg_name": str(at), "ranks": [0, 1]} for at in range(5)]
    path.write_text(kineto([event(0)], distributedInfo=_INFO | {"pg_config": groups}))
    program = (
        "import sys\nfrom advisor.ingest import ingest\nfrom advisor.store import Store\n"
        "with Store.create() as store:\n"
        "    ingest([sys.argv[1]], store)\n"
        "    assert store.con.execute('SELECT count(*) FROM process_group').fetchall() == [(5,)]\n"
        "print('pandas' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["False"]
