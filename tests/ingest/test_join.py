"""Files of one run together: facts of logs land on the ranks of traces, and on no others."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from advisor.ingest import ingest
from advisor.store.store import Store

LOGS = Path(__file__).resolve().parents[2] / "fixtures" / "nccl-logs"


def trace(path: Path, rank: int, world: int) -> Path:
    """The least trace of a rank: one kernel, and who it is."""
    text = {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}
        ],
    }
    path.write_text(json.dumps(text))
    return path


def ranks(*paths: Path) -> list[Any]:
    with Store.create() as store:
        ingest(paths, store)
        return list(
            store.con.execute(
                "SELECT rank, host, nccl_version, world_size, events_read FROM rank ORDER BY rank"
            ).fetchall()
        )


def test_a_log_names_the_hosts_and_the_version_of_traced_ranks(tmp_path: Path) -> None:
    traces = [trace(tmp_path / f"{rank}.json", rank, 4) for rank in (1, 2)]
    assert ranks(*traces, LOGS / "v2.27-groups.log") == [
        (1, "nodea", "2.27.7", 4, 1),
        (2, "nodeb", "2.27.7", 4, 1),
    ]


def test_a_log_of_a_job_of_another_size_names_no_hosts(tmp_path: Path) -> None:
    traces = [trace(tmp_path / f"{rank}.json", rank, 8) for rank in (0, 1)]
    assert [row[1] for row in ranks(*traces, LOGS / "v2.27-groups.log")] == [None, None]


def test_without_traces_the_log_tells_the_ranks() -> None:
    found = ranks(LOGS / "v2.10-sockets.log")
    assert [(rank, host, version) for rank, host, version, _, _ in found] == [
        (0, "nodea", "2.10.3"),
        (1, "nodea", "2.10.3"),
        (2, "nodeb", "2.10.3"),
        (3, "nodeb", "2.10.3"),
    ]


def test_without_traces_dumps_tell_the_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        content = {"nccl_version": "2.26.2", "pg_config": {}, "pg_status": {}, "entries": []}
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(content, protocol=2))
        content["entries"] = [  # type: ignore[assignment]
            {"profiling_name": "nccl:all_reduce", "state": "scheduled", "collective_seq_id": 1}
        ]
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    assert [row[:3] for row in ranks(tmp_path)] == [(0, None, "2.26.2"), (1, None, "2.26.2")]


def test_what_a_ranks_dump_lost_is_counted_at_the_rank_too(tmp_path: Path) -> None:
    """Beside what its trace lost; a rank whose dump is whole lost nothing."""
    first, second = (trace(tmp_path / f"{rank}.json", rank, 2) for rank in (0, 1))
    second.write_text(second.read_text().rstrip("]}"))
    entry = {"profiling_name": "nccl:all_reduce", "state": "scheduled", "collective_seq_id": 1}
    for rank in (0, 1):
        content = {"version": "2.4", "pg_config": {}, "pg_status": {}, "entries": [entry] * 3}
        data = json.dumps(content)
        (tmp_path / f"dump_rank_{rank}.json").write_text(data if rank == 0 else data[:-30])
    with Store.create() as store:
        ingest([tmp_path], store)
        found = store.con.execute(
            "SELECT rank, events_dropped, drop_reasons FROM rank ORDER BY rank"
        ).fetchall()
        (traced,) = store.con.execute(
            "SELECT events_dropped FROM source WHERE rank = 1 AND format = 'kineto'"
        ).fetchone()
    assert first.exists()
    assert found[0] == (0, 0, "{}")
    reasons = json.loads(found[1][2])
    assert reasons["flight-recorder: dump cut or damaged"] == 1
    assert found[1][1] == sum(reasons.values()) == traced + 1
    assert traced == 1


def test_every_format_at_once(tmp_path: Path) -> None:
    """GIVEN a trace, logs of one job and a benchmark THEN each in its table, all accounted for."""
    (tmp_path / "topology.xml").write_text(
        '<system version="1"><cpu numaid="0"><pci busid="0000:1a:00.0">'
        '<gpu dev="0" sm="90" rank="0" gdr="1"/></pci></cpu></system>'
    )
    (tmp_path / "all_reduce.txt").write_text(
        "# nThread 1 nGpus 4\n#  Rank  0 Group  0 Pid 1 on a device  0 [0x01] X\n"
        "#  size count type redop root  time algbw busbw #wrong  time algbw busbw #wrong\n"
        "  1024  256  float  sum  -1  10.0  0.1  0.1  0  10.0  0.1  0.1  0\n"
    )
    paths = [
        trace(tmp_path / "0.json", 0, 4),
        LOGS / "v2.27-groups.log",
        tmp_path / "topology.xml",
        tmp_path / "all_reduce.txt",
    ]
    with Store.create() as store:
        ingest(paths, store)
        formats = store.con.execute("SELECT format FROM source ORDER BY source_id").fetchall()
        counts = {
            table: store.con.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("event", "link", "nccl_choice", "bench")
        }
    assert formats == [("kineto",), ("nccl-log",), ("nccl-xml",), ("nccl-tests",)]
    assert counts == {"event": 1, "link": 12, "nccl_choice": 108, "bench": 2}
