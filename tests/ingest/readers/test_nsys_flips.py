"""Exports with flipped bits that sqlite does not notice: no rank is made up, nothing crashes."""

from __future__ import annotations

import random
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from advisor.ingest.readers import nsys
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from tests.ingest.readers.test_nsys import COMM, blob, export, global_id, rows
from tests.ingest.readers.test_nsys_cut import long_export, stored

_RANKS = "SELECT rank, events_dropped FROM rank ORDER BY rank"
_LOST = "SELECT events_dropped, drop_reasons FROM source"
_NOTE = "SELECT note FROM source"
_KERNEL, _COPY, _CALL = (f"CUPTI_ACTIVITY_KIND_{of}" for of in ("KERNEL", "MEMCPY", "RUNTIME"))


def _changed(path: Path, *statements: tuple[str, list[Any]]) -> Path:
    con = sqlite3.connect(path)
    for sql, values in statements:
        con.execute(sql, values)
    con.commit()
    con.close()
    return path


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("globalPid", global_id(100 | 1 << 12)),
        ("globalPid", global_id(101)),
        ("deviceId", 1),
        ("deviceId", 65),
        ("deviceId", "?"),
        ("globalPid", 1.5),
    ],
)
def test_a_flipped_id_makes_no_rank(tmp_path: Path, column: str, value: object) -> None:
    """GIVEN one kernel of 4,000 with an id of no process or GPU of its own THEN it is lost."""
    path = _changed(
        long_export(tmp_path / "a.sqlite"),
        (
            f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = ? WHERE correlationId = 2000",
            [value],
        ),
    )
    with stored(path) as store:
        assert rows(store, _RANKS) == [(3, 2), (5, 1)]
        whose = "of a process or GPU that hardly occurs"
        why = whose if isinstance(value, int) else f"without a usable {column}"
        assert rows(store, _LOST) == [(3, f'{{"event {why}": 1, "range without an end": 2}}')]


def test_a_process_with_little_work_of_its_own_stays_a_rank(tmp_path: Path) -> None:
    """GIVEN 4,000 kernels on one GPU and 2 on another, whose process calls the GPU too."""
    with stored(long_export(tmp_path / "a.sqlite")) as store:
        assert rows(store, "SELECT rank, device FROM rank ORDER BY 1") == [(3, 0), (5, 1)]


@pytest.mark.parametrize(
    "member", [(8 | 1 << 24, 3), (8, 3 | 1 << 16), (8, -3), (8 | 1 << 12, 4099), (0, 0)]
)
def test_a_flipped_membership_makes_no_rank(tmp_path: Path, member: tuple[int, int]) -> None:
    """GIVEN a size or rank that cannot be, or that the other ranks outvote."""
    ranks, rank = member
    path = export(tmp_path / "a.sqlite")
    init = "INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, NULL, ?, 5, 1, ?)"
    payload = blob(COMM, struct.pack("<Qiiii", 0xABC, ranks, rank, 0, 0))
    _changed(path, (init, [global_id(100, 7), payload]))
    with stored(path) as store:
        assert rows(store, "SELECT rank, world_size FROM rank ORDER BY 1") == [(3, 8), (5, 8)]


@pytest.mark.parametrize(
    ("start", "end"), [(4000, 1 << 62), (1 << 62, 1 << 62), (-(1 << 62), 5), (1.5, 2), (4, "x")]
)
def test_an_event_at_an_impossible_time_is_lost(tmp_path: Path, start: object, end: object) -> None:
    change = "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = ?, end = ? WHERE deviceId = 0"
    with stored(_changed(export(tmp_path / "a.sqlite"), (change, [start, end]))) as store:
        assert rows(store, _RANKS) == [(3, 2), (5, 1)]
        assert rows(store, "SELECT count(*) FROM event WHERE class = 'memory'") == [(1,)]


