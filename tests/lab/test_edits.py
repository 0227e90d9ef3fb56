"""Edited recordings: only what the edit says changes."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from benchmarks.lab.case import Case, Edit
from benchmarks.lab.config import RunConfig
from benchmarks.lab.edits import edit_trace, edited_ranks, shift_all_clocks

TRACE = {"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{"ts": 4368326979624.900}]}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "rank1.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TRACE).encode()))
    return path


def test_a_shifted_clock_moves_the_base_time_exactly(trace):
    edit_trace(trace, Edit("shift-clock", 1, -20.5))
    shifted = json.loads(gzip.decompress(trace.read_bytes()))
    assert shifted["baseTimeNanoseconds"] == TRACE["baseTimeNanoseconds"] - 20_500_000
    assert shifted["traceEvents"] == TRACE["traceEvents"]


def test_a_dropped_rank_has_no_file(trace):
    edit_trace(trace, Edit("drop-rank", 1))
    assert not trace.exists()


def test_a_truncated_file_no_longer_unpacks(trace):
    before = trace.stat().st_size
    edit_trace(trace, Edit("truncate", 1, 0.5))
    assert trace.stat().st_size == before // 2
    with pytest.raises((EOFError, zlib.error)):
        gzip.decompress(trace.read_bytes())


def test_a_trace_without_base_time_is_refused(trace):
    trace.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(ValueError, match="base times"):
        edit_trace(trace, Edit("shift-clock", 1, 5.0))


@pytest.mark.parametrize(
    ("kind", "ranks"), [("shift-clock", [2, 3]), ("drop-rank", [3]), ("truncate", [3])]
)
def test_a_host_has_one_clock(kind, ranks):
    job = RunConfig(ranks=6, ranks_per_host=2)
    case = Case("c", kind, "", 0, job, job, edit=Edit(kind, 3, 0.5))
    assert edited_ranks(case) == ranks


def test_all_clocks_are_shifted_host_by_host_and_always_alike(tmp_path):
    job = RunConfig(ranks=6, ranks_per_host=2)
    case = Case("c", "slow-link", "", 0, job, job)
    traces = tmp_path / "traces"
    traces.mkdir()
    for rank in (0, 1, 2, 3, 5):  # rank 4 was dropped
        (traces / f"rank{rank}.trace.json.gz").write_bytes(
            gzip.compress(json.dumps(TRACE).encode())
        )
    for name in ("once", "again"):
        shift_all_clocks(traces, tmp_path / name, case, 5.0)
    base = {}
    for path in sorted((tmp_path / "once").iterdir()):
        shifted = json.loads(gzip.decompress(path.read_bytes()))["baseTimeNanoseconds"]
        again = gzip.decompress((tmp_path / "again" / path.name).read_bytes())
        assert json.loads(again)["baseTimeNanoseconds"] == shifted
        base[path.name[4]] = shifted - TRACE["baseTimeNanoseconds"]
    assert base["0"] == base["1"]
    assert base["2"] == base["3"]
    assert "4" not in base
    assert len(set(base.values())) == 3
    assert all(0 < abs(by) <= 5_000_000 for by in base.values())
