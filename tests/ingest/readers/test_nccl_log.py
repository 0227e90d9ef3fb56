"""NCCL debug logs: facts reach the right rank, host and communicator, in every version's form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import advisor
from advisor.ingest.detect import detect
from advisor.ingest.readers import nccl_log
from advisor.ingest.readers.nccl_log.facts import Fact
from advisor.ingest.readers.nccl_log.graphs import channel_orders
from advisor.ingest.readers.nccl_log.lines import classify_transport, parse_line
from advisor.ingest.readers.nccl_log.prefix import records
from advisor.ingest.readers.nccl_log.tables import parse_choice
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "nccl-logs"


def stored(*paths: Path) -> Store:
    store = Store.create()
    sources = [Source.of(path, number) for number, path in enumerate(paths)]
    assert all(detect(source) is nccl_log for source in sources)
    nccl_log.read(sources, ReadContext(store, "r"))
    return store


def rows(store: Store, sql: str) -> list[Any]:
    return list(store.con.execute(sql).fetchall())


def facts(store: Store, kind: str) -> dict[tuple[Any, Any, str], Any]:
    found = rows(store, f"SELECT rank, host, name, value FROM topology WHERE kind = '{kind}'")
    return {
        (rank, host, name): json.loads(value) if value[:1] in "{[" else value
        for rank, host, name, value in found
    }


@pytest.fixture(scope="module")
def old() -> Iterator[Store]:
    with stored(LOGS / "v2.10-sockets.log") as store:
        yield store


@pytest.fixture(scope="module")
def middle() -> Iterator[Store]:
    with stored(LOGS / "v2.21-one-nic.log") as store:
        yield store


@pytest.fixture(scope="module")
def new() -> Iterator[Store]:
    with stored(LOGS / "v2.27-groups.log") as store:
        yield store


def test_versions_and_networks(old: Store, middle: Store, new: Store) -> None:
    assert facts(middle, "version")[None, "nodea", "driver"] == "12040"
    for store, version in ((old, "2.10.3"), (middle, "2.21.5"), (new, "2.27.7")):
        assert {v for (_, _, name), v in facts(store, "version").items() if name == "nccl"} == {
            version
        }
    assert set(facts(old, "net").values()) == {"Socket", "none found"}  # the last: its plugin
    assert set(facts(middle, "net").values()) == {"IB"}
    assert facts(new, "plugin") == {(None, host, "net"): "IBext_v10" for host in ("nodea", "nodeb")}


def test_old_logs_tie_lines_to_ranks_that_are_named_only_at_the_end(old: Store) -> None:
    """GIVEN 2.10, which prints no Init START line THEN earlier lines still find their rank."""
    assert set(facts(old, "rank")) == {
        (0, "nodea", "7000"),
        (1, "nodea", "f000"),
        (2, "nodeb", "7000"),
        (3, "nodeb", "f000"),
    }
    assert facts(old, "tree")[2, "nodeb", "trees"] == [
        {"channel": 0, "children": [3], "parent": 0, "root": False, "communicator": "world"},
        {"channel": 1, "children": [3, 0], "parent": None, "root": True, "communicator": "world"},
    ]
    graph = facts(old, "graph")[0, "nodea", "ring"]
    assert (graph["channels"], graph["bw_intra"], graph["bw_inter"]) == (1, 1.2, 1.2)
    assert (graph["type_intra"], graph["type_inter"]) == ("PIX", "PHB")
    assert graph["paths"] == [["NET/0", "GPU/0", "GPU/1", "NET/0"]]


def test_old_links(old: Store) -> None:
    assert rows(old, "SELECT src, dst, kind, nic, gdr FROM link WHERE channel = 1 ORDER BY 1") == [
        (0, 1, "shm", None, None),
        (1, 2, "net-socket", "eth0", False),
        (2, 3, "p2p", None, None),
        (3, 0, "net-socket", "eth0", False),
    ]


def test_system_tree_and_paths(old: Store, middle: Store) -> None:
    assert facts(old, "gpu")[None, "nodea", "GPU/F000"] == {
        "parent": "PCI/5000",
        "bw_gbps": 12.0,
        "nvlink_gbps": 0.0,
    }
    gpu = facts(middle, "gpu")[None, "nodeb", "GPU/0-3b000"]
    assert gpu == {"parent": "CPU/0-1", "bw_gbps": 24.0, "nvlink_gbps": 240.0}
    port = facts(middle, "net-port")[None, "nodea", "NET/0-0"]
    assert port == {
        "parent": "NIC/0-18000",
        "bw_gbps": 25.0,
        "guid": "aa24210003bd70c4",
        "port": "1",
    }
    assert facts(middle, "path")[None, "nodea", "GPU/0-3b000 -> NET/0-0"] == {
        "hops": 4,
        "bw_gbps": 10.0,
        "type": "SYS",
    }
    node = facts(middle, "node")[None, "nodea", "nodea"]
    assert node["ranks"] == [0, 1]
    assert (node["gpus"], node["nics"], node["net_ports"]) == (2, 1, 1)
    assert node["total_bw_gbps"] == 240.0


def test_gpudirect_per_gpu_and_nic(middle: Store, new: Store) -> None:
    gdr = facts(middle, "gdr")
    assert gdr[None, "nodea", "HCA mlx5_0"] == {"enabled": True, "net": "IB"}
    assert gdr[None, "nodea", "GPU 1 / HCA 0"] == {
        "enabled": False,
        "distance": 7,
        "limit": 5,
        "read": True,
    }
    assert rows(middle, "SELECT DISTINCT gdr, nic, kind FROM link WHERE kind != 'p2p'") == [
        (False, "mlx5_0", "net-ib")
    ]
    assert facts(new, "gdr")[None, "nodeb", "GPU 0-3b000 / HCA 1"]["enabled"] is True


def test_gdr_counts_only_where_both_ends_have_it(new: Store) -> None:
    """GIVEN rank 2 receives from rank 1 without GDRDMA though rank 1 sends with it."""
    assert rows(new, "SELECT src, dst, ends_without_gdr, ends_read FROM link WHERE NOT gdr") == [
        (1, 2, [2], 2)
    ]


def test_groups_map_to_global_ranks(new: Store) -> None:
    """GIVEN two pairs split off 4 ranks THEN their ranks 0 and 1 are not the world's."""
    pairs = rows(
        new, "SELECT src, dst, nic FROM link WHERE communicator LIKE '0xbbbb%' ORDER BY src"
    )
    assert pairs == [(0, 2, "mlx5_0"), (1, 3, "mlx5_1"), (2, 0, "mlx5_0"), (3, 1, "mlx5_1")]
    members = {name: v["members"] for (_, _, name), v in facts(new, "communicator").items()}
    assert members == {
        "0xaaaa000011112222": [0, 1, 2, 3],
        "0xbbbb000000000000": [0, 2],
        "0xbbbb000000000001": [1, 3],
    }


