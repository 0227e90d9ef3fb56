# ruff: noqa: E501 (rows as the program prints them)
"""nccl-tests output: what was printed is what is stored, in every layout, through every noise."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.ingest import ingest
from advisor.ingest.detect import detect
from advisor.ingest.readers import nccl_tests
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.readers.nccl_tests.report import parse_report
from advisor.ingest.readers.nccl_tests.text import TableParser
from advisor.ingest.source import ReadContext, Source
from advisor.model.nccl.version import format_version, version_of_code
from advisor.store.store import Store

HEADER = """\
# nccl-tests version 2.17.1 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid    100 on      node1 device  0 [0000:07:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    100 on      node1 device  1 [0000:0b:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
ROW = "        4096          1024     float     sum      -1    25.87    0.16    0.32       0    26.01    0.16    0.31       0"


def parse(text: str, name: str = "out.txt") -> Harvest:
    parser = TableParser(Path(name))
    for line in text.splitlines():
        parser.feed(line)
    return parser.finish()


def figures(harvest: Harvest) -> list[tuple[bool, float | None, float | None, int | None]]:
    return [(m.in_place, m.time_us, m.busbw_gbps, m.wrong) for m in harvest.measurements]


BOTH = [(False, 25.87, 0.32, 0), (True, 26.01, 0.31, 0)]


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("allgather", "all_gather"),
        ("allreduce", "all_reduce"),
        ("alltoall", "all_to_all"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("reducescatter", "reduce_scatter"),
    ],
)
def test_real_tables_average_to_what_the_program_printed(
    shared_data: Path, name: str, op: str
) -> None:
    """GIVEN 8-GPU logs THEN all 34 rows, and the mean busbw nccl-tests itself computed."""
    path = shared_data / "nccl_tests" / f"nccl_{name}.log"
    harvest = parse(path.read_text(), path.name)
    printed = float(path.read_text().split("Avg bus bandwidth    :")[1].split()[0])
    assert len(harvest.measurements) == 2 * 34
    assert {(m.op, m.ranks) for m in harvest.measurements} == {(op, 8)}
    busbw = [m.busbw_gbps for m in harvest.measurements if m.busbw_gbps is not None]
    assert statistics.mean(busbw) == pytest.approx(printed, abs=0.005)
    assert harvest.dropped == {}


def test_new_layout_names_operation_ranks_and_version() -> None:
    harvest = parse(HEADER + ROW)
    assert figures(harvest) == BOTH
    assert harvest.measurements[0].op == "all_reduce"
    assert harvest.measurements[0].ranks == 2
    assert harvest.measurements[0].size_bytes == 4096
    assert harvest.nccl_version == "2.27.7"


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[0] ", "0: ", "[default0]:", "\t"])
def test_launcher_prefixes_change_nothing(prefix: str) -> None:
    text = "\n".join(prefix + line for line in (HEADER + ROW).splitlines())
    assert figures(parse(text)) == BOTH


INFO = "[0] node1:11:11 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo 0 proto 0 time 25.874907"


@pytest.mark.parametrize("cut_after", ["float     sum      -1", "0.32       0", "0.16    0.32"])
def test_a_row_broken_by_nccls_own_lines_is_put_together(cut_after: str) -> None:
    """GIVEN NCCL lines in the middle of a row (as in NVIDIA/nccl issue 1453)."""
    place = ROW.index(cut_after) + len(cut_after)
    broken = f"{ROW[:place]}{INFO}\n{INFO}\n{ROW[place:]}\n"
    harvest = parse(HEADER + broken + ROW)
    assert figures(harvest) == BOTH + BOTH
    assert harvest.dropped == {}


