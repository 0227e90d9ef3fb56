"""Topologies out of YAML files, NCCL logs and graph dumps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import advisor
from advisor.cli.nccl_model import command, read_file
from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.inputs import Read
from advisor.model.nccl.printed import cells_of
from advisor.model.sizes import parse_bytes
from advisor.model.topology import PathType, load_topology

# Lines in the form of NCCL 2.26 on one 8-GPU NVSwitch node, two ranks shown.
LOG = """\
n1:100:100 [0] NCCL INFO NCCL version 2.26.2+cuda12.8
n1:100:200 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START
n1:101:201 [1] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 8 cudaDev 1 nvmlDev 1 busId 2000 commId 0x9 - Init START
n1:100:200 [0] NCCL INFO === System : maxBw 360.0 totalBw 360.0 ===
n1:100:200 [0] NCCL INFO CPU/0-0 (1/2/-1)
n1:100:200 [0] NCCL INFO + PCI[24.0] - GPU/1000 (0)
n1:100:200 [0] NCCL INFO               + NVL[360.0] - NVS/0
n1:100:200 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1
n1:100:200 [0] NCCL INFO Pattern 1, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 0
n1:100:200 [0] NCCL INFO Pattern 5, crossNic 0, nChannels 8, bw 40.000000/60.000000, type NVL/PIX, sameChannels 0
n1:101:201 [1] NCCL INFO Pattern 4, crossNic 0, nChannels 10, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1
n1:100:200 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0
n1:100:200 [0] NCCL INFO 20 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer
n1:100:200 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE
"""  # noqa: E501

# The tables of a public log (github.com/eunomia-bpf/nccl-eBPF: two ranks of one RTX 5090 on
# pretended hosts, sockets, NCCL 2.29.7); graphs as the GRAPH subsystem shows them there.
TABLE_LOG = """\
lab:8:8 [0] NCCL INFO NCCL version 2.29.7+cuda12.9
lab:8:8 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 2000 - Init START
lab:8:8 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
lab:8:8 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 1.2/1.2, type LOC/PHB, sameChannels 1
lab:8:8 [0] NCCL INFO Pattern 3, crossNic 0, nChannels 2, bw 2.4/1.2, type LOC/PHB, sameChannels 1
lab:8:8 [0] NCCL INFO   Algorithm   |            Tree          |           Ring           |
lab:8:8 [0] NCCL INFO   Protocol    |   LL |  LL128 |   Simple |   LL |  LL128 |   Simple |
lab:8:8 [0] NCCL INFO  Max NThreads |  512 |    640 |      512 |  512 |    640 |      256 |
lab:8:8 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     9.3/   1.2 |    18.0/   0.0 |    22.4/   2.4 |
lab:8:8 [0] NCCL INFO     AllGather |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |    11.6/   2.4 |    22.5/   0.0 |    22.4/   4.8 |
lab:8:8 [0] NCCL INFO ReduceScatter |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |    11.6/   2.4 |    22.5/   0.0 |    22.4/   4.8 |
lab:8:8 [0] NCCL INFO     AllReduce |    16.8/   0.5 |    31.0/   0.0 |    36.4/   1.9 |    16.6/   1.2 |    31.0/   0.0 |    36.4/   2.4 |
lab:8:8 [0] NCCL INFO   Algorithm   |                             PAT                  |
lab:8:8 [0] NCCL INFO     AllGather |     0.0/   0.0 |     0.0/   0.0 |    17.6/   3.6 |
lab:8:8 [0] NCCL INFO     AllReduce |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |
"""  # noqa: E501

# The form of NCCL 2.8 to 2.17: one header with algorithm and protocol in each cell.
OLD_TABLE = """\
a:1:2 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Tree/Simple |    Ring/    LL |    Ring/ LL128 |    Ring/Simple | CollNet/    LL | CollNet/ LL128 | CollNet/Simple |
a:1:2 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     6.3/   0.8 |    14.0/   0.0 |    18.0/   3.0 |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |
"""  # noqa: E501

GRAPHS = """\
<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="12" speedinter="10"
   latencyinter="3.5" typeintra="PHB" typeinter="PHB" samechannels="0">
    <channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>
  </graph>
  <graph id="1" pattern="3" crossnic="0" nchannels="2" speedintra="12" speedinter="10"
   latencyinter="3.5" typeintra="PHB" typeinter="PHB" samechannels="1"/>
  <graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0"
   latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1"/>
