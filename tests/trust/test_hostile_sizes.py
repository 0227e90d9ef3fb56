"""Small files that once took minutes, gigabytes or the process: each costs what it holds.

What is timed took longer than is allowed here, some of it without end.
"""

from __future__ import annotations

import gzip
import json
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advisor.ingest import ingest
from advisor.ingest.compression import open_decompressed
from advisor.ingest.readers.flight_recorder import dump as dump_module
from advisor.ingest.readers.flight_recorder.dump import parse_dump
from advisor.ingest.readers.flight_recorder.unpickle import unpickle
from advisor.ingest.readers.nccl_inspector.records import Inspector, Member, Operation
from advisor.ingest.readers.nccl_inspector.write import _bench
from advisor.ingest.readers.nccl_log.collect import Log
from advisor.ingest.readers.nccl_log.graphs import channel_orders
from advisor.ingest.readers.nccl_tests.text import TableParser
from advisor.ingest.readers.probe import _Collective, _Probe, _sound
from advisor.metrics import derive
from advisor.metrics.models.bench_curves import curve_rows
from advisor.store import Store
from advisor.tune.env_file import read_env_file
from advisor.whatif.queries import CallRow
from advisor.whatif.service import service_times
from benchmarks.fuzz import documents
from tests.support.traces import event, kineto

# Counting coverage takes ten times as long.
pytestmark = pytest.mark.slow

MOST_S = 25.0


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < MOST_S


def _pickle(instructions: bytes) -> bytes:
    """A dictionary with ``entries``, a list that the instructions leave, and what they add."""
    return b"\x80\x02}(X\x07\x00\x00\x00entries]q\x02" + instructions + b"u."


def test_a_key_of_tuples_inside_each_other_ends_no_process() -> None:
    _, cut = unpickle(_pickle(b")" + b"\x85" * 500_000 + b"N"))
    assert cut is not None
    assert "no text or number" in cut


def test_a_key_whose_hash_never_ends_is_no_key() -> None:
    """GIVEN 40 pairs, each of the one before twice THEN nobody asks for the hash."""
    twice = b")q\x05" + b"h\x05\x86q\x05" * 60
    _, cut = unpickle(_pickle(twice + b"N"))
    assert cut is not None


def test_keys_that_all_have_one_hash_are_no_keys() -> None:
    same = (number * (2**61 - 1) for number in range(100, 200))
    numbers = b"".join(b"\x8a\x09" + one.to_bytes(9, "little", signed=True) + b"N" for one in same)
    assert unpickle(_pickle(numbers))[1] is not None


