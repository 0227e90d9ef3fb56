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


def test_the_lines_around_a_table_are_no_errors_of_a_job(tmp_path: Path) -> None:
    footer = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    path = tmp_path / "rccl.txt"
    path.write_text(f"{HEADER}{ROW}\n{footer}# Avg bus bandwidth : 0.3\n")
    with Store.create() as store:
        nccl_tests.read([Source.of(path, 0)], ReadContext(store, "r"))
        told = store.con.execute("SELECT * FROM topology WHERE kind IN ('warning', 'output')")
        assert told.fetchall() == []
