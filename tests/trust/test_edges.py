"""Impossible numbers end as dropped or unknown, never as an internal error (benchmarks/fuzz/edges).

Each case is one that once was an internal error, took more than a minute or gigabytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.sandbox import Sandbox
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.ingest.readers.kineto.metadata import as_object
from advisor.ingest.readers.nsys.open import LONGEST_NAME
from advisor.metrics import derive
from advisor.store import Store
from advisor.vocabulary.numbers import MOST_RANKS, decimal, within
from benchmarks.fuzz import documents

pytestmark = pytest.mark.slow

_INT32 = 2**31 - 1


def _steps(first: int) -> Callable[[Any], None]:
    def change(traces: Any) -> None:
        for trace in traces:
            for number, event in enumerate(_of(trace, "ProfilerStep")):
                event["name"] = f"ProfilerStep#{first + number}"

    return change


def _collectives(**fields: Any) -> Callable[[Any], None]:
    def change(traces: Any) -> None:
        for trace in traces:
            for event in _of(trace, "ncclDevKernel"):
                event["args"] |= {name.replace("_", " "): value for name, value in fields.items()}

    return change


def _of(trace: Any, name: str) -> list[Any]:
    return [event for event in trace["traceEvents"] if event["name"].startswith(name)]


def _nested(key: str, **fields: Any) -> Callable[[Any], None]:
    return lambda rows: [row[key].update(fields) for row in rows] and None


def _nsys_without_key(tables: Any) -> None:
    tables["StringIds"] = [{"id": 0, "value": f"k{number}"} for number in range(20_000)]
    kernel = tables["CUPTI_ACTIVITY_KIND_KERNEL"][0] | {"demangledName": 0, "shortName": 0}
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [kernel | {"correlationId": n} for n in range(20_000)]


CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "step beyond int32": ("kineto", _steps(_INT32)),
    "step of 400 digits": ("kineto", _steps(10**400)),
    "elements": ("kineto", _collectives(In_msg_nelems=2**62, Out_msg_nelems=2**62)),
    "group of nobody": ("kineto", _collectives(Group_size=0, Process_Group_Ranks="[]")),
    "rank of an op table": ("op_table", lambda rows: rows[-1].update(rank=_INT32)),
    "world of the Inspector": ("nccl_inspector", _nested("header", n_ranks=_INT32)),
    "group with another script's digit": (
        "flight_recorder",
        lambda dump: dump.update(pg_config={"²": {"name": "²", "desc": "x", "ranks": "[0,²]"}}),
    ),
    "names without a key": ("nsys", _nsys_without_key),
    "world of a log": ("nccl_log", lambda log: log["rows"][0].__setitem__(3, 999_999_999)),
    "sequence of the Inspector": ("nccl_inspector", _nested("coll_perf", coll_sn=2**62)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_impossible_numbers_are_survived(name: str, tmp_path: Path) -> None:
    form, change = CASES[name]
    write, sound = documents.FORMATS[form]
    document = sound()
    change(document)
    store = Store.create()
    ingest([str(write(document, tmp_path))], store)
    derive(store)
    (largest,) = store.con.execute("SELECT coalesce(max(world_size), 0) FROM rank").fetchone()
    assert largest <= MOST_RANKS


def test_an_op_table_of_impossible_ranks_is_refused(tmp_path: Path) -> None:
    write, sound = documents.FORMATS["op_table"]
    rows = [row | {"rank": _INT32, "stage": _INT32, "dp_rank": _INT32} for row in sound()]
    with pytest.raises(AdvisorError, match="no usable operation"):
        ingest([str(write(rows, tmp_path))], Store.create())


@pytest.mark.parametrize("times", [[float("nan")], [1e-320], [float("inf")], [0.0], ["²"], []])
def test_a_time_that_cannot_have_been_measured_drops_its_row(
    times: list[Any], tmp_path: Path
) -> None:
    write, sound = documents.FORMATS["probe"]
    document = sound()
    document["collectives"][0]["times_us"] = times
    document["pairs"].append(7)
    store = Store.create()
    ingest([str(write(document, tmp_path))], store)
    derive(store)
    found = store.con.execute("SELECT events_read, drop_reasons FROM source").fetchall()
    assert found == [(4, '{"no object": 1, "unusable times_us": 1}')]


@pytest.mark.parametrize("encoding", ["klingon", "utf-7", "idna", "rot13"])
def test_an_encoding_that_nobody_reads_is_refused(encoding: str, tmp_path: Path) -> None:
    dump = tmp_path / "topo.xml"
    dump.write_text(
        f'<?xml version="1.0" encoding="{encoding}"?>\n<system version="1"><cpu/></system>'
    )
    store = Store.create()
    ingest([str(dump)], store)
    found = store.con.execute("SELECT events_read, events_dropped FROM source").fetchall()
    assert found == [(0, 1)]


def test_a_literal_in_a_trace_gets_no_warning_of_python() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert as_object("1if 1else 2") == {}
        assert as_object("{'a': 1}") == {"a": 1}
    assert warned == []


def test_numbers_at_the_border() -> None:
    assert decimal("2147483647") == _INT32
    assert decimal("0002147483647") == _INT32
    assert decimal("2147483648") is None
    assert decimal("²") is None
    assert decimal("٣") is None
    assert decimal("") is None
    assert decimal("-1") is None
    assert within(True, 0, 1) is None
    assert within(1.0, 0, 1) is None
    assert within(2**64, 0, 2**63) is None


def test_one_long_name_of_many_kernels_costs_itself_once(tmp_path: Path) -> None:
    """GIVEN an export in which 2,000 kernels share a name of 1 MB THEN the store holds a part."""
    write, sound = documents.FORMATS["nsys"]
    tables = sound()
    tables["StringIds"].append({"id": 99, "value": "gemm" * 250_000})
    kernel = tables["CUPTI_ACTIVITY_KIND_KERNEL"][0] | {"demangledName": 99, "shortName": 99}
    many = [kernel | {"start": n * 10, "end": n * 10 + 5} for n in range(2_000)]
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = many
    write(tables, tmp_path)
    with Store.create() as store:
        ingest([tmp_path], store)
        rows = "SELECT count(*), max(len(name)) FROM event WHERE starts_with(name, 'gemm')"
        assert store.con.execute(rows).fetchall() == [(2_000, LONGEST_NAME)]


def test_rows_that_repeat_each_other_are_refused(tmp_path: Path) -> None:
    """GIVEN an op table of a million equal rows in some kilobytes THEN nothing is read of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = {"rank": 0, "dp_rank": 0, "stage": 0, "step": 1, "start_ts": 0.5, "duration": 0.25}
    table = pa.table({name: [value] * 1_000_000 for name, value in row.items()})
    table = table.append_column("optype", pa.array(["optimizer"] * 1_000_000))
    pq.write_table(table, tmp_path / "trace.parquet")
    with Store.create() as store, pytest.raises(AdvisorError, match="repeat each other"):
        ingest([tmp_path / "trace.parquet"], store)


@pytest.mark.long
def test_a_group_of_a_million_ranks_is_searched_for_a_hang() -> None:
    """GIVEN dumps of two of a million ranks THEN the views answer within a query's limits."""
    with Store.create() as store:
        store.con.execute(
            "INSERT INTO process_group (run, process_group, ranks, size) "
            "SELECT 'r', '0', range(1000000), 1000000"
        )
        store.con.execute(
            "INSERT INTO flight (run, rank, process_group, seq, state, op) "
            "SELECT 'r', unnest([0, 1]), '0', 7, 'scheduled', 'all_reduce'"
        )
        with Sandbox(store, "r") as sandbox:
            found = sandbox.records("SELECT count(*) AS n FROM flight_blame WHERE no_dump")
    assert found == [{"n": 999_998}]