def test_rings(middle: Store, new: Store) -> None:
    rings = {name: v["ranks"] for (_, _, name), v in facts(new, "ring").items()}
    assert rings == {"ring 0": [0, 1, 2, 3], "ring 1": [0, 3, 2, 1]}
    assert all(v["complete"] for v in facts(middle, "ring").values())


def test_graphs_by_pattern(middle: Store, new: Store) -> None:
    names = {name for (rank, _, name) in facts(new, "graph") if rank == 3}
    assert names == {"ring", "tree", "collnet", "nvls"}
    assert {name for (_, _, name) in facts(middle, "graph")} == {"ring", "tree"}
    last = facts(new, "graph")[3, "nodeb", "nvls"]  # the thread splits its communicator later
    assert (last["bw_inter"], last["ranks"]) == (60.0, 4)


def test_channels(old: Store, new: Store) -> None:
    assert facts(old, "channels")[1, "nodea", "channels"] == {
        "coll": 2,
        "p2p": 2,
        "p2p_per_peer": 1,
        "ranks": 4,
    }
    assert facts(new, "channels")[2, "nodeb", "channels"] == {
        "coll": 2,
        "collnet": 2,
        "nvls": 2,
        "p2p": 2,
        "p2p_per_peer": 1,
        "ranks": 4,
    }


def test_environment(old: Store, new: Store) -> None:
    assert {(n, v) for (_, _, n), v in facts(old, "env").items()} == {
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_ALGO", "Ring"),
    }
    assert facts(new, "env")[0, "nodea", "NCCL_ALGO"] == "ring,tree"


def test_the_matrix_survives_interleaving(new: Store) -> None:
    matrix = facts(new, "matrix")
    assert set(matrix) == {
        (None, None, op)
        for op in ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
    }
    gather = matrix[None, None, "all_gather"]
    assert gather["protocols"] == {"LL": 1, "LL128": 2, "SIMPLE": 1}
    assert [name for name, on in gather["algorithms"].items() if on] == ["TREE", "RING"]
    assert len(gather["algorithms"]) == 7


@pytest.mark.parametrize(
    ("store", "columns", "tree_simple"),
    [("old", 9, (108.8, 0.6)), ("middle", 18, (60.4, 9.9)), ("new", 21, (60.4, 37.5))],
)
def test_tuning_tables_of_all_three_layouts(
    store: str, columns: int, tree_simple: tuple[float, float], request: pytest.FixtureRequest
) -> None:
    con = request.getfixturevalue(store)
    per_op = rows(
        con,
        "SELECT op, count(*), min(ranks) FROM nccl_choice WHERE source = 'table' GROUP BY 1",
    )
    assert sorted(per_op) == sorted(
        (op, columns, 4)
        for op in ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
    )
    cell = rows(
        con,
        "SELECT latency_us, bandwidth_gbps FROM nccl_choice WHERE source = 'table' "
        "AND op = 'all_reduce' AND algorithm = 'TREE' AND protocol = 'SIMPLE'",
    )
    assert cell == [tree_simple]


def test_pat_cells_stand_under_pat(new: Store) -> None:
    cells = rows(
        new,
        "SELECT op, protocol, latency_us FROM nccl_choice WHERE algorithm = 'PAT' "
        "AND bandwidth_gbps > 0 ORDER BY op",
    )
    assert cells == [("all_gather", "SIMPLE", 20.6), ("reduce_scatter", "SIMPLE", 20.6)]


def test_choices(middle: Store, new: Store) -> None:
    columns = "op, bytes, algorithm, protocol, time_us, channels, calls, ranks"
    assert rows(
        middle, f"SELECT {columns} FROM nccl_choice WHERE source = 'call' ORDER BY bytes"
    ) == [
        (None, 1024, "TREE", "LL", 15.3, None, 3, 4),
        (None, 1048576, "RING", "SIMPLE", 120.25, None, 2, 4),
        (None, 268435456, "RING", "SIMPLE", 20480.5, None, 1, 4),
    ]
    # A process with communicators of several sizes does not tell which one a call was for.
    assert rows(new, f"SELECT {columns} FROM nccl_choice WHERE source = 'call' ORDER BY bytes") == [
        ("all_reduce", 4096, "TREE", "LL", None, 1, 1, None),
        ("reduce_scatter", 16777216, "PAT", "SIMPLE", None, 2, 1, None),
        ("all_reduce", 67108864, "RING", "SIMPLE", None, 2, 2, None),
    ]