</graphs>
"""


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Read]:
    """Reads lines as the file of a log."""

    def read(lines: Iterable[str], **told: Any) -> Read:
        path = tmp_path / "nccl.log"
        path.write_text("\n".join(lines) + "\n")
        return read_file(path, **told)

    return read


def test_a_log_gives_the_least_figures_over_its_ranks(log: Callable[..., Read]) -> None:
    read = log(LOG.splitlines())
    assert read.version == (2, 26, 2)
    topology = read.topology
    assert (topology.ranks, topology.nodes, topology.coll_channels) == (8, 1, 20)
    assert topology.ring is not None
    assert topology.tree is not None
    assert topology.nvls is not None
    assert topology.ring.channels == 10
    assert (topology.tree.pattern, topology.tree.same_channels) == (1, False)
    assert (topology.nvls.bw_intra, topology.nvls.bw_inter) == (40.0, 60.0)
    assert topology.cpu_vendor == "amd"
    assert topology.compute_capability == 90
    assert any("NVL[360]" in text for text in read.assumptions)


def test_what_is_told_is_not_assumed(log: Callable[..., Read]) -> None:
    read = log(LOG.splitlines(), capability=80, cpu_vendor="intel")
    assert read.topology.compute_capability == 80
    assert read.topology.cpu_vendor == "intel"
    assert read.assumptions == ()


def test_old_logs_say_speed_and_no_node_count(log: Callable[..., Read]) -> None:
    old = [
        "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId 7000 - Init START",
        "b:1:2 [0] NCCL INFO comm 0x1 rank 2 nranks 4 cudaDev 0 busId 7000 - Init START",
        "a:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, speed 12.0/12.0, "
        "type PHB/PHB, sameChannels 1",
    ]
    read = log(old)
    assert (read.topology.ranks, read.topology.nodes) == (4, 2)
    assert any("hosts that wrote the log" in text for text in read.assumptions)
    assert any("--compute-capability" in text for text in read.assumptions)


def test_the_largest_communicator_is_taken(log: Callable[..., Read]) -> None:
    lines = LOG.splitlines()
    sub = [
        line.replace("nranks 8", "nranks 2").replace("nRanks 8", "nRanks 2").replace("12,", "1,")
        for line in lines
    ]
    assert log([*lines, *sub]).topology.ranks == 8


def test_the_printed_table_checks_the_model_and_tells_what_the_log_does_not(
    log: Callable[..., Read],
) -> None:
    read = log(TABLE_LOG.splitlines())
    assert read.check is not None
    assert (read.check.equal, read.check.cells) == (11, 11)
    assert read.check.differing == ()
    assert any("reproduces 11 of 11 printed cells" in text for text in read.assumptions)
    faster = TABLE_LOG.replace("22.4/   4.8", "22.4/   9.6")
    check = log(faster.splitlines()).check
    assert check is not None
    assert check.equal == 9
    assert "AllGather Ring/Simple: printed 22.4/9.6, modelled 22.4/4.8" in check.differing


def test_without_graphs_the_printed_table_is_the_model(log: Callable[..., Read]) -> None:
    """GIVEN a log of NCCL_DEBUG_SUBSYS=INIT,TUNING THEN its cells are the rows, to the digit."""
    lines = [line for line in TABLE_LOG.splitlines() if "Pattern" not in line]
    read, whole = log(lines), log(TABLE_LOG.splitlines())
    assert read.printed
    assert whole.printed is None
    assert (read.topology.ranks, read.topology.nodes) == (
        whole.topology.ranks,
        whole.topology.nodes,
    )
    version = read.version or (2, 21, 5)
    prediction = predict(read.topology, "allreduce", 1 << 28, version, printed=read.printed)
    modelled = predict(whole.topology, "allreduce", 1 << 28, version)
    assert prediction.basis == "printed"
    assert prediction.choice is not None
    assert modelled.choice is not None
    assert (prediction.choice.algo, prediction.choice.proto) == (
        modelled.choice.algo,
        modelled.choice.proto,
    )
    for row in prediction.rows:
        latency, bandwidth = read.printed.get(("AllReduce", row.algo, row.proto), (0.0, 0.0))
        assert (row.available, row.bandwidth_gbps) == (bandwidth > 0, bandwidth)
        assert row.latency_us == latency


def test_the_table_decides_between_generations(log: Callable[..., Read]) -> None:
    # 8 ranks, NVLink: LL's ceiling is 87.7 GB/s on Ampere and 141 on Hopper, times 8/14
    def lines(bandwidth: float) -> list[str]:
        pattern = "nChannels 12, bw 30.0/30.0, type NVL/PIX, sameChannels 1"
        return [
            "n:1:1 [0] NCCL INFO NCCL version 2.29.7+cuda12.9",
            "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8",
            f"n:1:1 [0] NCCL INFO Pattern 4, crossNic 0, {pattern}",
            "n:1:1 [0] NCCL INFO   Algorithm   |            Tree          |           Ring |",
            "n:1:1 [0] NCCL INFO     AllReduce | 0.0/ 0.0 | 0.0/ 0.0 | 0.0/ 0.0 | "
            f"15.0/ {bandwidth} | 40.6/ 0.0 |  56.0/ 205.7 |",
        ]

    assert log(lines(50.1)).topology.compute_capability == 80
    assert log(lines(80.6)).topology.compute_capability == 90
    told = log(lines(80.6), capability=80)
    assert told.topology.compute_capability == 80
    assert told.check is not None
    assert told.check.equal < told.check.cells


def test_tables_of_old_releases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(OLD_TABLE)
    with advisor.load(path) as run:
        cells = cells_of(run.store.con, 4)
    assert cells["Broadcast", "Ring", "LL"] == (6.3, 0.8)
    assert cells["Broadcast", "Ring", "Simple"] == (18.0, 3.0)
    assert cells["Broadcast", "CollNetDirect", "Simple"] == (0.0, 0.0)
    assert len(cells) == 9


def test_a_log_without_graphs_says_how_to_record_one(log: Callable[..., Read]) -> None:
    with pytest.raises(AdvisorError, match="Pattern") as caught:
        log(["n1:1:1 [0] NCCL INFO Using network IB"])
    assert "GRAPH" in caught.value.hint


def test_a_graph_dump_carries_the_plugin_latency(tmp_path: Path) -> None:
    path = tmp_path / "graph.xml"
    path.write_text(GRAPHS)
    read = read_file(path, nodes=4, capability=80, cpu_vendor="amd")
    topology = read.topology
    assert (topology.nodes, topology.ranks) == (4, 8)
    assert topology.nvls is None
    assert topology.ring is not None
    assert topology.ring.latency_inter == 3.5
    assert topology.ring.type_intra is PathType.PHB
    assert read.assumptions == ()
    assert read_file(path).topology.nodes == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("<system/>", "breaks off before its first device or graph"),
        (GRAPHS[: GRAPHS.index('id="3"')], "what came before is kept"),
        (f'<!DOCTYPE a [<!ENTITY b "c">]>{GRAPHS}', "document type"),
        (re.sub("<channel>.*</channel>", "", GRAPHS), "how many ranks"),
        (GRAPHS.replace('nchannels="2"', 'nchannels="two"'), "channels: Field required"),
    ],
)
def test_damaged_dumps_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "graph.xml"
    path.write_text(content)
    with pytest.raises(AdvisorError, match=complaint):
        read_file(path)


TOPOLOGY = """\
nodes: 1
ranks_per_node: 8
compute_capability: 9.0
cpu_vendor: Intel
ring: {pattern: 4, channels: 12, bw_intra: 30.0, bw_inter: 30.0, type_intra: NVL, type_inter: PIX, same_channels: true}
tree: {pattern: 1, channels: 12, bw_intra: 30.0, bw_inter: 30.0, type_intra: nvl, type_inter: PIX, same_channels: 1}
"""  # noqa: E501


def test_a_topology_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY)
    topology = load_topology(path)
    assert topology.compute_capability == 90
    assert topology.ring is not None
    assert topology.ring.type_inter is PathType.PIX
    grouped = tmp_path / "g.yaml"
    grouped.write_text(TOPOLOGY.replace("ring:", "graphs:\n  ring:").replace("tree:", "  tree:"))
    again = load_topology(grouped)
    assert again.ring == topology.ring
    assert again.tree == topology.tree


def test_nulls_in_a_topology_file_mean_the_default(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY.replace("bw_inter: 30.0", "bw_inter: null") + "nvls: null\n")
    topology = load_topology(path)
    assert topology.nvls is None
    assert topology.ring is not None
    assert topology.ring.inter == 30.0


def test_mistakes_in_a_topology_file_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY.replace("cpu_vendor", "cpu_vender").replace("nvl,", "NVX,"))
    with pytest.raises(AdvisorError) as caught:
        load_topology(path)
    text = str(caught.value)
    assert f"{path}:4: unknown setting 'cpu_vender'; did you mean 'cpu_vendor'?" in text
    assert f"{path}:6: tree.type_intra" in text


def test_the_command_prints_rows_and_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY)
    arguments = ["--topology", str(path), "--nccl", "2.29.7", "--op", "all_reduce"]
    result = CliRunner().invoke(command, [*arguments, "--bytes", "67108864", "--format", "json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert {"algo", "proto", "latency_us", "bandwidth_gbps", "time_us", "available"} <= set(
        data["rows"][0]
    )
    assert {"algo", "proto", "channels", "time_us"} <= set(data["choice"])
    assert (data["choice"]["algo"], data["choice"]["proto"]) == ("Ring", "Simple")
    # 8 ranks: 8.4 + 14 x 3.4 + 64 MiB / (360 x 8/14 GB/s)
    expected = 8.4 + 14 * 3.4 + (64 << 20) / (1000 * 360 * 8 / 14)
    assert data["choice"]["time_us"] == pytest.approx(expected)
    text = CliRunner().invoke(command, [*arguments, "--bytes", "64M"])
    assert "NCCL's choice" in text.output
    assert "modelled" in text.output


def test_the_command_reads_the_release_from_a_log(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    assert read_file(path).version == (2, 26, 2)
    result = CliRunner().invoke(
        command, ["--log", str(path), "--op", "allgather", "--bytes", "1M", "--format", "json"]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["nccl"] == "2.26.2"


SOCKETS = Path(__file__).parents[3] / "fixtures" / "nccl-logs" / "v2.10-sockets.log"


@pytest.mark.slow
def test_the_environment_of_a_log_decides_the_table_as_it_does_the_check(tmp_path: Path) -> None:
    path = tmp_path / "tree.log"
    text = SOCKETS.read_text()
    path.write_text(
        text.replace("NCCL_ALGO set by environment to Ring", "NCCL_ALGO set by environment to Tree")
        + "nodea:100:100 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
    )
    arguments = ["--log", str(path), "--op", "allreduce", "--bytes", "1M"]

    def choice(*more: str) -> tuple[str, str]:
        result = CliRunner().invoke(command, [*arguments, *more, "--format", "json"])
        assert result.exit_code == 0, result.output
        chosen = json.loads(result.stdout)["choice"]
        return chosen["algo"], chosen["proto"]

    assert choice() == ("Tree", "LL")
    assert choice("--algo", "Ring") == ("Ring", "LL")
    assert choice("--algo", "Ring", "--proto", "Simple") == ("Ring", "Simple")
    said = CliRunner().invoke(command, [*arguments, "--algo", "Ring"]).output
    assert "as in the log's environment: NCCL_PROTO=LL (--proto takes another)" in said
    assert "not as in the log's environment, where NCCL_ALGO=Tree: --algo was given" in said
    result = CliRunner().invoke(command, [*arguments, "--format", "json"])
    data = json.loads(result.stdout)
    assert data["log_environment"]["applied"] == {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}
    # Where check and table speak of the same cell they give the same figures.
    compared = 0
    for row in data["rows"]:
        for line in data["printed_table"]["differing"]:
            if line.startswith(f"AllReduce {row['algo']}/{row['proto']}:"):
                figures = f"{row['latency_us']:.1f}/{row['bandwidth_gbps']:.1f}"
                assert line.endswith(f"modelled {figures}")
                compared += 1
    assert compared > 0


def test_the_command_wants_exactly_one_input() -> None:
    result = CliRunner().invoke(command, ["--op", "allreduce", "--bytes", "1M"])
    assert result.exit_code == 2
    assert "exactly one" in result.output


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("64M", 64 << 20), ("1.5GiB", 3 << 29), ("352MB", 352_000_000), ("8k", 8192)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_what_is_no_size_is_refused() -> None:
    with pytest.raises(AdvisorError, match="not a size"):
        parse_bytes("big")


@pytest.mark.parametrize("text", ["9" * 21, "8388608T"])
def test_a_size_beyond_64_bits_is_refused(text: str) -> None:
    assert parse_bytes("8388607T") == 8388607 * 2**40
    with pytest.raises(AdvisorError, match="larger than any buffer"):
        parse_bytes(text)