def test_a_dump_that_repeats_its_groups_and_calls_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN what written out is terabytes, in some megabytes THEN a part is kept and told."""
    monkeypatch.setattr(dump_module, "LEAST_KEPT", 4 << 20)
    call: Any = {**documents.flight_recorder()["entries"][0], "input_sizes": [[7] * 32] * 256}
    call["frames"] = [{"name": "n" * 1000, "filename": "f" * 1000, "line": 1}] * 8
    group = {"name": "g", "desc": "", "ranks": list(range(20_000))}
    content: Any = {"pg_config": dict.fromkeys(map(str, range(50_000)), group)}
    dump = parse_dump(content)
    assert 100 < len(dump.groups) < 1_000
    assert dump.dropped == {"over the bound of kept values": 50_000 - len(dump.groups)}
    dump = parse_dump({"entries": [call] * 2_000_000})
    assert 100 < len(dump.entries) < 5_000
    assert dump.dropped == {"over the bound of kept values": 2_000_000 - len(dump.entries)}


def test_what_a_dump_shares_is_read_at_every_place() -> None:
    shared = b"X\x01\x00\x00\x00a](K\x01K\x02eq\x07X\x01\x00\x00\x00bh\x07"
    assert unpickle(_pickle(shared)) == ({"entries": [], "a": [1, 2], "b": [1, 2]}, None)


def test_steps_that_last_longer_than_a_job_are_dropped(tmp_path: Path) -> None:
    """GIVEN an op table whose steps, laid end to end, last 580 years THEN the first are read."""
    steps = range(70_000)
    rows = {
        "dp_rank": [0] * 140_000,
        "stage": [0] * 140_000,
        "rank": [0] * 140_000,
        "step": [step for step in steps for _ in range(2)],
        "optype": ["forward-compute"] * 140_000,
        "start_ts": [-1e5, 1e5] * len(steps),
        "duration": [0.5, 1e5] * len(steps),
    }
    pq.write_table(pa.table(rows), tmp_path / "trace.parquet", use_dictionary=False)
    with Store.create() as store:
        ingest([tmp_path / "trace.parquet"], store)
        found = store.con.execute("SELECT events_read, drop_reasons FROM source").fetchall()
        (latest,) = store.con.execute("SELECT max(start_ns + dur_ns) FROM event").fetchone()
    assert found[0][0] > 0
    assert "no usable time" in json.loads(found[0][1])
    assert latest < 2**62


@pytest.mark.long
@pytest.mark.parametrize("rows", ["1 1 int8\n" * 100_000, "1 1 int8\n" + "1\n" * 300_000])
def test_a_heading_of_thousands_of_columns(rows: str) -> None:
    parser = TableParser()
    for line in ["# size count type " + "a " * 30_000, *rows.splitlines()]:
        parser.feed(line)
    parser.finish()


@pytest.mark.long
def test_one_process_in_thousands_of_communicators() -> None:
    log = Log()
    head = "n1:1:1 [0] NCCL INFO"
    for number in range(20_000):
        log.feed(f"{head} comm {number:#x} rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE",
                 ("x", 1))  # fmt: skip
        log.feed("n1:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0",
                 ("x", 1))  # fmt: skip
    assert len({member.order for member in log.collected.registry.members.values()}) == 20_000


def test_a_connection_is_of_the_latest_communicator_that_has_its_ranks() -> None:
    log = Log()
    for pointer, ranks in ((1, 4), (2, 16), (3, 8), (4, 2), (5, 2)):
        log.feed(
            f"n1:1:{pointer} [0] NCCL INFO comm {pointer:#x} rank 1 nranks {ranks} cudaDev 0 "
            "busId 1000 commId 0xa - Init START",
            ("x", 1),
        )
    registry = log.collected.registry
    own = registry._of_process["n1", 1]
    found = [own.latest_of(1, least) for least in (1, 2, 3, 8, 9, 17)]
    pointers = [None if one is None else one.line.pointer for one in found]
    assert pointers == ["0x5", "0x5", "0x3", "0x3", "0x2", None]
    assert own.latest_of(0, 1) is None


def test_a_ring_that_never_comes_back_to_its_start() -> None:
    """GIVEN 0 -> 1 -> 2 -> 1 in a communicator of a million ranks THEN its ring has three."""
    steps = {channel: {0: 1, 1: 2, 2: 1} for channel in range(100)}
    found = channel_orders({}, steps, 1 << 20)
    assert set(map(str, found.values())) == {"([0, 1, 2], False)"}


def test_kinds_of_calls_by_thousands_of_communicators() -> None:
    inspector = Inspector()
    for number in range(20_000):
        member = Member("n1", 1, f"{number:x}", 0, 2)
        inspector._take(
            Operation(member, "all_reduce", None, None, 1, number, 5.0, None, None, None), {}
        )
    assert sum(row["hosts"] is None for row in _bench(inspector)) == 20_000


def test_a_million_times_of_a_probe_that_are_none_are_one_error() -> None:
    row = {"op": "all_reduce", "ranks": 2, "bytes": 8, "times_us": [0] * 1_000_000}
    found = _Probe(world_size=2, collectives=[row])
    dropped: Counter[str] = Counter()
    assert list(_sound(_Collective, found.collectives, dropped)) == []
    assert dropped == {"unusable times_us": 1}


def test_thousands_of_pairs_that_send_at_once() -> None:
    """GIVEN calls that run together but share no rank THEN each is held against its ranks'."""
    rows = {
        rank: [CallRow(rank // 2, 0, 0, 1000, "g", "send", 1_000_000, False, None)]
        for rank in range(16_000)
    }
    times, _ = service_times(rows, dict.fromkeys(range(8_000), (0, 1000)))
    assert set(times.values()) == {1000.0}


def test_a_word_of_megabytes_among_settings(tmp_path: Path) -> None:
    """GIVEN a line that no shell takes THEN it is not understood, and the others are."""
    path = tmp_path / "job.sh"
    long = "export NCCL_ALGO=" + "EOF" * 1_000_000
    path.write_text(f"mpirun -x NCCL_DEBUG=INFO ls\n{long} NCCL_PROTO=LL\n")
    found = read_env_file(path)
    assert found.settings == {"NCCL_DEBUG": ("INFO", 1)}
    assert found.unread == {"NCCL_ALGO": 2, "NCCL_PROTO": 2}


def _read(path: Path) -> int:
    stream, _ = open_decompressed(path, "gzip")
    with stream:
        return len(stream.read())


def test_a_hundred_thousand_empty_members(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"x" * 100) + gzip.compress(b"", mtime=0) * 100_000)
    assert _read(path) == 100


@pytest.mark.long
def test_members_inside_each_other_that_all_end_at_one_damage(tmp_path: Path) -> None:
    """GIVEN hundreds of members, each within the stored bytes of the one before."""
    end, inner = 60_000, bytearray(b"A" * 60_000)
    for at in range(0, 31 * 200, 31):
        size = end - at - 15
        member = (
            b"\x1f\x8b\x08" + bytes(6) + b"\x03" + b"\0" + struct.pack("<HH", size, size ^ 0xFFFF)
        )
        inner[at : at + 15] = member
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 4000) + bytes(inner) + b"\x07" + b"\xff" * 9)
    assert _read(path) >= 256 * 4000


