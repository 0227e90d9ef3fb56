"""Nsight Systems exports: every row arrives on its rank, and a hostile database does nothing."""

from __future__ import annotations

import gzip
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import advisor
from advisor.cli import main
from advisor.errors import AdvisorError
from advisor.ingest.detect import detect
from advisor.ingest.readers import nsys
from advisor.ingest.readers.nsys.nccl_ranges import Call, all_to_all_of
from advisor.ingest.readers.nsys.open import opened
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from tests.support.traces import compact, event

EPOCH = 1_779_782_330_176_752_435
COMM, REDUCE = 1001, 1002


def global_id(pid: int, tid: int = 0) -> int:
    return (1 << 48) | (pid << 24) | tid


def blob(schema: int, payload: bytes) -> bytes:
    """Header of an NVTX payload: domain, schema, size, offset (as in Nsight's exports)."""
    return struct.pack("<QQQQ", 1, schema, len(payload), 32) + payload


def export(path: Path, *, payloads: bool = True) -> Path:
    """Two processes (ranks 3 and 5 of 8 by NCCL's payload) on GPUs 0 and 1, two kernels each."""
    con = sqlite3.connect(path)
    con.executescript(
        """
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
          streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
          shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
          streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
          copyKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
          correlationId INTEGER, nameId INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
          globalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData BLOB);
        CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER,
          type INTEGER, name TEXT, offset INTEGER);
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'),
          (3, 'ncclAllReduce'), (4, 'cudaLaunchKernel_v7000'), (5, 'ncclCommInitRank');
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100'), (1, 'NVIDIA H100');
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'node7');
        INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
          (1, 1001, 0, 18, 'NCCL communicator ID', NULL), (1, 1001, 1, 5, 'No. of ranks', 8),
          (1, 1001, 2, 5, 'Rank', 12), (1, 1001, 3, 5, 'CUDA device', 16),
          (1, 1002, 0, 18, 'NCCL communicator ID', NULL),
          (1, 1002, 1, 22, 'Message size [bytes]', 8);
        """
    )
    con.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", [EPOCH])
    for device, (pid, rank) in enumerate(((100, 3), (101, 5))):
        thread = global_id(pid, 7)
        init = blob(COMM, struct.pack("<Qiiii", 0xABC, 8, rank, device, 0)) if payloads else None
        size = blob(REDUCE, struct.pack("<QQ", 0xABC, 4096)) if payloads else None
        con.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, 1, ?)",
            [
                (100, 200, 59, None, thread, 5, init),
                (1000, 1100, 59, None, thread, 3, size),
                (900, 2000, 59, "ProfilerStep#1", thread, None, None),
                (950, 990, 59, "aten::mm, seq = 3, op_id = 9", thread, None, None),
                (1500, None, 34, "mark", thread, None, None),
                (1600, None, 59, "never closed", thread, None, None),
            ],
        )
        con.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 4)",
            [(960, 970, thread, 10), (1050, 1060, thread, 11)],
        )
        con.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 7, ?, ?, ?, ?)",
            [
                (3000, 3500, device, 10, global_id(pid), 1, 1),
                (4000, 5000, device, 11, global_id(pid), 2, 2),
            ],
        )
        con.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (5000, 5100, ?, 7, 12, ?, 64, 1)",
            [device, global_id(pid)],
        )
    con.commit()
    con.close()
    return path


def stored(*paths: Path) -> Store:
    store = Store.create()
    sources = [Source.of(path, number) for number, path in enumerate(paths)]
    assert all(detect(source) is nsys for source in sources)
    nsys.read(sources, ReadContext(store, "r"))
    return store


def rows(store: Store, sql: str) -> list[Any]:
    return list(store.con.execute(sql).fetchall())