def test_the_form_of_2_23_names_the_operation_and_the_time() -> None:
    choice = parse_choice("ReduceScatter: 1048576 Bytes -> Algo 6 proto 2 time 34.693867")
    assert choice is not None
    assert (choice.op, choice.algorithm, choice.protocol) == ("reduce_scatter", "PAT", "SIMPLE")
    assert choice.time_us == 34.693867


def test_warnings_keep_their_place(new: Store) -> None:
    assert facts(new, "warning") == {
        (3, "nodeb", "ib-retry-exceeded"): (
            "transport/net_ib.cc:1295 Call to ibv_poll_cq failed with error retry exceeded"
        )
    }


def test_one_file_per_process_reads_like_one_file(tmp_path: Path, new: Store) -> None:
    """GIVEN NCCL_DEBUG_FILE=log.%h.%p THEN links and ranks are those of the joint log."""
    paths = []
    lines = (LOGS / "v2.27-groups.log").read_text().splitlines(keepends=True)
    for pid in (601, 500, 600, 501):
        path = tmp_path / f"log.{pid}"
        path.write_text("".join(line for line in lines if f":{pid}:" in line))
        paths.append(path)
    with stored(*paths) as split:
        for sql in (
            "SELECT * FROM link ORDER BY ALL",
            "SELECT kind, rank, host, name FROM topology WHERE kind != 'matrix' ORDER BY ALL",
        ):
            assert rows(split, sql) == rows(new, sql)


def test_the_log_of_one_rank_alone(tmp_path: Path) -> None:
    """GIVEN only rank 0's log THEN its world is known, and nothing of the pairs is invented."""
    lines = (LOGS / "v2.27-groups.log").read_text().splitlines(keepends=True)
    path = tmp_path / "rank0.log"
    path.write_text("".join(line for line in lines if "nodea:500:" in line))
    with stored(path) as store:
        assert rows(store, "SELECT src, dst FROM link ORDER BY 1, 2") == [(0, 1), (0, 3), (3, 0)]
        assert [v["ranks"] for v in facts(store, "ring").values()] == [[0, 1, 2, 3], [0, 3, 2, 1]]
        assert json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0]) == {
            "connection between ranks that cannot be told": 1
        }


@pytest.mark.parametrize(("second", "lost"), [(0, None), (1, 1)])
def test_a_second_communicator_of_all_ranks_has_the_world_s_order(
    tmp_path: Path, second: int, lost: int | None
) -> None:
    """Of two ranks one wrote its log: "lost records: connection between ranks that cannot be told"
    stood for the peers of its second communicator. One that turns the ranks around tells nothing.
    """
    text = "".join(
        f"h:1:9 [0] NCCL INFO comm 0x{at}f rank {rank} nranks 2 cudaDev 0 busId 18000 "
        f"commId 0x{at}a - Init START\nh:1:9 [0] NCCL INFO Channel 00 : {rank}[18000] -> "
        f"{1 - rank}[3b000] via direct shared memory\n"
        for at, rank in enumerate((0, second))
    )
    path = tmp_path / "rank0.log"
    path.write_text(text)
    with stored(path) as store:
        assert rows(store, "SELECT src, dst FROM link") == [(0, 1)] * (1 if lost else 2)
        found = json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0] or "{}")
        assert found.get("connection between ranks that cannot be told") == lost


def test_transports() -> None:
    """Forms from 2.4 to 2.30 and the plugins' names (src/transport/*.cc)."""
    cases = {
        "P2P/CUMEM/read": ("p2p", None, None),
        "P2P/direct pointer": ("p2p", None, None),
        "P2P/indirect/5[b1000]": ("p2p", None, None),
        "SHM/direct/direct": ("shm", None, None),
        "direct shared memory": ("shm", None, None),
        "NET/IB/3/GDRDMA": ("net-ib", 3, True),
        "NET/IB/0(8)/GDRDMA/Shared": ("net-ib", 0, True),
        "NET/IBext_v8/1": ("net-ib", 1, False),
        "NET/Socket/0": ("net-socket", 0, False),
        "NET/AWS Libfabric/2/GDRDMA": ("net-other", 2, True),
        "NET/FasTrak/0(4)": ("net-other", 0, False),
    }
    assert {text: classify_transport(text) for text in cases} == cases


