"""OSU's and ml-engineering's benchmarks: figures as printed, in the units of nccl-tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import advisor
from advisor.errors import AdvisorError
from advisor.ingest.readers import nvshmem, osu, perftest, torch_bench, ucc
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.readers.nccl_tests.records import is_records, parse_records

# As OCI's tutorials print it for 8 A100: osu_xccl_allreduce of osu-micro-benchmarks 7.5.
XCCL = """\
[host:28293] SET UCX_NET_DEVICES=mlx5_6:1
#Using NCCL
#Using NCCL
#Using NCCL
#Using NCCL
#Using NCCL
#Using NCCL
#Using NCCL
#Using NCCL

# OSU NCCL-CUDA Allreduce Latency Test v7.5
# Size       Avg Latency(us)
1073741824           8955.18
"""
FULL = """\
srun -n 4 osu_allreduce -M 16777216 -d cuda --full
# OSU MPI-CUDA Allreduce Latency Test v7.0
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
16777216             8630.58           8619.50           8642.46         10
"""
EACH = """\
# OSU MPI-CUDA Bandwidth Test v7.0
# Size      Bandwidth (MB/s)
4194304             24012.10

# OSU MPI-CUDA Latency Test v7.0
# Size          Latency (us)
8                       2.10
# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.0
# Size      Bandwidth (MB/s)
4194304             44012.10
# OSU NCCL-CUDA All-to-All Personalized Exchange Latency Test v7.5
65536                 570.64
"""


def of(text: str) -> Harvest:
    harvest = Harvest()
    osu.parse(text.splitlines(), harvest)
    return harvest


def test_the_lines_of_each_rank_count_the_ranks() -> None:
    (row,) = of(XCCL).measurements
    assert (row.op, row.ranks, row.size_bytes, row.time_us) == ("all_reduce", 8, 1 << 30, 8955.18)
    assert row.busbw_gbps == pytest.approx(1.75 * (1 << 30) / 8955.18e3)


def test_a_launchers_line_counts_them_else() -> None:
    (row,) = of(FULL).measurements
    assert (row.ranks, row.time_us) == (4, 8630.58)


def test_bandwidths_are_times_and_other_tests_are_counted() -> None:
    harvest = of(EACH)
    pair, latency = harvest.measurements
    assert (pair.op, pair.ranks, pair.busbw_gbps) == ("send_recv", 2, pytest.approx(24.0121))
    assert (latency.op, latency.time_us, latency.table) == ("send", 2.1, 1)
    assert harvest.dropped == {
        "test that is not compared": 1,
        "size per rank without the number of ranks": 1,
    }


# github.com/openucx/ucc/pull/223, and the head of pull/1199: 8 GPUs, then 2 that are named.
UCC = """\
Collective:             Alltoall
Memory type:            cuda
Datatype:               float32
Reduction:              N/A
Inplace:                0
Warmup:
  small                 10
  large                 10
Iterations:
  small                 1
  large                 1

       Count        Size                Time, us                           Bandwidth, GB/s
                                 avg         min         max         avg         min         max
       65536      262144       76.46       72.62       82.30       24.00       25.27       22.30
     4194304    16777216     2555.02     2507.76     2616.37       45.96       46.83       44.89
"""
UCC_RANKS = """\
Rank    1       : dgx-gaia-22 - NVIDIA H100 80GB HBM3 0000:43:00.0
Rank    0       : dgx-gaia-22 - NVIDIA H100 80GB HBM3 0000:1B:00.0
Collective:             Reduce DT
Memory type:            cuda-managed
Datatype:               float32

       Count        Size                Time, us
                                 avg         min         max
         128         512        8.30        7.83        8.76
