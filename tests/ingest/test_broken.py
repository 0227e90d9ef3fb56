"""A file on which its reader fails where it must not costs itself, and the defect is told."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advisor.ingest import ingest
from advisor.ingest.readers import nccl_xml
from advisor.store.store import Store
from tests.support.traces import event, kineto

_GRAPH = '<graphs version="1"><graph id="0" pattern="4" nchannels="1"/></graphs>'


def _folder(place: Path) -> Path:
    place.mkdir()
    (place / "rank0.json").write_text(kineto([event(n) for n in range(9)]))
    (place / "good.xml").write_text(_GRAPH)
    (place / "odd.xml").write_text(_GRAPH.replace('pattern="4"', 'pattern="7"'))
    return place


def _fail_on_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nccl_xml.read

    def read(sources: Any, context: Any) -> None:
        whole(sources, context)
        if any(source.path.name == "odd.xml" for source in sources):
            raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(nccl_xml, "read", read)


def test_a_defect_of_a_reader_costs_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path / "run")
    _fail_on_odd(monkeypatch)
    with Store.create() as store:
        ingest([folder], store)
        rows = store.con.execute("SELECT path, format, note FROM source ORDER BY path").fetchall()
        (events,) = store.con.execute("SELECT count(*) FROM event").fetchone() or (0,)
    found = {Path(path).name: (form, note) for path, form, note in rows}
    assert events == 9
    assert found["good.xml"] == ("nccl-xml", None)
    assert found["odd.xml"] == (
        "unknown",
        "could not be read as nccl-xml (ZeroDivisionError: nobody thought of this; "
        "this is a defect of advisor, please report it)",
    )


def test_a_defect_on_a_named_file_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path / "run")
    _fail_on_odd(monkeypatch)
    with Store.create() as store:
        with pytest.raises(ZeroDivisionError):
            ingest([folder / "rank0.json", folder / "odd.xml"], store)
        assert store.con.execute("SELECT count(*) FROM source").fetchone() == (0,)


def test_statistics_that_deny_a_value_let_no_row_past_the_filter(tmp_path: Path) -> None:
    """GIVEN an op table with a damaged duration of 1e25 s, beyond what its statistics say."""
    rows = 40
    columns: dict[str, Any] = {name: [0] * rows for name in ("rank", "dp_rank", "stage")}
    columns["step"] = [number // 10 for number in range(rows)]
    columns["optype"] = ["forward-compute"] * rows
    columns["start_ts"] = [float(number % 10) for number in range(rows)]
    columns["duration"] = pa.array([0.125 + number / 64 for number in range(rows)], pa.float32())
    path = tmp_path / "ops.parquet"
    pq.write_table(pa.table(columns), path, use_dictionary=False, compression="none")
    data = path.read_bytes()
    value = struct.pack("<f", 0.125 + 17 / 64)
    assert data.count(value) == 1
    path.write_bytes(data.replace(value, struct.pack("<f", 1e25)))
    with Store.create() as store:
        ingest([path], store)
        counts = store.con.execute(
            "SELECT events_read, events_dropped, drop_reasons FROM source"
        ).fetchall()
    assert counts == [(rows - 1, 1, '{"no usable time": 1}')]