@pytest.mark.parametrize(
    "line",
    [
        "nodea:1:2 [0] NCCL INFO Using network IB",
        "[2026-03-01 10:00:00] nodea:1:2 [0] NCCL INFO Using network IB",
        "train-worker-0 nodea:1:2 [0] NCCL INFO Using network IB",
        "(RayTrainWorker pid=7, ip=10.0.0.1) nodea:1:2 [0] NCCL INFO Using network IB",
        "[1,3]<stderr>:nodea:1:2 [0] NCCL INFO Using network IB",
        "some text without line end nodea:1:2 [0] NCCL INFO Using network IB",
    ],
)
def test_prefixes(line: str) -> None:
    record = records(line)[-1]
    assert record.thread is not None
    assert (record.thread.host, record.thread.pid, record.thread.tid) == ("nodea", 1, 2)
    assert parse_line(record.text) == [Fact("net", "network", "IB")]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("nodea:1:2 [0] nccl/src/allocator.cc:229 (ncclSpaceAlloc) NCCL WARN Allocation failed.",
         "nccl/src/allocator.cc:229"),
        ("[2026-08-24 17:57:25] nodea:1:2 [0] init.cc:89 (ncclMemAlloc) NCCL WARN Cuda failure 205",
         "init.cc:89"),
        ("nodea:1:2 [1] accept(domain_t*, comm_t*, comm_t**):4909 NCCL WARN NET/OFI Unexpected",
         "accept:4909"),
        ("nodea:1:2 [1] misc/socket.cc:49 NCCL WARN socketProgress: closed", "misc/socket.cc:49"),
    ],
    ids=["2.30.7", "2.30.7 with its time", "aws-ofi-nccl", "before"],
)  # fmt: skip
def test_a_warnings_host_and_place_in_every_form(line: str, place: str) -> None:
    """NCCL's debug.cc at 2.30.7; issues 2331 of NCCL and 990 of aws-ofi-nccl."""
    (record,) = records(line)
    assert record.thread is not None
    assert (record.thread.host, record.place, record.level) == ("nodea", place, "WARN")


def test_two_messages_that_collided_on_one_line() -> None:
    line = (
        "a:1:1 [0] NCCL INFO globalNicFused 0 b:2:2 [1] NCCL INFO NCCL_ALGO set by environment to x"
    )
    first, second = records(line)
    assert first.text == "globalNicFused 0"
    assert second.thread is not None
    assert second.thread.host == "b"
    assert second.text == "NCCL_ALGO set by environment to x"


def test_rings_of_more_than_20_ranks_come_from_the_neighbours() -> None:
    """NCCL prints 20 ranks of a ring at most; every rank prints its own neighbours."""
    size = 24
    orders = {0: tuple(range(20)), 1: tuple(range(20))}
    steps = {0: {rank: (rank + 1) % size for rank in range(size)}}
    rings = channel_orders(orders, steps, size)
    assert rings[0] == (list(range(size)), True)
    assert rings[1] == (list(range(20)), False)


def test_a_ring_that_does_not_close_is_not_complete() -> None:
    assert channel_orders({}, {0: {0: 1, 1: 2, 2: 1}}, 3)[0][1] is False


def test_two_shard_groups_without_a_world_have_no_global_ranks(tmp_path: Path) -> None:
    text = ""
    for group, host in enumerate(("nodea", "nodeb")):
        for rank in (0, 1):
            text += (
                f"{host}:{rank + 5}:9 [0] NCCL INFO ncclCommInitRank comm 0x{rank}{group} rank "
                f"{rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}a000 "
                f"commId 0x{group} - Init START\n"
                f"{host}:{rank + 5}:9 [0] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {1 - rank}[0]"
                " via P2P/IPC\n"
            )
    path = tmp_path / "groups.log"
    path.write_text(text)
    with stored(path) as store:
        assert rows(store, "SELECT * FROM link") == []
        assert json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0]) == {
            "connection between ranks that cannot be told": 4
        }


@pytest.mark.slow
@given(
    st.sampled_from(sorted(LOGS.glob("*.log"))),
    st.lists(st.tuples(st.integers(0, 40_000), st.binary(max_size=6)), max_size=8),
    st.integers(0, 40_000),
)
def test_damaged_logs_never_crash(
    tmp_path_factory: pytest.TempPathFactory, path: Path, edits: list[tuple[int, bytes]], end: int
) -> None:
    data = bytearray(path.read_bytes())
    for place, noise in edits:
        data[place : place + 1] = noise
    damaged = tmp_path_factory.mktemp("fuzz") / "x.log"
    damaged.write_bytes(b"a:1:1 [0] NCCL INFO x\n" + bytes(data[: max(end, 1)]))
    with stored(damaged) as store:
        ranks = rows(store, "SELECT count(*) FROM topology WHERE rank < 0")
    assert ranks == [(0,)]


@pytest.mark.parametrize(
    "piece",
    [
        "9",
        "a",
        " ",
        "a:1:1 ",
        "[0] ",
        "1:",
        "(",
        "NCCL INFO ",
        "- ",
        "|",
        "\t1",
        "\x1b[",
        "0/",
        "->",
    ],
)
def test_long_lines_cost_no_more_than_their_length(tmp_path: Path, piece: str) -> None:
    """GIVEN long lines THEN no pattern takes quadratic time (which would be minutes)."""
    line = piece * (20_000 // len(piece))
    path = tmp_path / "x.log"
    heads = ("", "a:1:1 [0] NCCL INFO ", "a:1:1 [0] NCCL INFO Channel 00/02 : ", "Trees [0] ")
    tails = ("", " NCCL INFO x", " set by environment to", "x", " via P2P/IPC")
    table = "# nThread 1 nGpus 2\n#  size count type redop root time algbw busbw #wrong time\n"
    text = "".join(f"{head}{line}{tail}\n" for head in heads for tail in tails)
    path.write_text(f"a:1:1 [0] NCCL INFO Using network IB\n{table}{text}8 2 float sum -1 {line}\n")
    with Store.create() as store:
        nccl_log.read([Source.of(path, 0)], ReadContext(store, "r"))
        assert rows(store, "SELECT count(*) FROM topology WHERE kind = 'net'") == [(1,)]


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 25, "-1", "1.2.3", "1e999", ""])
def test_numbers_of_any_length_are_survived(tmp_path: Path, digits: str) -> None:
    """GIVEN each number of a line replaced in turn (Python refuses int() beyond 4,300 digits)."""
    seen = set()
    out = []
    for path in sorted(LOGS.glob("*.log")):
        for line in path.read_text().splitlines():
            start = line.find("NCCL INFO")
            shape = re.sub(r"[0-9a-f]+", "0", line[start:])
            if shape in seen:
                continue
            seen.add(shape)
            numbers = list(re.finditer(r"\d+", line[start:]))
            for number in numbers[:12]:
                a, b = start + number.start(), start + number.end()
                out.append(line[:a] + digits + line[b:])
    path = tmp_path / "x.log"
    path.write_text("\n".join(out))
    with stored(path) as store:
        assert rows(store, "SELECT count(*) FROM source") == [(1,)]