def test_real_export_keeps_every_row(shared_data: Path, tmp_path: Path) -> None:
    """GIVEN a 2-GPU export THEN sqlite's own counts and sums, table by table."""
    path = shared_data / "nsys_2gpu" / "mfu_2gpu_before.sqlite.gz"
    plain = tmp_path / "truth.sqlite"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    truth = sqlite3.connect(plain)

    def counted(table: str) -> tuple[int, int]:
        sql = f"SELECT count(*), sum(end - start) FROM {table}"
        count, total = truth.execute(sql).fetchone()
        return int(count), int(total)

    with stored(path) as store:
        for category, table in (
            ("kernel", "CUPTI_ACTIVITY_KIND_KERNEL"),
            ("gpu_memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY"),
            ("gpu_memset", "CUPTI_ACTIVITY_KIND_MEMSET"),
            ("cuda_runtime", "CUPTI_ACTIVITY_KIND_RUNTIME"),
            ("cuda_sync", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
        ):
            sql = f"SELECT count(*), sum(dur_ns) FROM event WHERE category = '{category}'"
            assert rows(store, sql) == [counted(table)], category
        nvtx = rows(store, "SELECT count(*) FROM event WHERE class IN ('cpu_op', 'annotation')")
        assert nvtx == [(counted("NVTX_EVENTS")[0],)]
        per_device = truth.execute(
            "SELECT deviceId, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1 ORDER BY 1"
        ).fetchall()
        assert per_device == rows(
            store,
            "SELECT rank, count(*) FROM event WHERE category = 'kernel' GROUP BY 1 ORDER BY 1",
        )
        nccl = truth.execute(
            "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
            "ON s.id = k.demangledName WHERE s.value LIKE 'nccl%'"
        ).fetchone()
        assert rows(store, "SELECT sum(dur_ns) FROM event WHERE class = 'comm'") == [nccl]
        # The session began at 2026-05-26 07:58:50 UTC, its first kernel 32 s later.
        first = rows(store, "SELECT min(start_ns) FROM event WHERE category = 'kernel'")[0][0]
        assert first == EPOCH + 60_111_513_113 - 28_254_349_605
        assert rows(store, "SELECT DISTINCT events_dropped, host, has_base_time FROM rank") == [
            (0, "modal", True)
        ]


def test_ranks_and_collectives_from_nccls_payload(tmp_path: Path) -> None:
    with stored(export(tmp_path / "a.sqlite")) as store:
        assert rows(
            store, "SELECT rank, world_size, host, device, device_name FROM rank ORDER BY 1"
        ) == [(3, 8, "node7", 0, "NVIDIA H100"), (5, 8, "node7", 1, "NVIDIA H100")]
        assert rows(
            store,
            "SELECT rank, collective, dtype, in_elements, out_elements, group_size, process_group, "
            "start_ns, dur_ns FROM event JOIN comm_event USING (run, rank, event_id) "
            "WHERE class = 'comm' ORDER BY 1",
        ) == [
            (rank, "allreduce", "Byte", 4096, 4096, 8, f"{0xABC:#018x}", EPOCH + 4000, 1000)
            for rank in (3, 5)
        ]
        assert rows(store, "SELECT DISTINCT note FROM source") == [(None,)]


def test_host_events(tmp_path: Path) -> None:
    with stored(export(tmp_path / "a.sqlite")) as store:
        assert rows(
            store,
            "SELECT name, class, dur_ns, tid FROM event WHERE rank = 3 AND device IS NULL "
            "ORDER BY start_ns, name",
        ) == [
            ("ncclCommInitRank", "annotation", 100, 7),
            ("ProfilerStep#1", "annotation", 1100, 7),
            ("aten::mm", "cpu_op", 40, 7),
            ("cudaLaunchKernel", "runtime", 10, 7),
            ("ncclAllReduce", "annotation", 100, 7),
            ("cudaLaunchKernel", "runtime", 10, 7),
            ("mark", "annotation", 0, 7),
        ]
        assert rows(store, "SELECT drop_reasons FROM source") == [('{"range without an end": 2}',)]
        assert rows(store, "SELECT rank, events_dropped, drop_reasons FROM rank ORDER BY rank") == [
            (rank, 1, '{"range without an end": 1}') for rank in (3, 5)
        ]
        ids = rows(store, "SELECT count(*), count(DISTINCT (rank, event_id)) FROM event")
        assert ids == [(20, 20)]


def _one_process(path: Path) -> Path:
    """The same export from one process that drives both GPUs, each from a thread of its own."""
    export(path)
    con = sqlite3.connect(path)
    for table in ("KERNEL", "MEMCPY"):
        con.execute(
            f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET globalPid = ?, "
            "correlationId = correlationId + 100 WHERE deviceId = 1",
            [global_id(100)],
        )
    thread, before = global_id(100, 8), global_id(101, 7)
    con.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = ?, "
        "correlationId = correlationId + 100 WHERE globalTid = ?",
        [thread, before],
    )
    con.execute("UPDATE NVTX_EVENTS SET globalTid = ? WHERE globalTid = ?", [thread, before])
    con.commit()
    con.close()
    return path