@pytest.mark.parametrize("tag", ["[0]", "[1,0]<stdout>:"])
def test_tags_of_the_rank_inside_a_row_change_nothing(tag: str) -> None:
    """Issue 1453 of NCCL: the launcher put [0] before each piece of a row.

    So does ``mpirun --tag-output`` of an MPIJob (KeitaW/p5-nccl-test-2024-07-19).
    """
    head = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    tagged = parse(
        f"{tag}# {head}\n"
        f"{tag}     33554432       8388608     float     sum      -1{tag}    2180.1   15.39   29.50"
        f"      0{tag}    2285.2   14.68   28.14      0\n"
    )
    plain = parse(
        f"# {head}\n33554432 8388608 float sum -1 2180.1 15.39 29.50 0 2285.2 14.68 28.14 0\n"
    )
    assert tagged.measurements == plain.measurements
    assert [item.busbw_gbps for item in plain.measurements] == [29.5, 28.14]


def test_a_cut_row_keeps_its_finished_half_and_counts_the_other() -> None:
    harvest = parse(HEADER + ROW + "\n" + ROW[: ROW.index("26.01") + 3])
    assert figures(harvest) == [*BOTH, BOTH[0]]
    assert harvest.dropped == {"row cut": 1}


@pytest.mark.parametrize("size", ["9" * 25, "40x6"])
def test_a_row_whose_size_is_damaged_is_counted(size: str) -> None:
    harvest = parse(HEADER + ROW + "\n" + ROW.replace(ROW.split()[0], size, 1) + "\n" + ROW)
    assert figures(harvest) == BOTH + BOTH
    assert harvest.dropped == {"row without a size": 1}


@pytest.mark.parametrize("time", ["1e999", "nan", "inf"])
def test_a_time_that_is_no_number_is_counted_by_its_name(time: str) -> None:
    harvest = parse(HEADER + ROW.replace("25.87", time))
    assert figures(harvest) == [(False, None, 0.32, 0), BOTH[1]]
    assert harvest.dropped == {"time out of range": 1}


@pytest.mark.parametrize("rank", ["99999999999", " \N{SUPERSCRIPT TWO}", "-1"])
def test_a_rank_without_a_number_is_counted_and_stays_a_rank(rank: str) -> None:
    """GIVEN two ranks, of which the last has none THEN the table is not one of a single rank."""
    harvest = parse((HEADER + ROW).replace("Rank  1", f"Rank {rank}"))
    assert {item.ranks for item in harvest.measurements} == {2}
    assert harvest.dropped == {"rank out of range": 1}
    assert harvest.measurements[0].hosts is None


def test_per_iteration_columns_cputime_and_timestamps() -> None:
    columns = "{0}   algbw   busbw  #wrong  i_min  i_max  i_p99  i_cv%"
    head = "#       size         count      type   redop    root  "
    head += columns.format("cputime") + "  " + columns.format("cputime") + "           timestamp\n"
    row = "        4096          1024  bfloat16     sum      -1"
    row += "    25.87    0.16    0.32       0    24.00    31.00    30.50     2.10"
    row += (
        "    26.01    0.16    0.31     N/A    24.10    31.10    30.60     2.20  2026-02-01 10:00:00"
    )
    harvest = parse(head + row, "sendrecv.txt")
    assert figures(harvest) == [(False, 25.87, 0.32, 0), (True, 26.01, 0.31, None)]
    assert harvest.measurements[0].op == "send_recv"


def test_halves_that_an_operation_does_not_have_are_not_losses() -> None:
    spaces = " " * 32
    in_place_only = ROW[: ROW.index("-1") + 2] + spaces + ROW[ROW.index("   26.01") :]
    no_in_place = ROW[: ROW.index("   26.01")] + "      N/A     N/A     N/A     N/A"
    harvest = parse(f"{HEADER}{in_place_only}\n{no_in_place}\n")
    assert figures(harvest) == [BOTH[1], BOTH[0]]
    assert harvest.dropped == {}


def test_several_tables_in_one_file_keep_their_operations() -> None:
    second = HEADER.replace("all_reduce_perf", "alltoall_perf")
    harvest = parse(f"{HEADER}{ROW}\n# Out of bounds values : 0 OK\n{second}{ROW}\n")
    assert [m.op for m in harvest.measurements] == ["all_reduce"] * 2 + ["all_to_all"] * 2