def test_messages_that_another_writer_broke_are_counted(tmp_path: Path) -> None:
    """GIVEN a message cut by another one THEN the whole one is read and the other counted."""
    path = tmp_path / "mixed.log"
    path.write_text(
        "a:1:1 [0] NCCL INFO Using network IB\n"
        "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> b:2:2 [1] NCCL INFO NCCL_ALGO set by "
        "environment to Ring\n"
        "1[1] via P2P/CUMEM\n"
        "a:1:1 [0] NCCL INFO nothing that is kept\n"
    )
    with stored(path) as store:
        assert ("NCCL_ALGO", "Ring") in rows(
            store, "SELECT name, value FROM topology WHERE kind = 'env'"
        )
        ((dropped, reasons),) = rows(store, "SELECT events_dropped, drop_reasons FROM source")
        assert (dropped, json.loads(reasons)) == (1, {"message broken by another writer": 1})


def _lost(*paths: Path) -> list[dict[str, int]]:
    with stored(*paths) as store:
        found = rows(store, "SELECT events_dropped, drop_reasons FROM source ORDER BY source_id")
    assert all(count == sum(json.loads(reasons).values()) for count, reasons in found)
    return [json.loads(reasons) for _, reasons in found]


_TORN = {"message broken by another writer": 1}
_CUT = {"message cut at the end of the file": 1}
_FIRST = "a:1:1 [0] NCCL INFO Using network IB\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A head whose prefix itself is torn, and its tail: one message.
        ("a:1:1 [0] NCCL INb:2:2 [1] NCCL INFO Using network IB\nFO Channel 00/0 : 0[0] -> 1[1] "
         "via P2P/CUMEM\n", _TORN),
        # A tail alone: the file begins in the middle, or its head went elsewhere.
        ("00/0 : 0[0] -> 1[1] [send] via NET/IB/0\n", _TORN),
        ("educe: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}\n", _TORN),
        # What is not NCCL's is no loss.
        ("step 3 -> 4 via checkpoint 12 Bytes\nloss 0.5\n", {}),
        # The last line, cut; understood, or of a kind that is not kept, nothing is known lost.
        ("a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -", _CUT),
        ("a:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring", {}),
        ("a:1:1 [0] NCCL INFO Launch mode Grou", {}),
        # Cut inside what stands before the message, a timestamp of warnings included.
        ("a:1", _CUT),
        ("a:27:33 [1", _CUT),
        ("a:1:1 [0] NCCL IN", _CUT),
        ("[2026-01-01 12:0", _CUT),
        ("[20", _CUT),
        ("[2026-01-01 12:00:00] a:1:1 [0] NCCL INFO Using network IB\n[2026-01-01 12:00:00] a:1:",
         _CUT),
        ("loss 0.5", {}),
        ("a: 1 file", {}),
    ],
)  # fmt: skip
def test_pieces_of_messages_are_counted_once(
    tmp_path: Path, text: str, expected: dict[str, int]
) -> None:
    path = tmp_path / "torn.log"
    path.write_text(_FIRST + text)
    assert _lost(path) == [expected]


def test_what_is_lost_in_a_file_is_counted_at_that_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    one.write_text(_FIRST)
    two.write_text(_FIRST + "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -")
    assert _lost(one, two) == [{}, _CUT]


_EFA = """\
NCCL version 2.27.7+cuda12.8
NET/Plugin: Loaded net plugin Libfabric (v10)
NET/OFI Initializing aws-ofi-nccl 1.17.2
NET/OFI Using Libfabric version 2.1
NET/OFI Configuring AWS-specific options
NET/OFI Running on p5en.48xlarge platform, topology file /opt/ofi/p5en.xml
NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
NET/OFI Using transport protocol RDMA (platform set)
NET/OFI NIC group 0 device #0 0000:56:00.0
NET/OFI NIC group 0 device #1 0000:57:00.0
NET/OFI Setting FI_EFA_FORK_SAFE environment variable to 1
NET/Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap86s0'
NET/Libfabric : GPU Direct RDMA Enabled for HCA 1 'rdmap110s0'
Using network Libfabric
comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0xab - Init START
Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/1/GDRDMA/Shared
Channel 01/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/2
"""


