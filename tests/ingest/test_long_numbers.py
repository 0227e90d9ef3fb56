"""A number of more digits than Python converts costs its field or its record, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.vocabulary.numbers import INT64_MAX, json_integer, whole
from tests.support.traces import event, kineto, names, read

_LONG = "9" * 5000


def _with_long(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document).replace('"LONG"', _LONG))


@pytest.mark.parametrize("least", [-INT64_MAX - 1, INT64_MAX])
def test_64_bits_are_read_exactly(least: int) -> None:
    assert json_integer(str(least)) == least
    assert whole(json_integer(f"{least}0")) is None


@pytest.mark.parametrize("digits", [_LONG, "-" + _LONG])
def test_longer_ones_are_out_of_range(digits: str) -> None:
    assert whole(json_integer(digits)) is None


@pytest.mark.parametrize("damage", ["", "!"], ids=["sound", "read again"])
def test_an_event_of_a_trace_keeps_its_other_fields(tmp_path: Path, damage: str) -> None:
    text = kineto([event(0, args={"bytes": "LONG", "stream": 7}), event(1), event(2)], rank="LONG")
    text = text.replace('"LONG"', _LONG).replace('"kernel_1",', f'"kernel_1"{damage},')
    (tmp_path / "rank0.json").write_text(text)
    store = read(tmp_path)
    assert "kernel_0" in names(store) and "kernel_2" in names(store)
    assert store.con.execute(
        "SELECT bytes, stream FROM event WHERE name = 'kernel_0'"
    ).fetchall() == [(None, 7)]


def test_a_row_of_a_probe_is_counted_alone(tmp_path: Path) -> None:
    pair = {"src": 0, "dst": 1, "bytes": 1024, "round_trip_us": 9.0}
    probe = {"format": "advisor-probe", "world_size": 2, "pairs": [pair, pair | {"bytes": "LONG"}]}
    _with_long(tmp_path / "probe.json", probe)
    store = read(tmp_path)
    assert store.con.execute("SELECT events_read, drop_reasons FROM source").fetchall() == [
        (1, '{"unusable bytes": 1}')
    ]


def test_an_entry_of_a_dump_loses_no_later_ones(tmp_path: Path) -> None:
    entry = {"profiling_name": "nccl:all_reduce", "process_group": ["0", "default_pg"],
             "time_created_ns": 1, "collective_seq_id": 1, "state": "completed"}  # fmt: skip
    entries = [entry | {"record_id": record} for record in (1, "LONG", 3)]
    _with_long(tmp_path / "fr_trace_0.json", {"entries": entries})
    store = read(tmp_path)
    assert store.con.execute("SELECT events_read FROM source").fetchall() == [(3,)]