def test_an_operation_that_nothing_names_is_unknown_and_said_so() -> None:
    text = "\n".join(line for line in HEADER.splitlines() if "starting" not in line)
    harvest = parse(f"{text}\n{ROW}", "stdout.txt")
    assert harvest.measurements[0].op == "unknown"
    assert harvest.notes
    # A name in the file is used unless the figures contradict it: factor 1 of 2 ranks is no gather.
    assert parse(f"{text}\n{BIG}", "all_gather.txt").measurements[0].op == "unknown"
    assert parse(f"{text}\n{BIG}", "broadcast.txt").measurements[0].op == "broadcast"


BIG = "     1048576          1024     float     sum      -1    25.87   40.53   40.53       0    26.01   40.31   40.31       0"


def test_the_line_that_starts_the_program_counts_ranks() -> None:
    """GIVEN no list of ranks; WHEN the figures are of as many, or of fewer."""
    start = "mpirun -n 256 -x NCCL_DEBUG=WARN ./build/all_reduce_perf -b 8 -e 1G -f 2 -g 1 -n 20\n"
    headings = HEADER[HEADER.index("#       size") :]
    row = "1073741824     268435456     float     sum    29896   35.91   71.55  1e-06    29411   36.51   72.73  1e-06"
    fewer = row.replace("71.55", "62.84").replace("72.73", "63.89")  # 1.75: of 8 ranks
    headings = headings.replace("root   ", "").replace("#wrong", "error")
    for figures, ranks in ((row, 256), (fewer, 8)):
        found = parse(start + headings + figures)
        assert {one.ranks for one in found.measurements} == {ranks}


def test_mscclpps_table_begins_with_the_half_in_place() -> None:
    devices = "".join(
        f"#  Rank  {rank} Pid  8557{rank} on node1 device  {rank} [000{rank}:00:00.0] NVIDIA A100\n"
        for rank in range(8)
    )
    table = """\
#                                    in-place                       out-of-place
#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456    17018   63.09  110.41      0
   536870912     134217728     8600   62.43  109.25      0     8700   61.71  107.99      0
"""
    found = parse(devices + table)
    assert [(one.op, one.ranks, one.in_place, one.time_us) for one in found.measurements] == [
        ("all_reduce", 8, True, 17018),
        ("all_reduce", 8, True, 8600),
        ("all_reduce", 8, False, 8700),
    ]
    assert not found.dropped


def test_version_codes() -> None:
    assert format_version(version_of_code(22707)) == "2.27.7"
    assert format_version(version_of_code(2804)) == "2.8.4"


REPORT = {
    "version": 3,
    "start_time": "2026-02-01 10:00:00",
    "args": ["/opt/nccl-tests/build/reduce_scatter_perf", "-g", "8"],
    "env": ["A=b"],
    "nccl_version": 22707,
    "config": {
        "nthreads": 1,
        "ngpus": 8,
        "blocking_collectives": "false",
        "devices": [
            {"rank": 0, "group": 0, "pid": 1, "hostname": "a", "device": 0},
            {"rank": 8, "group": 0, "pid": 2, "hostname": "b", "device": 0},
        ],
    },
    "results": [
        {
            "size": 1024,
            "count": 16,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 10.5, "alg_bw": 0.1, "bus_bw": 0.09, "nwrong": 0.0},
            "in_place": {"cpu_time": 11.5, "alg_bw": "nan", "bus_bw": 0.08, "nwrong": None},
        },
        {
            "size": 2048,
            "count": 32,
            "type": "float",
            "out_of_place": None,
            "in_place": {"time": 12.5, "alg_bw": 0.2, "bus_bw": 0.19, "nwrong": 2.0},
        },
    ],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "errors": [],
    "end_time": "2026-02-01 10:00:09",
}


def test_json_report() -> None:
    """Layout after src/util.cu of nccl-tests: one device entry per process of 8 GPUs."""
    harvest = parse_report(json.dumps(REPORT))
    assert figures(harvest) == [
        (False, 10.5, 0.09, 0),
        (True, 11.5, 0.08, None),
        (True, 12.5, 0.19, 2),
    ]
    assert {(m.op, m.ranks) for m in harvest.measurements} == {("reduce_scatter", 16)}
    assert harvest.measurements[1].algbw_gbps is None
    assert harvest.nccl_version == "2.27.7"
    assert harvest.dropped == {}