def test_ten_thousand_tables_of_a_benchmark() -> None:
    with Store.create() as store:
        store.con.execute(
            "INSERT INTO bench (run, tool, source, op, ranks, bytes, time_us) "
            "SELECT 'run', 'nccl-tests', n::VARCHAR, 'all_reduce', 8, 1 << 26, 500 + n "
            "FROM range(10000) rows(n)"
        )
        found = curve_rows(store.con, "run")
    assert {row["like_tables"] for row in found} == {10_000}
    assert len({row["like_gbps"] for row in found}) == 1


@pytest.mark.long
def test_a_log_of_thousands_of_ranks(tmp_path: Path) -> None:
    """GIVEN one log of 5,000 processes THEN they are read and their clocks written at once."""
    head = "NCCL INFO comm 0xaa rank"
    lines = ["h0:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4"] + [
        f"h{rank}:{rank}:1 [0] {head} {rank} nranks 5000 cudaDev 0 busId 1000 commId 0xb - Init "
        "COMPLETE"
        for rank in range(5_000)
    ]
    (tmp_path / "nccl.log").write_text("\n".join(lines) + "\n")
    with Store.create() as store:
        ingest([tmp_path / "nccl.log"], store)
        derive(store)
        found = store.con.execute("SELECT count(*), count(host) FROM rank").fetchall()
    assert found == [(5_000, 5_000)]


def _ranks_by_process(path: Path, count: int, **fields: Any) -> None:
    """A trace that holds so many ranks, an event each, and fields of its own."""
    named = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"Rank {rank}"}}
        for rank in range(count)
    ]
    path.write_text(json.dumps({**fields, "traceEvents": [
        *named,
        *({"ph": "X", "cat": "kernel", "name": "k", "pid": rank, "tid": 7, "ts": 1000.0, "dur": 5,
           "args": {"device": 0, "stream": 7}} for rank in range(count)),
    ]}))  # fmt: skip


@pytest.mark.long
def test_fields_of_a_trace_of_a_thousand_ranks_are_looked_at_once(tmp_path: Path) -> None:
    """GIVEN 4 MB of fields that nothing reads THEN no rank takes their sizes anew."""
    fields = {f"field {number}": [{"a": 1}] * 25_000 for number in range(16)}
    _ranks_by_process(tmp_path / "trace.json", 1_000, **fields)
    with Store.create() as store:
        ingest([tmp_path / "trace.json"], store)
        found = store.con.execute("SELECT count(*), min(events_read) FROM rank").fetchall()
    assert found == [(1_000, 1)]


@pytest.mark.long
def test_fields_of_a_trace_of_thousands_of_ranks_are_kept_once(tmp_path: Path) -> None:
    """GIVEN 240 KB that would stand at each of 1,000 ranks THEN they do at the first."""
    held = {f"layer.{number}.weight": number for number in range(9_000)}
    _ranks_by_process(tmp_path / "trace.json", 1_000, advisor={"held_parameters": held})
    with Store.create() as store:
        ingest([tmp_path / "trace.json"], store)
        derive(store)
        first, others = store.con.execute(
            "SELECT max(length(metadata::VARCHAR)) FILTER (rank = 0), "
            "sum(length(metadata::VARCHAR)) FILTER (rank > 0) FROM rank"
        ).fetchone()
        (note,) = store.con.execute("SELECT note FROM source").fetchone()
    assert first > 100_000
    assert others < 10_000
    assert note == "holds ranks 0-999; what it says of the run is kept at rank 0 alone"


def _op_table(path: Path, ranks: int) -> None:
    count = 2 * ranks
    pq.write_table(pa.table({
        "dp_rank": [number // 2 for number in range(count)],
        "stage": [0] * count,
        "rank": [number // 2 for number in range(count)],
        "step": [0] * count,
        "optype": ["forward-compute", "backward-compute"] * ranks,
        "start_ts": [0.0, 0.5] * ranks,
        "duration": [0.4] * count,
    }), path)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "write"), [("t.json", _ranks_by_process), ("t.parquet", _op_table)]
)
def test_a_small_file_of_more_ranks_than_a_cluster(name: str, write: Any, tmp_path: Path) -> None:
    """GIVEN 40,000 ranks with next to nothing of each THEN the file is refused, and no other."""
    write(tmp_path / name, 40_000)
    (tmp_path / "rank0.json").write_text(kineto([event(1)]))
    with Store.create() as store:
        ingest([tmp_path], store)
        notes = store.con.execute("SELECT note FROM source ORDER BY events_read").fetchall()
        assert store.con.execute("SELECT rank, events_read FROM rank").fetchall() == [(0, 1)]
        assert store.con.execute("SELECT count(*) FROM event").fetchall() == [(1,)]
    assert "names 40,000 ranks in" in notes[0][0]