def test_the_analysis_bounds_the_times(tmp_path: Path) -> None:
    columns = "duration INTEGER, startTime INTEGER, stopTime INTEGER"
    path = _changed(
        export(tmp_path / "a.sqlite"),
        (f"CREATE TABLE ANALYSIS_DETAILS ({columns})", []),
        ("INSERT INTO ANALYSIS_DETAILS VALUES (9000, 0, 9000)", []),
        ("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET end = end + (1 << 40) WHERE deviceId = 1", []),
    )
    with stored(path) as store:
        assert '"event outside the time of the analysis": 1' in rows(store, _LOST)[0][1]
        assert rows(store, _RANKS) == [(3, 1), (5, 2)]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        *((_KERNEL, "streamId", None), (_KERNEL, "streamId", "x"), (_KERNEL, "streamId", -1)),
        *((_KERNEL, "correlationId", 1.5), (_KERNEL, "demangledName", 999)),
        *((_COPY, "bytes", -1), (_COPY, "streamId", "²"), (_COPY, "copyKind", "x")),
        *((_CALL, "nameId", 999), (_CALL, "globalTid", "x"), ("StringIds", "value", None)),
        *(("NVTX_EVENTS", "binaryData", b"cut"), ("TARGET_INFO_GPU", "id", "x")),
        *(("NVTX_PAYLOAD_SCHEMA_ENTRIES", of, "x") for of in ("type", "offset")),
    ],
)
def test_a_field_that_cannot_be_used_is_counted_by_its_name(
    tmp_path: Path, table: str, column: str, value: object
) -> None:
    """The event is kept where it is known whose it is; its rank is as whole as it was."""
    change = f"UPDATE {table} SET {column} = ? WHERE rowid = 1"
    with stored(_changed(export(tmp_path / "a.sqlite"), (change, [value]))) as store:
        assert f"rows without a usable {column} in {table}: 1" in rows(store, _NOTE)[0][0]
    with stored(export(tmp_path / "b.sqlite")) as store:
        assert "without a usable" not in (rows(store, _NOTE)[0][0] or "")


def test_texts_whose_ids_are_none_or_anothers_are_counted(tmp_path: Path) -> None:
    path = _changed(
        export(tmp_path / "a.sqlite"),
        ("ALTER TABLE StringIds RENAME TO Named", []),
        ("CREATE TABLE StringIds AS SELECT * FROM Named", []),
        ("INSERT INTO StringIds VALUES ('x', 'foreign'), (1, 'again')", []),
    )
    with stored(path) as store:
        assert "rows without a usable id in StringIds: 2" in rows(store, _NOTE)[0][0]


@pytest.mark.parametrize(
    ("column", "value"), [("start", 1.5), ("start", None), ("end", "x"), ("end", ""), ("end", -1)]
)
def test_an_event_without_a_time_is_lost_with_its_field(
    tmp_path: Path, column: str, value: object
) -> None:
    change = f"UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET {column} = ? WHERE deviceId = 0"
    with stored(_changed(export(tmp_path / "a.sqlite"), (change, [value]))) as store:
        assert f'"event without a usable {column}": 1' in rows(store, _LOST)[0][1]


def test_payload_entries_without_their_types_are_no_damage(tmp_path: Path) -> None:
    """A column that a version lacks was taken for a file that is cut."""
    change = "ALTER TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES DROP COLUMN type"
    with stored(_changed(export(tmp_path / "a.sqlite"), (change, []))) as store:
        assert "damaged" not in rows(store, _NOTE)[0][0]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_flips_anywhere(tmp_path: Path, seed: int) -> None:
    """Every file is read, and a loss is counted once, however many ranks there are."""
    chance = random.Random(seed)
    data = bytearray(long_export(tmp_path / "a.sqlite", 400).read_bytes())
    for _ in range((3, 30, 300)[seed % 3]):
        data[chance.randrange(100, len(data))] = chance.randrange(256)
    path = tmp_path / "b.sqlite"
    path.write_bytes(data)
    with Store.create() as store:
        nsys.read([Source.of(path, 0)], ReadContext(store, "r"))
        ((dropped, _),) = rows(store, _LOST)
        ((of_ranks,),) = rows(store, "SELECT coalesce(sum(events_dropped), 0) FROM rank")
        ((ranks,),) = rows(store, "SELECT count(*) FROM rank")
    assert of_ranks == (dropped if ranks else 0)
    assert ranks <= 2