def test_a_process_that_drives_several_gpus_is_several_ranks(tmp_path: Path) -> None:
    """GIVEN a thread per GPU THEN every rank gets what it has as a process of its own."""
    columns = "rank, name, class, device, stream, start_ns, dur_ns, bytes"
    counts = "SELECT rank, device, events_read, events_dropped, drop_reasons FROM rank ORDER BY 1"
    with (
        stored(export(tmp_path / "two.sqlite")) as two,
        stored(_one_process(tmp_path / "one.sqlite")) as one,
    ):
        for sql in (counts, f"SELECT {columns} FROM event LEFT JOIN comm_event USING "
                    "(run, rank, event_id) ORDER BY ALL"):  # fmt: skip
            assert rows(one, sql) == rows(two, sql)


def test_without_payloads_ranks_follow_the_devices(tmp_path: Path) -> None:
    first = export(tmp_path / "node0.sqlite", payloads=False)
    second = export(tmp_path / "node1.sqlite", payloads=False)
    with stored(first, second) as store:
        assert rows(store, "SELECT rank, device FROM rank ORDER BY 1") == [
            (0, 0),
            (1, 1),
            (2, 0),
            (3, 1),
        ]
        assert rows(
            store,
            "SELECT DISTINCT collective, in_elements "
            "FROM event LEFT JOIN comm_event USING (run, rank, event_id) WHERE class = 'comm'",
        ) == [("allreduce", None)]
        assert "order of GPUs" in rows(store, "SELECT note FROM source")[0][0]


@pytest.mark.parametrize(("name", "rank"), [("report_rank6.sqlite", 6), ("report.sqlite", 4)])
def test_rank_of_a_single_process(tmp_path: Path, name: str, rank: int) -> None:
    path = export(tmp_path / name, payloads=False)
    con = sqlite3.connect(path)
    con.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 1")
    con.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE deviceId = 1")
    if rank == 4:
        con.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        con.execute(
            "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"4\"')"
        )
    con.commit()
    con.close()
    with stored(path) as store:
        assert rows(store, "SELECT rank FROM rank") == [(rank,)]