@pytest.mark.parametrize(("nic", "rule"), [(0, "single-nic"), (None, "nics-shared")])
def test_rules_on_nics_see_those_of_libfabric(tmp_path: Path, nic: int | None, rule: str) -> None:
    """GIVEN one of three EFA NICs used, or two of three, THEN the rule about it fires."""
    lines = [
        *_EFA.splitlines()[:-2],
        "NET/Libfabric : GPU Direct RDMA Enabled for HCA 2 'rdmap9s0'",
        *(
            f"Channel 0{channel}/0 : 0[0] -> 8[0] [send] via "
            f"NET/Libfabric/{channel if nic is None else nic}/GDRDMA"
            for channel in (0, 1)
        ),
    ]
    path = tmp_path / "nccl.log"
    path.write_text("".join(f"h0:1:2 [0] NCCL INFO {line}\n" for line in lines))
    with advisor.load(path) as run:
        fired = {finding.rule for finding in run.diagnose().findings}
    assert fired & {"single-nic", "nics-shared"} == {rule}


@pytest.mark.slow
def test_a_machine_that_the_plugin_names_is_the_tables(tmp_path: Path) -> None:
    """GIVEN a table below a log of AWS's p5 THEN nobody is asked for the machine.

    As aws-ofi-nccl prints it (KeitaW/p5-nccl-test-2024-07-19); p5en is not in the table.
    """
    said = "Running on {} platform, Setting NCCL_TOPO_FILE environment variable to /opt/p5.xml"
    table = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)\n"
        + "".join(
            f"#  Rank {n:2} Group  0 Pid {n} on h{n // 8} device {n % 8} [0x0{n % 8}] NVIDIA H100\n"
            for n in range(16)
        )
        + "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        + "  1073741824  268435456  float  sum  -1  4200 255.6 479.3  0  4200 255.6 479.3  0\n"
    )
    asked = {}
    for instance in ("p5.48xlarge", "p5en.48xlarge"):
        path = tmp_path / f"{instance}.log"
        path.write_text(f"h0:1:2 [0] NCCL INFO NET/OFI {said.format(instance)}\n{table}")
        with advisor.load(path) as run:
            asked[instance] = "--hardware" in str(run.diagnose().verdict)
    assert asked == {"p5.48xlarge": False, "p5en.48xlarge": True}


SENT_OVER_SOCKETS = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1f)", "H100"),
        ("|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:10:1C.0 Off |   0 |", "A100"),
        ("You are using a CUDA device ('NVIDIA A100-SXM4-40GB') that has Tensor Cores.", "A100"),
        ("a:1:1 [0] NCCL INFO NVLS multicast support is available on dev 0", "H100"),
        ("a:1:1 [0] NCCL INFO 2 coll channels, 0 collnet channels, 16 nvls channels", "H100"),
        ("a:1:1 [0] NCCL INFO MNNVL busId 0x7e000 fabric UUID 0.0 cliqueId 0x0 state 3",
         "H100"),
        ("a:1:1 [0] NCCL INFO MNNVL busId 0x7e000 fabric UUID 0.0 cliqueId 0x0 state 1",
         None),
        ("a:1:1 [0] NCCL INFO GPU/1000 :GPU/2000 (2/240.0/NVL) NET/0 (3/1.2/PHB)", "240 GB/s"),
        ("a:1:1 [0] NCCL INFO + PCI[24.0] - GPU/7000 (0)\n"
         "a:1:1 [0] NCCL INFO               + NVL[360.0] - NVS/0", "360 GB/s"),
        ("GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-1f)", None),
        ("a:1:1 [0] NCCL INFO === System : maxWidth 5000.0 totalWidth 0.0 ===", None),  # one GPU
        ("a:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0", None),
    ],
)  # fmt: skip
def test_a_log_alone_tells_what_gpus_wait_for_sockets(
    tmp_path: Path, line: str, gpu: str | None
) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(f"{line}\na:1:1 [0] NCCL INFO {SENT_OVER_SOCKETS}\n")
    with advisor.load(str(log)) as run:
        (found,) = [one for one in run.report.findings if one.rule == "socket-transport"]
    assert found.severity.value == ("info" if gpu is None else "warning")
    assert (gpu or "Ranks") in found.title
    said_by = found.evidence.facts["said_by"]
    assert said_by is None if gpu is None else said_by.startswith("nccl.log:")


def test_a_libfabric_plugins_transport_and_nics_are_stored(tmp_path: Path) -> None:
    """GIVEN aws-ofi-nccl on EFA THEN provider, protocol, NICs and links as of other transports."""
    path = tmp_path / "nccl.log"
    path.write_text("".join(f"h0:1:2 [0] NCCL INFO {line}\n" for line in _EFA.splitlines()))
    with stored(path) as store:
        net = {name: value for (_, _, name), value in facts(store, "net").items()}
        assert net == {
            "network": "Libfabric",
            "OFI": {"provider": "efa", "fabric": "efa-direct", "nics": 16},
            "OFI protocol": "RDMA",
        }
        versions = {name: value for (_, _, name), value in facts(store, "version").items()}
        assert versions["aws-ofi-nccl"] == "1.17.2"
        assert versions["libfabric"] == "2.1"
        nics = {(host, name): value for (_, host, name), value in facts(store, "nic").items()}
        assert nics == {
            ("h0", name): {"index": index, "port": None, "link": "Libfabric", "net": "Libfabric"}
            for index, name in enumerate(("rdmap86s0", "rdmap110s0"))
        }
        groups = {name: value for (_, _, name), value in facts(store, "nic-group").items()}
        assert groups == {
            "0000:56:00.0": {"group": 0, "device": 0},
            "0000:57:00.0": {"group": 0, "device": 1},
        }
        plugin = {name: value for (_, _, name), value in facts(store, "env-plugin").items()}
        assert plugin == {"NCCL_TOPO_FILE": "/opt/ofi/p5en.xml", "FI_EFA_FORK_SAFE": "1"}
        assert rows(store, "SELECT src, dst, transport, kind, nic, gdr FROM link ORDER BY 1") == [
            (0, 8, "NET/Libfabric/1/GDRDMA/Shared", "net-other", "rdmap110s0", True),
            (8, 0, "NET/AWS Libfabric/2", "net-other", "2", False),
        ]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("NET/OFI Selected Provider is efa (found 4 nics)", ("efa", None, 4)),
        ("NET/OFI Selected Provider is efa", ("efa", None, None)),
        ("NET/OFI Selected Provider is tcp;ofi_rxm", ("tcp;ofi_rxm", None, None)),
        ("NET/OFI Selected provider is cxi, fabric is cxi (found 2 nics)", ("cxi", "cxi", 2)),
    ],
)
def test_providers_in_every_form(line: str, value: tuple[str, str | None, int | None]) -> None:
    names = ("provider", "fabric", "nics")
    assert parse_line(line) == [Fact("net", "OFI", dict(zip(names, value, strict=True)))]