"""


def of_ucc(text: str) -> Harvest:
    harvest = Harvest()
    ucc.parse(text.splitlines(), harvest)
    return harvest


def test_a_bandwidth_of_sizes_per_pair_tells_uccs_ranks() -> None:
    small, large = of_ucc(UCC).measurements
    assert (small.op, small.ranks, small.size_bytes) == ("all_to_all", 8, 8 * 262144)
    assert (large.ranks, large.time_us, large.busbw_gbps) == (8, 2555.02, 45.96)
    assert large.algbw_gbps == pytest.approx(45.96 * 8 / 7, rel=1e-3)
    assert (large.dtype, large.in_place, large.hosts) == ("float32", False, None)
    without = of_ucc(UCC.replace("24.00 ", " ").replace("45.96 ", " 0.00 ").replace("25.27", "N/A"))
    assert without.dropped == {"size per rank without the number of ranks": 2}


def test_ucc_names_hosts_and_gpus_of_its_ranks() -> None:
    assert of_ucc(UCC_RANKS).dropped == {"row that is not compared": 1}
    assert of_ucc(UCC_RANKS).notes == ["no collective that is compared: Reduce DT"]
    (row,) = of_ucc(UCC_RANKS.replace("Reduce DT", "Allreduce")).measurements
    assert (row.op, row.ranks, row.size_bytes, row.time_us) == ("all_reduce", 2, 512, 8.3)
    assert row.busbw_gbps == pytest.approx(512 / 8.3e3)
    assert (row.hosts, row.device) == (("dgx-gaia-22",), "NVIDIA H100 80GB HBM3")
    (next_start, _) = of_ucc(UCC_RANKS + UCC).measurements
    assert (next_start.ranks, next_start.device) == (8, None)
    (row, _) = of_ucc("mpirun -np 16 ucc_perftest -c alltoall -F\n" + UCC).measurements
    assert row.size_bytes == 16 * 262144


# network/benchmarks/all_reduce_bench.py of stas00/ml-engineering, two releases.
TABLE = """\
Environment:
- software: torch=2.7.0, cuda=12.8, nccl=(2, 26, 2)
- hardware: _CudaDeviceProperties(name='NVIDIA H100 80GB HBM3', major=9, minor=0, total_memory=81089MB)

The average bandwidth of all_reduce over 4 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|   32KiB |   1.18GBps |   0.79GBps |
|   32MiB | 258.95GBps | 172.63GBps |
|   64MiB | 293.25GBps | 195.50GBps |
|  128MiB | 317.31GBps | 211.54GBps |
"""  # noqa: E501
ONE = """\
[host-1:0]:The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):
 algbw: 176.590 GBps (1412.7 Gbps)
 busbw: 331.106 GBps (2648.8 Gbps)
"""


def test_tables_and_single_payloads_of_torch_are_read() -> None:
    harvest = Harvest()
    torch_bench.parse((TABLE + ONE).splitlines(), harvest)
    rows = harvest.measurements
    assert [row.size_bytes for row in rows] == [
        32 << 10,
        32 << 20,
        64 << 20,
        128 << 20,
        4_000_000_000,
    ]
    assert [row.ranks for row in rows] == [4, 4, 4, 4, 16]
    assert rows[2].busbw_gbps == 293.25
    assert rows[2].time_us == pytest.approx((64 << 20) / 195.5e3)
    assert rows[2].device == "NVIDIA H100 80GB HBM3"
    assert (rows[4].busbw_gbps, rows[4].table) == (331.106, 1)
    first = Harvest()
    torch_bench.parse(re.sub(r"(?<=[KM])iB", "B", TABLE).splitlines(), first)
    assert [row.size_bytes for row in first.measurements] == [row.size_bytes for row in rows[:4]]


def test_trials_that_each_rank_prints_are_read_whatever_their_order() -> None:
    """As bigscience printed them, 4 ranks: two lines are swapped, and the first trial warms up."""
    ranks = [f"{rank}:\n duration: {{:.4f}} sec\n algo throughput: {{:.4f}} bps, 1.0 Gbps\n"
             " busbw: {:.4f}  Gbps" for rank in range(4)]  # fmt: skip
    lines = []
    for seconds in (9.0, 0.5, 0.4):
        rate = 64e9 / seconds
        lines += "\n".join(one.format(seconds, rate, rate * 0.75e-9) for one in ranks).splitlines()
    lines[18], lines[19] = lines[19], lines[18]
    trials, harvest = torch_bench.TrialsOfRanks(), Harvest()
    assert sum(map(trials.feed, lines)) == 36
    trials.finish(harvest)
    rows = harvest.measurements
    assert [(row.op, row.ranks, row.size_bytes) for row in rows] == [
        ("all_reduce", 4, 4_000_000_000)
    ] * 2
    assert [row.busbw_gbps for row in rows] == pytest.approx([12.0, 15.0])
    assert rows[0].time_us == pytest.approx(0.5e6)
    cut = Harvest()
    trials = torch_bench.TrialsOfRanks()
    for line in lines[:6]:
        trials.feed(line)
    trials.finish(cut)
    assert not cut.measurements
    assert cut.dropped


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "hardware", "rules"),
    [
        (XCCL, "dgx-a100", set()),  # 210 of 300 GB/s
        (XCCL.replace("8955.18", "89551.8"), "dgx-a100", {"benchmark-below-limit"}),
        (FULL.replace("16777216 ", "167772160 "), None, set()),  # nothing names the GPUs
        (TABLE, None, set()),
        (TABLE.replace("317.31GBps | 211.54", " 31.73GBps |  21.15"), None,
         {"benchmark-bandwidth-falls"}),
        (ONE.replace("176.590", "7.6590"), "dgx-h100", {"benchmark-below-limit"}),
        (ONE, "dgx-h100", set()),
    ],
)  # fmt: skip
def test_they_are_judged_as_nccl_tests_is(
    tmp_path: Path, text: str, hardware: str | None, rules: set[str]
) -> None:
    (tmp_path / "out.log").write_text(text)
    with advisor.load(tmp_path / "out.log", hardware=hardware) as run:
        assert {item.rule for item in run.report.findings} == rules


def test_a_table_that_needs_the_number_of_ranks_says_so(tmp_path: Path) -> None:
    """GIVEN nothing but sizes per rank THEN nothing was cut: the launcher's line lacks."""
    (tmp_path / "osu.txt").write_text(EACH[EACH.index("# OSU NCCL-CUDA") :])
    with pytest.raises(AdvisorError, match="how many ranks is not said") as refused:
        advisor.load(str(tmp_path / "osu.txt"))
    assert "mpirun -np" in (refused.value.hint or "")


