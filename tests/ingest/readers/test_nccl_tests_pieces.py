# ruff: noqa: E501 (rows as the program prints them)
"""Pieces of nccl-tests output, as reports show them: without a header, overlapping, with a footer."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest.detect import detect
from advisor.ingest.readers import nccl_tests
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from tests.ingest.readers.test_nccl_tests import BIG, HEADER, ROW, figures, parse


def test_rows_without_their_header_are_read_by_their_figures(tmp_path: Path) -> None:
    """GIVEN the end of an output WHEN its first bandwidth is the size over the time."""
    path = tmp_path / "end.txt"
    path.write_text(f"{BIG}\n# Out of bounds values : 0 OK\n")
    found = detect(Source.of(path, 0))
    assert found is not None and found.FORMAT == "nccl-tests"
    assert figures(parse(BIG)) == [(False, 25.87, 40.53, 0), (True, 26.01, 40.31, 0)]
    old = "     1048576          1024   float    25.87    40.5    20.2  2e-07    26.01    40.3    20.1    N/A"
    assert figures(parse(old)) == [(False, 25.87, 20.2, 0), (True, 26.01, 20.1, None)]


@pytest.mark.parametrize("row", [BIG.replace("40.53", "41.90", 1), BIG[:-12]])
def test_a_line_like_a_row_whose_figures_do_not_fit_is_none(row: str) -> None:
    harvest = parse(row)
    assert not harvest.measurements and harvest.dropped == {"row without a header line": 1}


def test_the_last_line_names_the_operation_where_no_other_does() -> None:
    harvest = parse(
        f"{BIG}\n# Avg bus bandwidth : 1\n# Collective test concluded: broadcast_perf\n"
    )
    assert {m.op for m in harvest.measurements} == {"broadcast"}


def test_differences_that_the_last_line_does_not_count_are_no_wrong_results() -> None:
    header = HEADER.replace("#wrong", "error")
    row = ROW.replace("0.31       0", "0.31   1e+00").replace("0.32       0", "0.32   0e+00")
    wrong = [m.wrong for m in parse(f"{header}{row}\n").measurements]
    assert wrong == [0, 1]
    right = parse(f"{header}{row}\n# Out of bounds values : 0 OK\n")
    assert [m.wrong for m in right.measurements] == [0, 0]


def test_two_tables_written_into_each_other_are_of_two_processes() -> None:
    end = "# Avg bus bandwidth    : 1.8\n"
    both = f"{BIG}\n{BIG}\n{BIG.replace('1048576', '2097152')}\n{end}{BIG}\n{end}"
    assert {m.apart for m in parse(both).measurements} == {2}
    after = f"{BIG}\n{end}{BIG}\n{end}"
    assert {m.apart for m in parse(after).measurements} == {None}


def test_a_container_whose_name_begins_with_a_digit_breaks_a_row() -> None:
    """waynehacking8/nccl-collectives-bench (H100): NCCL's lines follow figures without a space."""
    nccl = "38dcf168f605:1375:1375 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}\n"
    rank = "#  Rank  0 Group  0 Pid   1375 on 38dcf168f605 device  0 [0000:41:00] NVIDIA H100 80GB HBM3\n"
    begin = "   268435456      67108864     float     sum      -1"
    row = f"{begin}{nccl}{nccl}  1346.49  199.36  199.36       0{nccl}{nccl}  1346.13  199.41  199.41       0\n"
    expected = [(False, 1346.49, 199.36, 0), (True, 1346.13, 199.41, 0)]
    assert figures(parse(f"{rank}{HEADER}{row}")) == expected
    apart = row.replace("-1" + nccl, "-1\n" + nccl).replace("0" + nccl, "0\n" + nccl)
    assert figures(parse(f"{HEADER}{apart}")) == expected


def test_a_wrong_count_ends_where_a_host_whose_name_begins_with_a_letter_does() -> None:
    """Timez-zx/nccl-tests (2 A100): «0mew0:» took the 0, and the next time counted as wrong."""
    nccl = (
        "mew0:64904:64904 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x720000000 count 2097152\n"
    )
    rank = "#  Rank  0 Group  0 Pid  64904 on       mew0 device  0 [0000:17:00] NVIDIA A100 80GB\n"
    begin = "     8388608       2097152     float     sum      -1"
    row = f"{begin}{nccl}{nccl}    83.33  100.66  100.66      0{nccl}{nccl}    80.98  103.59  103.59      0\n"
    expected = [(False, 83.33, 100.66, 0), (True, 80.98, 103.59, 0)]
    assert figures(parse(f"{rank}{HEADER}{row}")) == expected
    assert figures(parse(f"{HEADER}{row}")) == [(False, 83.33, 100.66, None)]  # its 0 is lost


def test_the_lines_around_a_table_are_no_errors_of_a_job(tmp_path: Path) -> None:
    footer = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    path = tmp_path / "rccl.txt"
    path.write_text(f"{HEADER}{ROW}\n{footer}# Avg bus bandwidth : 0.3\n")
    with Store.create() as store:
        nccl_tests.read([Source.of(path, 0)], ReadContext(store, "r"))
        told = store.con.execute("SELECT * FROM topology WHERE kind IN ('warning', 'output')")
        assert told.fetchall() == []


def _table(ranks: int, row: str, end: str = "") -> str:
    """The ranks, the header and one row of a table that no line names."""
    listed = "".join(
        f"#  Rank {rank} Group  0 Pid 1 on h{rank // 4} device {rank % 4} [0x07] A100\n"
        for rank in range(ranks)
    )
    half = "time   algbw   busbw #wrong"
    header = f"#       size         count      type   redop    root     {half}     {half}\n"
    return (
        f"# nThread 1 nGpus 1 minBytes 4 maxBytes 1\n# Using devices\n{listed}{header}{row}\n{end}"
    )


@pytest.mark.parametrize(
    ("form", "op"),
    [
        ("none -1 {half} 0 {half} N/A", "all_to_all"),
        ("none -1 {half} 0 {half} 0", "all_gather"),
        ("none -1 {half} N/A {half} N/A", "unknown"),  # results are not checked
        ("sum -1 {half} 0 {half} 0", "reduce_scatter"),
        ("sum -1 {whole} 0 {whole} N/A", "send_recv"),
        ("none 0 {whole} 0 {whole} 0", "broadcast"),
    ],
)
def test_the_form_of_its_rows_names_an_operation(form: str, op: str) -> None:
    """Reduction, root, what is checked in place, and bus over algorithm bandwidth (8 ranks)."""
    half, whole = "1000 1073.74 939.52", "1000 1073.74 1073.74"
    row = f"1073741824 268435456 float {form.format(half=half, whole=whole)}"
    assert {m.op for m in parse(_table(8, row)).measurements} == {op}


def test_small_messages_are_of_the_operation_of_the_tables_around_them() -> None:
    """GIVEN a run of the program for each size, by one that prints no figures in place."""
    end = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.01\n#\n"
    small = _table(8, "512 128 float sum -1 112.1 0.00 0.01 N/A", end)
    large = _table(8, "33554432 8388608 float sum -1 4000 8.39 14.68 N/A", end)
    harvest = parse(small + large + small)
    assert [m.op for m in harvest.measurements] == ["all_reduce"] * 3
    assert not harvest.dropped and not harvest.notes
    alone = parse(small + small)
    assert {m.op for m in alone.measurements} == {"unknown"}
    assert alone.notes == ["the operation of 2 tables is not named: stored as 'unknown'"]