def test_nics_of_nccls_own_transports_are_told_once() -> None:
    found = parse_line("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'")
    assert found == [Fact("gdr", "HCA mlx5_0", {"enabled": True, "net": "IB"})]


OLD = "node{host}:{pid}:{pid} [{rank}] NCCL INFO "
COMM = "comm 0x7f{pointer} rank {rank} nranks {ranks} cudaDev {rank} busId {bus}000 - Init COMPLETE"


def old_log(groups: list[list[int]], transport: str = "NET/IB/0") -> str:
    """As 2.10 prints it: of each communicator the connections, and only then what it is."""
    lines = []
    for pointer, group in enumerate(groups, 10):
        for place, rank in enumerate(group):
            start = OLD.format(host=rank // 2, pid=100 + rank, rank=rank % 2)
            after = (place + 1) % len(group)
            lines.append(f"{start}Channel 00 : {place}[{rank}000] -> {after}[1000] via {transport}")
            comm = COMM.format(pointer=pointer, rank=place, ranks=len(group), bus=rank + 1)
            lines.append(start + comm)
    return "\n".join(lines) + "\n"


def links_of(path: Path, text: str) -> list[tuple[int, int, str | None]]:
    path.write_text(text)
    with stored(path) as store:
        found: list[tuple[int, int, str | None]] = rows(
            store, "SELECT src, dst, communicator FROM link ORDER BY communicator, src"
        )
        return found


def test_communicators_without_an_id_are_kept_apart(tmp_path: Path) -> None:
    """GIVEN 2.10 and two communicators of all ranks, and one of some, THEN each has its own."""
    world = [0, 1, 2, 3]
    found = links_of(tmp_path / "a.log", old_log([world, world, [1, 3]]))
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert found == [
        *((1, 3, "2 ranks"), (3, 1, "2 ranks")),
        *((src, dst, "4 ranks #2") for src, dst in ring),
        *((src, dst, "world") for src, dst in ring),
    ]


def test_groups_that_nothing_tells_apart_give_no_links(tmp_path: Path) -> None:
    found = links_of(tmp_path / "a.log", old_log([[0, 1, 2, 3], [0, 1], [2, 3]]))
    assert {name for _, _, name in found} == {"world"}


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "severity"), [("7", "warning"), ("0", "info"), ("1a000", "info")])
def test_tcp_between_hosts_of_eight_gpus_is_a_warning_whatever_their_name(
    tmp_path: Path, gpu: str, severity: str
) -> None:
    """GIVEN no name of the GPUs WHEN a connection shows device 7 THEN eight share the sockets."""
    comm = "comm 0x1 rank 0 nranks 16 cudaDev 0 busId 1a000 - Init COMPLETE"
    via = f"Channel 00/0 : 15[{gpu}] -> 0[0] [receive] via NET/Socket/0"
    log = tmp_path / "nccl.log"
    log.write_text("".join(f"a:1:1 [0] NCCL INFO {line}\n" for line in (comm, via)))
    with advisor.load(str(log)) as run:
        (found,) = [one for one in run.report.findings if one.rule == "socket-transport"]
    assert found.severity.value == severity


@pytest.mark.slow
def test_an_efa_plugin_that_fails_on_one_host_harms_nothing_there(tmp_path: Path) -> None:
    """Inside a host nothing goes over it; with a second host in the log TCP is what is left."""
    failed = "NCCL WARN NET/OFI aws-ofi-nccl initialization failed"
    log = tmp_path / "nccl.log"
    for ranks, severity in ((1, "info"), (2, "warning")):
        said = [f"[0] create_nccl_ofi_component:97 {failed}", "[0] NCCL INFO Using network Socket"]
        comm = (
            f"[0] NCCL INFO comm 0x5 rank {{}} nranks {ranks} cudaDev 0 busId 1000 - Init COMPLETE"
        )
        hosts = [[*said, comm.format(rank)] for rank in range(ranks)]
        log.write_text(
            "".join(f"h{rank}:1:1 {line}\n" for rank, host in enumerate(hosts) for line in host)
        )
        with advisor.load(str(log)) as run:
            found = [
                one.severity.value
                for one in run.report.findings
                if one.evidence.facts.get("message") == "ofi-not-started"
            ]
        assert found == [severity]