# What rccl-tests writes with -x: without MPI in 2024, with it since, and as CSV.
RCCL = {
    "lines": '{"#wrong":"0","algBw":0.05,"busBw":0.08,"gpus":4,"inPlace":0,"name":"AllReduce",'
    '"redop":"sum","size":1024,"time":19.18,"type":"float"}\n',
    "list": '[\n{"numCycle":0, "name":"AllReduce", "nodes":2, "ranks":2, "ranksPerNode":1, '
    '"gpusPerRank":2, "size":1024, "type":"float", "redop":"sum", "inPlace":0, '
    '"time":19.180000, "algBw":0.050000, "busBw":0.080000, "wrong":"0"},\n{"numCycle":0, "na',
    "csv": "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,"
    "time,algbw,busbw,#wrong\n0,AllReduce,2,4,2,1,1024,float,sum,0,19.18,0.05,0.08,0\n",
}


@pytest.mark.parametrize("form", RCCL)
def test_the_files_that_rccl_tests_writes_are_read(form: str) -> None:
    """GIVEN each form of ``-x FILE``, one of them cut THEN its whole records are rows."""
    assert is_records(RCCL[form].encode())
    harvest = parse_records(RCCL[form])
    (row,) = harvest.measurements
    assert (row.op, row.ranks, row.size_bytes, row.in_place) == ("all_reduce", 4, 1024, False)
    assert (row.time_us, row.busbw_gbps, row.wrong) == (19.18, 0.08, 0)
    assert sum(harvest.dropped.values()) == (form == "list")


def test_a_folder_of_theirs_is_read_and_other_json_is_not(tmp_path: Path) -> None:
    for form, text in RCCL.items():
        (tmp_path / f"rccl_{form}.json").write_text(text)
    with advisor.load(str(tmp_path)) as run:
        assert run.sql("SELECT count(*) AS n FROM bench")["n"].tolist() == [len(RCCL)]
    assert not is_records(b'{"size": 1, "time": 2, "algbw": 3, "busbw": 4}')


# The head and a row of ib_write_bw over RoCE, as README files of public projects show them.
PERFTEST = """\
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 1            Transport type : IB
 Link type       : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0013 PSN 0x3d508a RKey 0x0004a6 VAddr 0x007dc6b256a000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:20:00:01
 remote address: LID 0000 QPN 0x0013 PSN 0xc25646 RKey 0x0004b2 VAddr 0x007ad3a2c4e000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:20:00:03
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1200.000000 != 3591.635000. CPU Frequency is not max.
 2          5000             11.31              11.28              5.914
 65536      5000             46020.31           46010.28           0.736164
"""


def test_a_nics_transfer_is_all_that_a_row_counts() -> None:
    harvest = Harvest()
    perftest.parse(PERFTEST.splitlines(), harvest)
    (row,) = harvest.measurements
    assert (row.op, row.ranks, row.size_bytes) == ("send_recv", 2, 65536 * 5000)
    assert row.busbw_gbps == pytest.approx(46010.28 * 2**20 / 1e9)
    assert row.hosts == ("mlx5_0 at 10.20.0.1", "10.20.0.3")
    assert harvest.dropped == {"rate of small messages": 1}
    of_bits = PERFTEST.replace("MB/sec", "Gb/sec").replace("46010.28", "385.96")
    perftest.parse(of_bits.splitlines(), harvest)
    assert harvest.measurements[1].busbw_gbps == pytest.approx(385.96 / 8)