def test_a_json_report_that_lists_every_gpu_counts_them() -> None:
    devices = [{"rank": n, "group": 0, "pid": 1 + n // 8, "hostname": "a"} for n in range(16)]
    report = {**REPORT, "config": {"nthreads": 1, "ngpus": 8, "devices": devices}}
    assert {m.ranks for m in parse_report(json.dumps(report)).measurements} == {16}


def test_a_cut_report_keeps_every_finished_result() -> None:
    text = json.dumps(REPORT)
    cut = text[: text.index('"size": 2048') + 5]
    harvest = parse_report(cut)
    assert len(harvest.measurements) == 2
    assert harvest.dropped == {"report cut or damaged": 1}


@pytest.mark.slow
@given(st.integers(0, len(json.dumps(REPORT))), st.text(max_size=5))
def test_damaged_reports_never_crash_and_never_invent(place: int, noise: str) -> None:
    text = json.dumps(REPORT)
    harvest = parse_report(text[:place] + noise + text[place:])
    assert len(harvest.measurements) <= 3


@given(st.lists(st.tuples(st.integers(0, len(HEADER + ROW)), st.text(max_size=4)), max_size=5))
def test_damaged_tables_never_crash(edits: list[tuple[int, str]]) -> None:
    text = f"{HEADER}{ROW}"
    for place, noise in edits:
        text = text[:place] + noise + text[place + 1 :]
    assert len(parse(text).measurements) <= 2


def test_files_end_in_the_bench_table(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(HEADER + ROW)
    (tmp_path / "b.json").write_text(json.dumps(REPORT))
    sources = [Source.of(tmp_path / "a.log", 0), Source.of(tmp_path / "b.json", 1)]
    assert [detect(source) for source in sources] == [nccl_tests, nccl_tests]
    with Store.create() as store:
        nccl_tests.read(sources, ReadContext(store, "r"))
        rows = store.con.execute(
            "SELECT op, ranks, bytes, in_place, time_us FROM bench ORDER BY bytes, in_place"
        ).fetchall()
        reports = store.con.execute(
            "SELECT source_id, format, events_read, events_dropped FROM source ORDER BY 1"
        ).fetchall()
        versions = store.con.execute(
            "SELECT name, value FROM topology WHERE kind = 'version'"
        ).fetchall()
        hosts = store.con.execute(
            "SELECT DISTINCT len(hosts), device FROM bench ORDER BY 1"
        ).fetchall()
    assert rows[0] == ("reduce_scatter", 16, 1024, False, 10.5)
    assert ("all_reduce", 2, 4096, True, 26.01) in rows
    assert reports == [(0, "nccl-tests", 2, 0), (1, "nccl-tests", 3, 0)]
    assert versions == [("nccl", "2.27.7")] * 2
    assert hosts == [(1, "NVIDIA H100 80GB HBM3"), (2, None)]  # the report is over two nodes


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 25, "1.2.3", "1e999"])
def test_numbers_of_any_length_are_survived(digits: str) -> None:
    text = HEADER + ROW
    for number in re.finditer(r"\d+", text):
        parse(text[: number.start()] + digits + text[number.end() :])


@pytest.mark.parametrize("size", [2**63, 2**70, "9" * 50, -1])
def test_a_size_that_no_message_has_is_counted(tmp_path: Path, size: object) -> None:
    half = {"time": "12.5", "alg_bw": 80.0, "bus_bw": 150.0, "nwrong": "0"}
    results = [{"size": wanted, "type": "float", "out_of_place": half} for wanted in (8, size)]
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"version": 3, "results": results, "args": ["./all_reduce_perf"]}))
    with Store.create() as store:
        ingest([path], store)
        assert store.con.execute("SELECT bytes FROM bench").fetchall() == [(8,)]
        reasons = store.con.execute("SELECT drop_reasons FROM source").fetchall()
    assert reasons == [('{"size out of range": 1}',)]