@pytest.mark.parametrize(
    "header",
    [
        "RCCL version 2.18.6+hip6.1 HEAD:abc\n",
        "RCCL version : 2.22.3-develop:abc\nHIP version  : 6.4.43482\nROCm version : 6.4.0.0\n",
    ],
)
def test_a_log_of_rccls_header_alone_is_rccls(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.log").write_text(header)
    with stored(tmp_path / "a.log") as store:
        assert [name for _, _, name in facts(store, "version")] == ["rccl"]


def _ends(groups: list[list[int]], per_host: int) -> str:
    """As :func:`old_log`, of hosts of so many GPUs, with the bus ids that 2.10 prints."""
    lines = []
    for group in groups:
        for place, rank in enumerate(group):
            after = (place + 1) % len(group)
            host, bus = rank // per_host, f"{rank % per_host + 1}a000"
            other = f"{group[after] % per_host + 1}a000"
            way = "P2P/IPC" if host == group[after] // per_host else "NET/IB/0"
            start = OLD.format(host=host, pid=100 + rank, rank=rank % per_host)
            lines += [
                f"{start}Channel 00 : {place}[{bus}] -> {after}[{other}] via {way}",
                f"{start}comm 0x7f{len(lines)} rank {place} nranks {len(group)} "
                f"cudaDev {rank % per_host} busId {bus} - Init COMPLETE",
            ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("per_host", "groups"),
    [
        (4, [[0, 1], [2, 3]]),
        (4, [[0, 2], [1, 3], [0, 1], [2, 3]]),  # of a two-dimensional layout, each rank in two
        (4, [[0, 1, 2, 3], [4, 5, 6, 7]]),  # of each host
        (4, [[0, 4], [1, 5], [2, 6], [3, 7]]),  # of each NIC
    ],
)
def test_bus_ids_of_connections_tell_communicators_of_one_size_apart(
    tmp_path: Path, per_host: int, groups: list[list[int]]
) -> None:
    world = list(range(max(map(max, groups)) + 1))
    found = links_of(tmp_path / "a.log", _ends([world, *groups], per_host))
    named: dict[str | None, set[tuple[int, int]]] = {}
    for src, dst, name in found:
        named.setdefault(name, set()).add((src, dst))
    assert sorted(map(sorted, (pairs for name, pairs in named.items() if name != "world"))) == [
        sorted(zip(group, group[1:] + group[:1], strict=True)) for group in sorted(groups)
    ]


def test_network_connections_to_one_of_two_hosts_name_no_communicator(tmp_path: Path) -> None:
    """GIVEN pairs of hosts 0 and 1, and of 2 and 3, WHEN bus ids recur THEN none is guessed."""
    pairs = [[0, 2], [1, 3], [4, 6], [5, 7]]
    (tmp_path / "a.log").write_text(_ends([list(range(8)), *pairs], per_host=2))
    with stored(tmp_path / "a.log") as store:
        assert {name for _, _, name in facts(store, "communicator")} == {"world"}
        alike = facts(store, "communicators-alike")
        assert alike == {(None, None, "2 ranks"): {"ranks": 2, "communicators": 4}}
        assert rows(store, "SELECT DISTINCT communicator FROM link") == [("world",)]


def test_connections_before_any_communicator_are_kept(tmp_path: Path) -> None:
    """GIVEN a log that was cut before 2.10 says what its communicators are."""
    lines = old_log([[0, 1, 2, 3]]).splitlines()
    text = "\n".join(line for line in lines if "Init COMPLETE" not in line) + "\n"
    found = links_of(tmp_path / "a.log", text)
    assert found == [(0, 1, None), (1, 2, None), (2, 3, None), (3, 0, None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "spans", "severity"),
    [(1, "one", "info"), (2, "several", "warning"), (None, "unknown", "info")],
)
def test_bridges_among_the_sockets_of_one_hosts_log(
    tmp_path: Path, ranks: int | None, spans: str, severity: str
) -> None:
    """GIVEN rank 0 of one, of two, or of a number that is not said THEN that decides of harm."""
    said = ["NET/Socket : Using [0]docker0:172.17.0.1<0>", "Using network Socket"]
    if ranks is not None:
        said.append(f"comm 0x5 rank 0 nranks {ranks} cudaDev 0 busId 1000 - Init COMPLETE")
    log = tmp_path / "nccl.log"
    log.write_text("".join(f"a:1:1 [0] NCCL INFO {line}\n" for line in said))
    with advisor.load(str(log)) as run:
        (found,) = [one for one in run.report.findings if one.rule == "virtual-interfaces"]
    assert (found.evidence.facts["spans"], found.severity.value) == (spans, severity)


@pytest.mark.slow
@pytest.mark.parametrize("of_nccl", [True, False])
def test_an_output_that_names_nothing_says_whether_lines_of_it_are_nccls(
    tmp_path: Path, of_nccl: bool
) -> None:
    """GIVEN trails of sockets that closed at the end (NVIDIA/Fuser, issue 3055)."""
    line = "dgx1v-loki-23:5892:6289 [2] NCCL INFO misc/socket.cc:47 -> 3" if of_nccl else "done"
    log = tmp_path / "job.log"
    log.write_text(f"{line}\n" * 3)
    with advisor.load(str(log)) as run:
        notes = [note for item in run.report.runs for note in item.notes]
    (note,) = [one for one in notes if one.code == "silent-output"]
    assert (note.values["of_nccl"], "none is NCCL's" in note.text) == (of_nccl, not of_nccl)
