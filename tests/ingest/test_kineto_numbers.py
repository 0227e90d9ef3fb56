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
    assert "the trace says no rank that can be used" in notes(store)


def test_a_rank_of_six_digits_in_the_name(tmp_path: Path) -> None:
    path = tmp_path / "rank123456.json"
    path.write_text(json.dumps({"traceEvents": [event(0)]}))
    assert read(path).con.execute("SELECT rank FROM rank").fetchall() == [(123456,)]


@pytest.mark.parametrize(("folder", "rank"), [("traces-rank5", 5), ("rank5-slow-gpu", 0)])
def test_a_folder_names_a_rank_only_at_its_end(tmp_path: Path, folder: str, rank: int) -> None:
    path = tmp_path / folder / "node1_4000.1764460800000000000.pt.trace.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"traceEvents": [event(0)]}))
    assert read(path).con.execute("SELECT rank FROM rank").fetchall() == [(rank,)]


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


@pytest.mark.slow
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


_NOT_RANKS = ("1.6", "-1", "1048576", "1e40", '"2.5"', "true", "[1]", '"abc"')


@pytest.mark.parametrize("native", ["1", "0"])
def test_an_event_of_no_usable_rank_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    """GIVEN a merged trace with ranks that are none THEN no event comes to another rank."""
    monkeypatch.setenv("ADVISOR_NATIVE", native)
    args = [f'{{"device": 0, "rank": {text}}}' for text in ("0", "1.0", '"2"', *_NOT_RANKS)]
    events = ", ".join(
        f'{{"ph": "X", "cat": "kernel", "name": "k{n}", "pid": 1, "tid": 7, "ts": {n}, "dur": 0.5, '
        f'"args": {text}}}'
        for n, text in enumerate(args)
    )
    (tmp_path / "all.json").write_text(f'{{"traceEvents": [{events}]}}')
    store = read(tmp_path / "all.json")
    rows = store.con.execute("SELECT rank, name FROM event ORDER BY 1").fetchall()
    assert rows == [(0, "k0"), (1, "k1"), (2, "k2")]
    (reasons,) = store.con.execute("SELECT drop_reasons FROM source").fetchone()
    assert json.loads(reasons) == {"no usable rank": len(_NOT_RANKS)}


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_field_that_is_no_whole_number_in_range_is_unknown_and_counted_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    monkeypatch.setenv("ADVISOR_NATIVE", native)
    collective = {"Collective name": "allreduce", "Group size": 2.5, "In msg nelems": 2**64}
    args = [
        {"device": 0, "stream": 7.5, "correlation": 1},
        {"device": 0, "stream": "0x1f", "correlation": 2**63},
        {"device": 0, "stream": 7, "correlation": "x", "External id": True, "bytes": 1e3},
        {"device": 2.0, "stream": 7, "correlation": 4, **collective},
    ]
    events = [event(n, args=one) for n, one in enumerate(args)]
    events[0]["tid"] = "a thread"
    (tmp_path / "rank0.json").write_text(kineto(events))
    store = read(tmp_path / "rank0.json")
    rows = store.con.execute(
        "SELECT device, stream, correlation, external_id, bytes FROM event ORDER BY start_ns"
    ).fetchall()
    assert rows == [
        (0, None, 1, None, None),
        (0, 31, None, None, None),
        (0, 7, None, None, 1000),
        (2, 7, 4, None, None),
    ]
    found = store.con.execute("SELECT group_size, in_elements FROM comm_event").fetchall()
    assert found == [(None, None)]
    said = notes(store).split("; ")
    for field in ("stream", "correlation", "External id", "Group size", "In msg nelems"):
        assert f"events without a usable {field}: 1" in said