def test_a_rank_that_a_trace_told_already_is_not_read_twice(tmp_path: Path) -> None:
    source = Source.of(export(tmp_path / "a.sqlite"), 0)
    with Store.create() as store:
        store.con.execute("INSERT INTO rank (run, rank) VALUES ('r', 3)")
        nsys.read([source], ReadContext(store, "r"))
        assert rows(store, "SELECT DISTINCT rank FROM event") == [(5,)]
        assert "ranks [3] have a trace already" in rows(store, "SELECT note FROM source")[0][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([3], "a.sqlite: ranks [3] have a trace already: their events here were not read"),
        ([3, 5], "a.sqlite was not read: ranks [3, 5] have a trace already: their events"),
    ],
    ids=["part", "whole"],
)
def test_an_export_beside_traces_of_its_ranks_is_named_on_the_terminal(
    tmp_path: Path, told: list[int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in told:
        trace = compact([event(number) for number in range(4)], rank=rank)
        (tmp_path / f"rank{rank}.json").write_text(trace)
    export(tmp_path / "a.sqlite")
    with pytest.raises(SystemExit) as left:
        main(["diagnose", str(tmp_path)])
    assert not left.value.code
    lines = [line for line in capsys.readouterr().err.splitlines() if "a.sqlite" in line]
    assert len(lines) == 1
    assert lines[0].startswith("  file ")
    assert said in lines[0]


def test_all_to_all_is_recognised_only_when_the_peers_cover_the_group() -> None:
    calls = [
        Call(name, 0, 1, "c", size, peer)
        for name, size in (("ncclSend", 10), ("ncclRecv", 20))
        for peer in (0, 1, 2)
    ]
    assert all_to_all_of(calls, 3) == (30, 60)
    assert all_to_all_of(calls, 4) is None
    assert all_to_all_of(calls[:-1], 3) is None
    assert all_to_all_of(calls, None) is None


def test_names_are_data(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    evil = "'; DROP TABLE event; --<script>"
    con = sqlite3.connect(path)
    con.execute("UPDATE StringIds SET value = ? WHERE id = 1", [evil])
    con.commit()
    con.close()
    with stored(path) as store:
        assert rows(
            store, "SELECT count(*) FROM event WHERE name = '" + evil.replace("'", "''") + "'"
        ) == [(2,)]


def test_views_and_functions_of_a_hostile_file_do_nothing(tmp_path: Path) -> None:
    """GIVEN a view in the place of a table, and a schema that would call functions."""
    path = tmp_path / "evil.sqlite"
    con = sqlite3.connect(path)
    con.executescript(
        """
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        CREATE TABLE t (start INTEGER);
        CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end, 0 AS deviceId,
          load_extension('/tmp/x') AS streamId, 0 AS correlationId, 0 AS globalPid,
          0 AS demangledName FROM t;
        """
    )
    con.commit()
    con.close()
    source = Source.of(path, 0)
    with opened(source) as database:
        assert "CUPTI_ACTIVITY_KIND_KERNEL" not in database.tables
        for sql in (
            "ATTACH DATABASE '/tmp/other' AS o",
            "SELECT load_extension('/tmp/x')",
            "SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL",
            "DELETE FROM t",
            "PRAGMA journal_mode = WAL",
        ):
            with pytest.raises(sqlite3.Error):
                database.connection.execute(sql).fetchall()
    with stored(path) as store:
        assert "no GPU activity" in rows(store, "SELECT note FROM source")[0][0]


def test_a_cut_file_gives_what_it_can_or_says_why(tmp_path: Path) -> None:
    data = export(tmp_path / "a.sqlite").read_bytes()
    for part in (0.3, 0.6, 0.9):
        path = tmp_path / f"cut{part}.sqlite"
        path.write_bytes(data[: int(len(data) * part)])
        with stored(path) as store:
            dropped = rows(store, "SELECT events_dropped FROM source")[0][0]
        assert dropped > 0


def test_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"SQLite format 3\x00" + b"CUPTI_ACTIVITY_KIND" * 100)
    with pytest.raises(AdvisorError, match="sqlite"), opened(Source.of(path, 0)):
        pass


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(16, 60_000), st.binary(min_size=1, max_size=4)), max_size=8))
def test_damaged_databases_never_crash(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("nsys")
    data = bytearray(export(folder / "a.sqlite").read_bytes())
    for place, noise in edits:
        data[place : place + len(noise)] = noise
    path = folder / "b.sqlite"
    path.write_bytes(data)
    source = Source.of(path, 0)
    with Store.create() as store:
        nsys.read([source], ReadContext(store, "r"))
        assert rows(store, "SELECT count(*) FROM source") == [(1,)]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("Number of incomplete CUPTI events dropped: 24806. Incomplete events appear", 24806),
        ("Number of CUPTI events produced: 53531, CUPTI buffers: 50.", 0),
    ],
)
def test_what_nsys_had_no_times_of_is_lost(tmp_path: Path, text: str, lost: int) -> None:
    path = export(tmp_path / "node.sqlite")
    with sqlite3.connect(path) as con:
        con.execute(
            "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT)"
        )
        con.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, ?), (2, 1, NULL)", [text])
    of_first, of_second = rows(stored(path), "SELECT events_dropped FROM rank ORDER BY rank")
    assert of_first[0] - of_second[0] == lost


def test_a_database_that_holds_what_its_program_printed_is_no_log(tmp_path: Path) -> None:
    """Nsight Systems keeps the output of the program, and with it NCCL's log."""
    path = export(tmp_path / "a.sqlite")
    con = sqlite3.connect(path)
    line = "node7:100:107 [0] NCCL INFO comm 0x6a56210 rank 0 nranks 1 cudaDev 0 - Init COMPLETE\n"
    con.execute("INSERT INTO StringIds VALUES (99, ?)", [line * 30])
    con.commit()
    con.close()
    assert detect(Source.of(path, 0)) is nsys


@pytest.mark.parametrize("kernel", ["gemm", "void at::native::reduce_kernel<512>"])
def test_kernels_tell_whether_pytorch_launched_them(tmp_path: Path, kernel: str) -> None:
    path = export(tmp_path / "a.sqlite")
    con = sqlite3.connect(path)
    con.execute("UPDATE StringIds SET value = ? WHERE id = 1", [kernel])
    con.execute("DELETE FROM NVTX_EVENTS WHERE text LIKE 'aten::%'")
    con.commit()
    con.close()
    with advisor.load(str(path)) as run:
        (found,) = run.sql("SELECT DISTINCT by_torch FROM rank_content").to_dict("records")
    assert found["by_torch"] is (kernel != "gemm")