@pytest.mark.parametrize(
    ("rate", "rules"), [("46010.28", set()), ("110.28", {"benchmark-below-limit"})]
)
def test_a_nic_is_held_against_its_data_sheet(tmp_path: Path, rate: str, rules: set[str]) -> None:
    (tmp_path / "out.log").write_text(PERFTEST.replace("46010.28", rate))
    with advisor.load(tmp_path / "out.log", hardware="dgx-h100") as run:
        findings = run.report.findings
    assert {item.rule for item in findings} == rules
    assert all("ib_write_bw" not in str(item.fix[0]) for item in findings)


def test_the_nic_that_carries_less_than_its_like_is_named(tmp_path: Path) -> None:
    for number, rate in enumerate(("46010.28", "46110.28", "11502.57", "46020.01")):
        text = PERFTEST.replace("46010.28", rate).replace("mlx5_0", f"mlx5_{number}")
        (tmp_path / f"nic{number}.log").write_text(text)
    with advisor.load(tmp_path) as run:
        (found,) = run.report.findings
    assert found.rule == "benchmark-below-others"
    assert "nic2.log" in found.title


def test_a_launcher_in_a_variable_tells_the_ranks_by_its_program() -> None:
    (row,) = of(FULL.replace("srun -n 4", "$SUBMIT -n 4")).measurements
    assert row.ranks == 4


LATENCY = (
    PERFTEST[: PERFTEST.index(" #bytes")]
    + """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 2400.000000 != 1873.463000. CPU Frequency is not max.
 2       1000          1.76           6.12         1.79               1.81             0.07            2.06            6.12
"""  # noqa: E501
)
FOR_A_TIME = """\
 #bytes        #iterations       t_avg[usec]    tps average
 64            9731210            2.05           487804.88
"""


def test_a_nics_typical_latency_is_a_send() -> None:
    harvest = Harvest()
    perftest.parse((LATENCY + FOR_A_TIME).splitlines(), harvest)
    typical, mean = harvest.measurements
    assert (typical.op, typical.size_bytes, typical.time_us) == ("send", 2, 1.79)
    assert (typical.hosts, mean.time_us) == (("mlx5_0 at 10.20.0.1", "10.20.0.3"), 2.05)


@pytest.mark.parametrize(("time", "rules"), [("1.79", 0), ("81.79", 1)])
def test_a_nic_that_takes_long_is_named(tmp_path: Path, time: str, rules: int) -> None:
    (tmp_path / "lat.log").write_text(LATENCY.replace("1.79", time))
    with advisor.load(tmp_path / "lat.log") as run:
        assert [item.rule for item in run.report.findings] == [
            "benchmark-small-messages-slow"
        ] * rules


# As perftest/common/utils.cu of NVIDIA/nvshmem 3.4 prints them; figures of its issue 39.
NVSHMEM = """\
Runtime options after parsing command line arguments
#reduction_on_stream
size(B)     count     type      redop     latency(us)       min_lat(us)       max_lat(us)       algbw(GB/s)   busbw(GB/s)
8           2         int       sum       7.193600          7.194             7.194             0.001         0.002
4194304     1048576   int       sum       41.943040         41.943            41.943            100.000       175.000
#shmem_put_bw_uni
size(B)     scope     BW (GB/sec)
67108864    None      48.200000
#shmem_put_latency
size(B)     scope     latency (us)
8           Thread    9.100000
#shmem_put_latency
size(B)     scope     latency (us)
8           Block     3.100000
#bcast_device
size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
4194304     1048576   32-bit    block     4000.000000       1.049         1.049
"""  # noqa: E501


def test_nvshmems_tables_are_read_and_what_one_block_moves_is_not(tmp_path: Path) -> None:
    harvest = Harvest()
    nvshmem.parse(NVSHMEM.splitlines(), harvest)
    small, large, put, latency = harvest.measurements
    assert (small.op, small.ranks, small.time_us) == ("all_reduce", None, 7.1936)
    assert (large.ranks, large.busbw_gbps, large.dtype) == (8, pytest.approx(175), "int")
    assert (put.op, put.ranks, put.busbw_gbps) == ("send_recv", 2, pytest.approx(48.2))
    assert (latency.op, latency.time_us, latency.table) == ("send", 3.1, 3)
    assert harvest.dropped == {"test that is not compared": 2}
    assert harvest.notes == ["no test that is compared: bcast_device"]
    started = Harvest()
    nvshmem.parse(("mpirun -np 8 reduction_on_stream\n" + NVSHMEM).splitlines(), started)
    assert [row.ranks for row in started.measurements] == [8, 8, 2, 2]
    (tmp_path / "out.log").write_text(NVSHMEM)
    with advisor.load(tmp_path / "out.log", hardware="dgx-h100") as run:
        assert not run.report.findings  # of two GPUs that may be on two hosts
